//! `raglan`: everything that people do at a terminal. [`arguments`] says what there is; [`dev`] runs
//! the local system out of the pieces in [`local`]; [`index`] makes knowledge bases.

pub mod arguments;
pub mod connect;
pub mod dev;
pub mod http_client;
pub mod index;
pub mod local;
pub mod system;
pub mod terminal;

use std::process::ExitCode;

use crate::arguments::{Arguments, Command};

/// How a command ended; the exit codes are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of it worked: 0.
    Done,
    /// It did not work: 1.
    Failed,
    /// It worked, but something was left out: 3. (2 is a wrong command line.)
    Incomplete,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Failed => Self::FAILURE,
            Outcome::Incomplete => Self::from(3),
        }
    }
}

/// Runs a command.
///
/// # Errors
/// One line for a person: what went wrong and what to do.
pub async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    match arguments.command {
        Command::Dev(arguments) => dev::run(arguments).await,
        Command::Index(arguments) => index::run(arguments).await,
    }
}
