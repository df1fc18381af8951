//! Lambda entry point of the MCP function.

use std::process::ExitCode;

use raglan_mcp::{lambda, start};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `EX_USAGE` of sysexits.h.
const BAD_CONFIGURATION: u8 = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let app = match start::app_from_environment() {
        Ok(app) => app,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(BAD_CONFIGURATION);
        }
    };
    app.warm_up().await;
    match lambda::run(app).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the runtime ended");
            ExitCode::FAILURE
        }
    }
}
