//! The command line's entry point.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use raglan_cli::arguments::Arguments;
use raglan_cli::{failure, language, run, terminal};
use raglan_telemetry::log;
use raglan_telemetry::settings::{BadSettings, Settings};
use raglan_texts::{LANGUAGE_VARIABLE, choose_process_language};
use tracing::Level;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// A fifth of what the local system does is to allocate, in many threads at once.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    if let Err(error) = read_environment() {
        terminal::warn(format_args!("raglan: {error}"));
        return ExitCode::FAILURE;
    }
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    match run(arguments).await {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            terminal::warn(format_args!("raglan: {}", terminal::one_line(&error)));
            failure::outcome_of(&error).into()
        }
    }
}

/// The command line, with its help in the language that was chosen.
fn arguments() -> Result<Arguments, clap::Error> {
    let command = language::translate_help(Arguments::command(), language::current());
    Arguments::from_arg_matches(&command.try_get_matches()?)
}

/// Chooses the language (`RAGLAN_LANGUAGE`) and opens the log.
fn read_environment() -> Result<(), BadSettings> {
    let mut settings = Settings::new(|name: &str| std::env::var(name).ok());
    let language = settings.language(LANGUAGE_VARIABLE);
    choose_process_language(settings.finish(language)?);
    log_to_standard_error()
}

/// Errors only, unless `LOG_LEVEL` says otherwise: the terminal belongs to the command's own words.
fn log_to_standard_error() -> Result<(), BadSettings> {
    let mut settings = Settings::new(|name: &str| std::env::var(name).ok());
    let named = settings
        .get("LOG_LEVEL")
        .map(|_| settings.log_level("LOG_LEVEL"));
    let named = settings.finish(named)?;
    // The embedded services warn of every request that they refuse, which is a part of starting up.
    let libraries = if named.is_some() {
        LevelFilter::WARN
    } else {
        LevelFilter::ERROR
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(lines)
        .with(log::filter(named.unwrap_or(Level::ERROR), libraries))
        .init();
    Ok(())
}
