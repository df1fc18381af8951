//! One batch of the audit queue. Each record stands for itself: whatever happens to one, the others
//! are stored, and only the failed one is reported back, delivered again, and in the end kept in the
//! dead-letter queue.

use std::panic::AssertUnwindSafe;

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use futures::FutureExt;
use futures::future::join_all;
use raglan_store::audit_table::{NotAnAuditEvent, Stored};
use raglan_store::{AuditRecord, AuditTable, StoreError};

/// Why one record was not stored.
#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error("the message has no body")]
    NoBody,
    #[error(transparent)]
    NotAnAuditEvent(#[from] NotAnAuditEvent),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the program failed while it handled this record")]
    Panic,
}

/// Stores audit events.
#[derive(Debug, Clone)]
pub struct Handler {
    table: AuditTable,
    retention_days: u32,
}

impl Handler {
    /// Stores into `table`, each event for `retention_days`.
    #[must_use]
    pub const fn new(table: AuditTable, retention_days: u32) -> Self {
        Self {
            table,
            retention_days,
        }
    }

    /// Stores all records of a batch at the same time and names those that must come again.
    ///
    /// A failed record without an identifier is reported with an empty one: Lambda then delivers the
    /// whole batch again, which is harmless, because an event is stored only once.
    pub async fn handle(&self, batch: SqsEvent) -> SqsBatchResponse {
        settle(&batch.records, |record| self.store(record)).await
    }

    async fn store(&self, record: &SqsMessage) -> Result<Stored, RecordError> {
        let body = record.body.as_deref().ok_or(RecordError::NoBody)?;
        let event = AuditRecord::parse(body)?;
        Ok(self.table.put(&event, self.retention_days).await?)
    }
}

async fn settle<'a, F>(
    records: &'a [SqsMessage],
    store: impl Fn(&'a SqsMessage) -> F,
) -> SqsBatchResponse
where
    F: Future<Output = Result<Stored, RecordError>>,
{
    let results = join_all(records.iter().map(|record| {
        // What a panic may leave half-done belongs to this record alone.
        AssertUnwindSafe(store(record)).catch_unwind()
    }))
    .await;
    let mut response = SqsBatchResponse::default();
    for (record, result) in records.iter().zip(results) {
        let message_id = record.message_id.clone().unwrap_or_default();
        match result.unwrap_or(Err(RecordError::Panic)) {
            Ok(Stored::New) => tracing::debug!(message_id, "stored"),
            Ok(Stored::AlreadyThere) => tracing::info!(message_id, "stored already"),
            Err(error) => {
                tracing::error!(message_id, %error, "an audit event was not stored");
                response.add_failure(message_id);
            }
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::{
        AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    };
    use raglan_store::AwsClients;
    use serde_json::{Value, json};

    use super::*;

    fn event(id: &str) -> Value {
        json!({
            "schema_version": 1, "event_id": id, "at": "2026-11-30T08:15:00.000Z",
            "request_id": "r", "decision": "allowed", "http_status": 200, "key_id": "key-1",
            "duration_ms": 3,
        })
    }

    fn batch(bodies: &[String]) -> SqsEvent {
        let records: Vec<_> = bodies
            .iter()
            .enumerate()
            .map(|(n, body)| json!({"messageId": format!("m{n}"), "body": body}))
            .collect();
        serde_json::from_value(json!({ "Records": records })).unwrap()
    }

    fn failed(response: &SqsBatchResponse) -> Vec<&str> {
        let failures = response.batch_item_failures.iter();
        failures
            .map(|failure| failure.item_identifier.as_str())
            .collect()
    }

    async fn handler() -> (Handler, aws_sdk_dynamodb::Client) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let database = dynoxide::Database::memory().unwrap();
        tokio::spawn(dynoxide::server::serve_on(listener, database));
        let client = AwsClients::for_local_endpoints(&url, &url).dynamodb;
        let mut create = client.create_table().table_name("audit");
        for (name, kind) in [("partition", KeyType::Hash), ("event_id", KeyType::Range)] {
            let definition = AttributeDefinition::builder().attribute_name(name);
            let element = KeySchemaElement::builder()
                .attribute_name(name)
                .key_type(kind);
            create = create
                .attribute_definitions(
                    definition
                        .attribute_type(ScalarAttributeType::S)
                        .build()
                        .unwrap(),
                )
                .key_schema(element.build().unwrap());
        }
        create
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await
            .unwrap();
        (
            Handler::new(AuditTable::new(client.clone(), "audit"), 400),
            client,
        )
    }

    #[tokio::test]
    async fn one_bad_record_does_not_hold_back_the_others() {
        let (handler, client) = handler().await;
        let bodies = [
            event("e1").to_string(),
            "no json".to_owned(),
            event("e2").to_string(),
            json!({"event_id": "e3"}).to_string(),
        ];
        let running = tokio::spawn(async move { handler.handle(batch(&bodies)).await });
        assert_eq!(failed(&running.await.unwrap()), ["m1", "m3"]);
        let stored = client.scan().table_name("audit").send().await.unwrap();
        assert_eq!(stored.count(), 2);
    }

    #[tokio::test]
    async fn a_batch_that_is_delivered_twice_is_stored_once_and_succeeds() {
        let (handler, client) = handler().await;
        let bodies = [
            event("e1").to_string(),
            event("e1").to_string(),
            event("e2").to_string(),
        ];
        for _ in 0..2 {
            let response = handler.handle(batch(&bodies)).await;
            assert_eq!(failed(&response), [""; 0]);
        }
        let stored = client.scan().table_name("audit").send().await.unwrap();
        assert_eq!(stored.count(), 2);
    }

    #[tokio::test]
    async fn a_panic_in_one_record_is_that_records_failure() {
        let batch = batch(&["good".into(), "bad".into()]);
        let response = settle(&batch.records, async |record| {
            assert_ne!(record.body.as_deref(), Some("bad"));
            Ok(Stored::New)
        })
        .await;
        assert_eq!(failed(&response), ["m1"]);
    }

    #[tokio::test]
    async fn every_record_comes_again_when_the_table_does_not_answer() {
        let nobody = "http://127.0.0.1:9";
        let client = AwsClients::for_local_endpoints(nobody, nobody).dynamodb;
        let handler = Handler::new(AuditTable::new(client, "audit"), 400);
        let bodies = [event("e1").to_string(), event("e2").to_string()];
        let response = handler.handle(batch(&bodies)).await;
        assert_eq!(failed(&response), ["m0", "m1"]);
    }

    #[tokio::test]
    async fn a_failed_record_without_an_identifier_brings_the_whole_batch_again() {
        let (handler, _) = handler().await;
        let batch = serde_json::from_value(json!({"Records": [{"body": "no json"}]})).unwrap();
        assert_eq!(failed(&handler.handle(batch).await), [""]);
    }
}
