//! What happens once, before the first request.

use std::sync::Arc;

use raglan_core::clock::SystemClock;
use raglan_core::random::SystemRandom;
use raglan_store::AwsClients;
use tracing_subscriber::EnvFilter;

use crate::app::App;
use crate::backends::Backends;
use crate::config::{Config, ConfigError};

/// Makes the function from its environment variables.
///
/// # Errors
/// [`ConfigError`] with every variable that is off.
pub async fn app_from_environment() -> Result<App, ConfigError> {
    let config = Config::from_lookup(|name| std::env::var(name).ok())?;
    let clients = AwsClients::from_environment().await;
    let backends = Backends::from_config(&config);
    Ok(App::new(
        config,
        &clients,
        backends,
        Arc::new(SystemClock),
        Arc::new(SystemRandom),
    ))
}

/// One JSON object a line on standard output, which Lambda hands to CloudWatch. `LOG_LEVEL` takes a
/// level or a filter (`info,raglan_mcp=debug`).
pub fn log_in_json() {
    let level = std::env::var("LOG_LEVEL").unwrap_or_else(|_| "info,rmcp=warn".to_owned());
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_current_span(false)
        .with_env_filter(filter)
        .init();
    // The default hook prints the payload, which may hold a caller's or a document's text.
    std::panic::set_hook(Box::new(|panic| {
        let location = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        tracing::error!(location, "panic");
    }));
}
