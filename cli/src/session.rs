//! What an administrative command works with.

use raglan_core::clock::{Clock, SystemClock};
use raglan_core::random::{Random, SystemRandom};
use serde::Serialize;

use crate::Outcome;
use crate::arguments::TargetArguments;
use crate::ledger::{Ledger, WhenUnrecorded};
use crate::target::{MissingFolder, Target};
use crate::terminal::Console;

/// One command on one deployment.
pub struct Session<'a> {
    /// The deployment.
    pub target: &'a Target,
    /// The operator.
    pub console: &'a mut Console,
    /// Whether results are JSON.
    pub json: bool,
    /// The time.
    pub clock: &'a dyn Clock,
    /// The randomness.
    pub random: &'a dyn Random,
}

impl<'a> Session<'a> {
    /// Who writes down what this command changes.
    ///
    /// # Errors
    /// [`crate::failure::Failure::Refused`] when nothing can be written down.
    pub async fn ledger(&self, when_unrecorded: WhenUnrecorded) -> anyhow::Result<Ledger<'a>> {
        Ledger::open(self.target, when_unrecorded, self.clock, self.random).await
    }

    /// The result, in the form that the operator wants.
    ///
    /// # Errors
    /// Never for the types of this program: they all have a JSON form.
    pub fn show(
        &mut self,
        json: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let shown = if self.json {
            serde_json::to_string_pretty(json)?
        } else {
            text()
        };
        self.console.say(shown);
        Ok(())
    }
}

/// A list as JSON.
#[derive(Debug, Serialize)]
pub struct Items<T> {
    /// All of it.
    pub items: Vec<T>,
}

/// Opens the deployment, runs `command` on it with this process's terminal, and closes it again.
///
/// # Errors
/// What opening, the command or closing fails with.
pub async fn with_session(
    arguments: &TargetArguments,
    json: bool,
    command: impl AsyncFnOnce(&mut Session<'_>) -> anyhow::Result<Outcome>,
) -> anyhow::Result<Outcome> {
    let target = Target::open(arguments, MissingFolder::Refuse).await?;
    let mut session = Session {
        target: &target,
        console: &mut Console::standard(),
        json,
        clock: &SystemClock,
        random: &SystemRandom,
    };
    let outcome = command(&mut session).await;
    target.close().await?;
    outcome
}
