//! `raglan audit query`: the latest events that fit.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use super::arguments::QueryArguments;
use super::selection::{Range, Selection};
use super::view;
use crate::Outcome;
use crate::language::text;
use crate::session::Session;

pub(super) async fn query(
    session: &mut Session<'_>,
    arguments: &QueryArguments,
) -> anyhow::Result<Outcome> {
    let table = session.target.audit_table()?;
    let range = Range::of(&arguments.range, session.clock.now())?;
    let selection = Selection::of(session, &arguments.selection).await?;
    let limit = usize::try_from(arguments.limit)?;
    let mut latest = VecDeque::new();
    let mut count = 0_u64;
    selection
        .read(&table, range, |record| {
            count += 1;
            if latest.len() == limit {
                latest.pop_front();
            }
            latest.push_back(if session.json {
                view::json(record)
            } else if arguments.csv {
                view::csv_row(record)
            } else {
                view::line(record.event())
            });
            Ok(ControlFlow::Continue(()))
        })
        .await?;
    if arguments.csv {
        session.console.print(view::csv_heading());
        for row in &latest {
            session.console.print(row);
        }
    } else {
        if !session.json {
            session.console.say(view::heading());
        }
        for line in &latest {
            session.console.say(line);
        }
    }
    let shown = latest.len();
    if shown == 0 && !session.json {
        session.console.note(text!("no events fit"));
    }
    if u64::try_from(shown)? < count {
        session.console.note(text!(
            "These are the latest {shown} of {count} events; --limit shows more, and `raglan audit \
             export` writes all.",
            shown,
            count
        ));
    }
    Ok(Outcome::Done)
}
