//! The command line's entry point.

use std::process::ExitCode;

use clap::Parser as _;
use raglan_cli::arguments::Arguments;
use raglan_cli::{failure, run, terminal};
use raglan_telemetry::log;
use raglan_telemetry::settings::{BadSettings, Settings};
use tracing::Level;
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
            terminal::warn(format_args!("raglan: {error:#}"));
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
    let level = settings.finish(named)?.unwrap_or(Level::ERROR);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(lines)
        .with(log::filter(level))
        .init();
    Ok(())
}
