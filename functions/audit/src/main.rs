//! Lambda entry point of the audit function.

use std::convert::Infallible;
use std::process::ExitCode;

use aws_lambda_events::event::sqs::SqsEvent;
use lambda_runtime::{LambdaEvent, service_fn};
use raglan_audit::config::Config;
use raglan_audit::handler::Handler;
use raglan_store::{AuditTable, AwsClients};
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
    let clients = AwsClients::of_function();
    let table = AuditTable::new(clients.dynamodb, config.audit_table);
    let handler = &Handler::new(table, config.retention_days);
    let service = service_fn(move |event: LambdaEvent<SqsEvent>| async move {
        Ok::<_, Infallible>(handler.handle(event.payload).await)
    });
    match lambda_runtime::run(service).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the runtime ended");
            ExitCode::FAILURE
        }
    }
}
