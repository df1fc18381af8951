//! What happens once, before the first request.

use std::sync::Arc;

use raglan_aws::{AwsClients, LazyAccount, function_account};
use raglan_core::clock::SystemClock;
use raglan_core::random::SystemRandom;
use raglan_engines::call::Surroundings;
use raglan_telemetry::log;
use raglan_telemetry::metrics::{self, StandardOutput};
use raglan_telemetry::settings::BadSettings;

use crate::answers::Answers;
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
    let account = function_account();
    let clients = AwsClients::of_account(&account);
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let surroundings = Surroundings::of_account(
        LazyAccount::loaded(account),
        Arc::clone(&clock) as _,
        Arc::clone(&random) as _,
    );
    let backends = Backends::from_config(&config, &surroundings)
        .map_err(|error| BadSettings(vec![error.to_string()]))?;
    let answers = Answers::from_config(config.answers.as_ref(), &surroundings)?;
    Ok(App::new(config, &clients, backends, answers, clock, random))
}
