//! `raglan audit export`: all events that fit, one after the other, in bounded memory.

use std::fs;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt as _;

use anyhow::Context as _;

use super::arguments::ExportArguments;
use super::selection::{Range, Selection};
use super::view;
use crate::Outcome;
use crate::language::text;
use crate::session::Session;

pub(super) async fn export(
    session: &mut Session<'_>,
    arguments: &ExportArguments,
) -> anyhow::Result<Outcome> {
    let table = session.target.audit_table()?;
    let range = Range::of(&arguments.range, session.clock.now())?;
    let selection = Selection::of(session, &arguments.selection).await?;
    let mut file;
    let out: &mut dyn Write = if let Some(path) = &arguments.out {
        let made = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        let cannot = || text!("{path} cannot be made", path = path.display());
        file = BufWriter::new(made.with_context(cannot)?);
        &mut file
    } else {
        &mut session.console.out
    };
    let cannot = || text!("the events cannot be written").to_owned();
    if arguments.csv {
        write!(out, "{}", view::csv_heading()).with_context(cannot)?;
    }
    let mut count = 0_u64;
    selection
        .read(&table, range, |record| {
            let written = if arguments.csv {
                write!(out, "{}", view::csv_row(record))
            } else {
                writeln!(out, "{}", view::stored_json(record))
            };
            written.with_context(cannot)?;
            count += 1;
            Ok(ControlFlow::Continue(()))
        })
        .await?;
    out.flush().with_context(cannot)?;
    session.console.note(text!("{count} events", count));
    Ok(Outcome::Done)
}
