//! What happens once, before the first request.

use std::sync::Arc;

use raglan_core::clock::SystemClock;
use raglan_core::random::SystemRandom;
use raglan_store::AwsClients;
use raglan_telemetry::log;
use raglan_telemetry::metrics::{self, StandardOutput};
use raglan_telemetry::settings::BadSettings;

use crate::app::App;
use crate::backends::Backends;
use crate::config::Config;

/// Opens the log and makes the function from its environment variables.
///
/// # Errors
/// [`BadSettings`] with every variable that is off.
pub fn app_from_environment() -> Result<App, BadSettings> {
    let config = Config::from_lookup(|name| std::env::var(name).ok())?;
    log::install(config.log_level);
    metrics::install(Box::new(StandardOutput {
        function_name: std::env::var("AWS_LAMBDA_FUNCTION_NAME").unwrap_or_else(|_| "mcp".into()),
    }));
    let clients = AwsClients::of_function();
    let backends = Backends::from_config(&config);
    Ok(App::new(
        config,
        &clients,
        backends,
        Arc::new(SystemClock),
        Arc::new(SystemRandom),
    ))
}
