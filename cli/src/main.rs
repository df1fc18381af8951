//! The command line's entry point.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser as _;
use raglan_cli::arguments::Arguments;
use raglan_cli::{failure, run, terminal};
use raglan_telemetry::log;
use raglan_telemetry::settings::{BadSettings, Settings};
use tracing::Level;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = log_to_standard_error() {
        terminal::warn(format_args!("raglan: {error}"));
        return ExitCode::FAILURE;
    }
    match run(arguments).await {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            terminal::warn(format_args!("raglan: {}", terminal::one_line(&error)));
            failure::outcome_of(&error).into()
        }
    }
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
