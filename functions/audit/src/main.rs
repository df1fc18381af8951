//! Lambda entry point of the audit function.

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use aws_lambda_events::event::sqs::SqsEvent;
use lambda_runtime::{LambdaEvent, service_fn};
use raglan_audit::config::Config;
use raglan_audit::handler::Handler;
use raglan_core::clock::{Clock as _, SystemClock};
use raglan_core::random::SystemRandom;
use raglan_store::{AuditTable, AuditWriter, AwsClients, DeadLetterQueue};
use raglan_telemetry::log;

/// `EX_USAGE` of sysexits.h.
const BAD_CONFIGURATION: u8 = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let config = match Config::from_lookup(|name| std::env::var(name).ok()) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(BAD_CONFIGURATION);
        }
    };
    log::install(config.log_level);
    let clients = AwsClients::from_environment().await;
    let table = AuditTable::new(clients.dynamodb, config.audit_table);
    let days = config.retention_days;
    let writer = AuditWriter::new(table, days, Arc::new(SystemClock), Arc::new(SystemRandom));
    let dead_letters = DeadLetterQueue::new(clients.sqs, config.audit_dead_letter_queue_url);
    let handler = &Handler::new(writer, dead_letters);
    let service = service_fn(move |event: LambdaEvent<SqsEvent>| async move {
        let time_left = time_until(event.context.deadline);
        Ok::<_, Infallible>(handler.handle(event.payload, time_left).await)
    });
    match lambda_runtime::run(service).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the runtime ended");
            ExitCode::FAILURE
        }
    }
}

/// From now until `deadline`, in milliseconds since 1970.
fn time_until(deadline: u64) -> Duration {
    let now = u64::try_from(SystemClock.now().epoch_ms()).unwrap_or(0);
    Duration::from_millis(deadline.saturating_sub(now))
}
