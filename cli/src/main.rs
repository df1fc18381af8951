//! The command line's entry point.

use std::process::ExitCode;

use clap::Parser as _;
use raglan_cli::arguments::Arguments;
use raglan_cli::{run, terminal};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let level = std::env::var("LOG_LEVEL").unwrap_or_else(|_| "error".to_owned());
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(arguments).await {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            terminal::warn(format_args!("raglan: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
