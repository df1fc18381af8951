//! `raglan audit`: reads, verifies and mends the audit trail. [`selection`] finds events, [`view`] shows
//! them.

pub mod arguments;
mod csv;
mod export;
mod query;
mod recover;
pub(crate) mod selection;
pub(crate) mod tail;
mod verify;
pub mod view;

use self::arguments::{AuditArguments, AuditCommand};
use crate::Outcome;
use crate::session::{Session, with_session};

/// Runs the command.
///
/// # Errors
/// One line; see [`crate::failure`] for the exit codes.
pub async fn run(arguments: AuditArguments) -> anyhow::Result<Outcome> {
    let AuditArguments {
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
pub async fn execute(session: &mut Session<'_>, command: AuditCommand) -> anyhow::Result<Outcome> {
    match command {
        AuditCommand::Tail(arguments) => tail::tail(session, &arguments).await,
        AuditCommand::Query(arguments) => query::query(session, &arguments).await,
        AuditCommand::Export(arguments) => export::export(session, &arguments).await,
        AuditCommand::Verify(arguments) => verify::verify(session, &arguments).await,
        AuditCommand::Recover(arguments) => recover::recover(session, &arguments).await,
    }
}

#[cfg(test)]
mod tests;
