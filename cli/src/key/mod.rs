//! `raglan key`: the life of API keys. [`issue`] makes them, [`change`] narrows and ends them, and
//! [`view`] shows them; [`grants`] is what the options mean, without any I/O.

pub mod arguments;
mod change;
pub mod choices;
pub(crate) mod find;
pub mod grants;
mod handover;
mod issue;
mod usage;
pub mod view;

use raglan_core::key_record::KeyRecord;
use raglan_core::life_cycle;

use crate::Outcome;
use crate::language::text;
use crate::session::{Items, Session, with_session};

use self::arguments::{KeyArguments, KeyCommand, ListArguments};
use self::find::find;
use self::view::KeyView;

/// Runs the command.
///
/// # Errors
/// One line; see [`crate::failure`] for the exit codes.
pub async fn run(arguments: KeyArguments) -> anyhow::Result<Outcome> {
    let KeyArguments {
        target,
        json,
        command,
    } = arguments;
    with_session(&target, json, async |session| {
        execute(session, command).await
    })
    .await
}

/// Runs the command in an open session.
///
/// # Errors
/// As [`run`].
pub async fn execute(session: &mut Session<'_>, command: KeyCommand) -> anyhow::Result<Outcome> {
    match command {
        KeyCommand::Create(arguments) => issue::create(session, arguments).await,
        KeyCommand::Import(arguments) => issue::import(session, arguments).await,
        KeyCommand::Rotate(arguments) => issue::rotate(session, arguments).await,
        KeyCommand::List(arguments) => list(session, &arguments).await,
        KeyCommand::Show { key } => show(session, &key).await,
        KeyCommand::Grant(arguments) => change::grant(session, &arguments).await,
        KeyCommand::Revoke(arguments) => change::revoke(session, &arguments).await,
        KeyCommand::Enable { key } => change::enable(session, &key).await,
        KeyCommand::Disable {
            key,
            allow_unaudited,
        } => change::disable(session, &key, allow_unaudited).await,
        KeyCommand::Expire(arguments) => change::expire(session, &arguments).await,
        KeyCommand::Usage(arguments) => usage::usage(session, &arguments).await,
    }
}

async fn list(session: &mut Session<'_>, arguments: &ListArguments) -> anyhow::Result<Outcome> {
    let now = session.clock.now();
    let mut records = session.target.keys()?.list().await?;
    let all = records.len();
    records.retain(|record| arguments.all || life_cycle::ending(record, now).is_none());
    let ended = all - records.len();
    if let Some(owner) = &arguments.owner {
        records.retain(|record| record.owner.as_ref() == Some(owner));
    }
    let order = |record: &KeyRecord| (record.created_at, record.key_id.clone());
    records.sort_by_key(order);
    let items = records
        .iter()
        .map(|record| KeyView::of(record, now))
        .collect();
    session.show(&Items { items }, || view::list(&records, now))?;
    if ended > 0 && !session.json {
        session.console.note(text!(
            "Not shown: {ended} that have ended (--all shows them)",
            ended
        ));
    }
    Ok(Outcome::Done)
}

async fn show(session: &mut Session<'_>, named: &str) -> anyhow::Result<Outcome> {
    let keys = session.target.keys()?;
    let record = find(&keys, session.console, named).await?.record;
    let now = session.clock.now();
    session.show(&KeyView::of(&record, now), || view::describe(&record, now))?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests;
