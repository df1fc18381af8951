//! Lambda entry point of the MCP function.

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;

use lambda_http::{Request, service_fn};
use raglan_mcp::{lambda, start};

/// `EX_USAGE` of sysexits.h.
const BAD_CONFIGURATION: u8 = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let app = match start::app_from_environment().await {
        Ok(app) => Arc::new(app),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(BAD_CONFIGURATION);
        }
    };
    app.warm_up().await;
    let handler = service_fn(move |request: Request| {
        let app = Arc::clone(&app);
        async move { Ok::<_, Infallible>(lambda::handle(&app, request).await) }
    });
    match lambda_http::run(handler).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the runtime ended");
            ExitCode::FAILURE
        }
    }
}
