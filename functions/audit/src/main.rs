//! Lambda entry point of the audit function.

use std::process::ExitCode;
use std::sync::Arc;

use lambda_runtime::{LambdaEvent, service_fn};
use raglan_audit::archive::{Archive, Bucket};
use raglan_audit::call::{Call, Function, time_left};
use raglan_audit::closing::Closer;
use raglan_audit::config::Config;
use raglan_audit::handler::Handler;
use raglan_aws::{AwsClients, function_account};
use raglan_core::clock::{Clock as _, SystemClock};
use raglan_core::random::SystemRandom;
use raglan_store::{AuditTable, AuditWriter, DeadLetterQueue};
use raglan_telemetry::log;
use raglan_telemetry::metrics::{self, StandardOutput};

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
    metrics::install(Box::new(StandardOutput {
        function_name: std::env::var("AWS_LAMBDA_FUNCTION_NAME").unwrap_or_else(|_| "audit".into()),
    }));
    let account = function_account();
    let clients = AwsClients::of_account(&account);
    let archive = match config.audit_roots_bucket {
        Some(name) => Archive::Bucket(Bucket::new(&account, name)),
        None => Archive::Log,
    };
    let table = AuditTable::new(clients.dynamodb, config.audit_table);
    let days = config.retention_days;
    let closer = Closer::new(table.clone(), archive, days, Arc::new(SystemClock));
    let writer = AuditWriter::new(table, days, Arc::new(SystemClock), Arc::new(SystemRandom));
    let dead_letters = DeadLetterQueue::new(clients.sqs, config.audit_dead_letter_queue_url);
    let function = &Function {
        handler: Handler::new(writer, dead_letters),
        closer,
    };
    let service = service_fn(move |event: LambdaEvent<Call>| async move {
        let time_left = time_left(event.context.deadline, SystemClock.now());
        let answer = function.handle(event.payload, time_left).await;
        answer.map_err(|error| error.to_string())
    });
    match lambda_runtime::run(service).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the runtime ended");
            ExitCode::FAILURE
        }
    }
}
