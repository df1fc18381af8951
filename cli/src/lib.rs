//! `raglan`: everything that people do at a terminal. [`arguments`] says what there is; [`dev`] runs
//! the local system out of the pieces in [`local`]; [`index`] makes knowledge bases; [`key`] and [`kb`]
//! administrate a deployment that [`target`] finds, [`ledger`] writes down what they change, and [`audit`]
//! reads it.

pub mod arguments;
pub mod audit;
pub mod bench;
pub mod connect;
pub mod dev;
pub mod doctor;
mod embedding;
pub mod eval;
pub mod failure;
pub mod guard;
pub mod http_client;
pub mod index;
pub mod kb;
pub mod key;
pub mod language;
pub mod ledger;
pub mod local;
pub mod moment;
pub mod search;
pub mod session;
pub mod stdio;
pub mod system;
pub mod target;
pub mod terminal;
#[cfg(test)]
mod testing;

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::arguments::{Arguments, Command, CompletionShell};

/// How a command ended; the exit codes are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of it worked: 0.
    Done,
    /// It did not work: 1.
    Failed,
    /// The command line was wrong: 2.
    Usage,
    /// It worked, but something was left out: 3.
    Incomplete,
    /// What was named is not there: 4.
    NotFound,
    /// A rule forbids it, or nobody confirmed it: 5.
    Refused,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Failed => Self::FAILURE,
            Outcome::Usage => Self::from(2),
            Outcome::Incomplete => Self::from(3),
            Outcome::NotFound => Self::from(4),
            Outcome::Refused => Self::from(5),
        }
    }
}

/// Runs a command.
///
/// # Errors
/// One line for a person: what went wrong and what to do.
pub async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    match arguments.command {
        // Boxed: it holds the whole local system.
        Command::Dev(arguments) => Box::pin(dev::run(arguments)).await,
        Command::Index(arguments) => Box::pin(index::run(arguments)).await,
        Command::Search(arguments) => search::run(arguments).await,
        Command::Eval(arguments) => eval::run(arguments).await,
        Command::Stdio(arguments) => stdio::run(arguments).await,
        Command::Connect(arguments) => connect::run(&arguments),
        Command::Doctor(arguments) => Box::pin(doctor::run(arguments)).await,
        Command::Guard(arguments) => guard::run(&arguments),
        Command::Audit(arguments) => Box::pin(audit::run(arguments)).await,
        Command::Key(arguments) => key::run(arguments).await,
        Command::Kb(arguments) => kb::run(arguments).await,
        Command::Bench(arguments) => bench::run(arguments).await,
        Command::Completions { shell } => {
            terminal::say(completions(shell));
            Ok(Outcome::Done)
        }
    }
}

fn completions(shell: CompletionShell) -> String {
    let shell = match shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "raglan", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_completes_the_commands_of_keys() {
        for shell in [
            CompletionShell::Bash,
            CompletionShell::Zsh,
            CompletionShell::Fish,
        ] {
            let script = completions(shell);
            for word in ["rotate", "revoke", "list_documents"] {
                assert!(script.contains(word), "{shell:?} {word}");
            }
        }
    }
}
