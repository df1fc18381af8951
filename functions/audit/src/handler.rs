//! One batch of the audit queue. Each record stands for itself: whatever happens to one, the others
//! are stored, and only the failed one is reported back and delivered again. What is no audit event
//! would fail each time: it goes to the dead-letter queue at once, with the reason.

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::time::Duration;

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use futures::future::join_all;
use raglan_store::audit_record::NotAnAuditEvent;
use raglan_store::{AuditRecord, AuditWriter, DeadLetterQueue};
use tokio::time::{Instant, timeout_at};

use crate::chains::{self, Done, NotStored, Settled};

/// Left of the platform's time for the answer.
const RESERVED_FOR_THE_ANSWER: Duration = Duration::from_secs(1);

/// Stores audit events.
#[derive(Clone)]
pub struct Handler {
    writer: AuditWriter,
    dead_letters: DeadLetterQueue,
}

/// What a message holds: an event, or the reason why nothing in it can ever be stored.
type Content = Result<AuditRecord, NotAnAuditEvent>;

impl Handler {
    /// Stores with this writer, and puts aside in that queue what is no event.
    #[must_use]
    pub const fn new(writer: AuditWriter, dead_letters: DeadLetterQueue) -> Self {
        Self {
            writer,
            dead_letters,
        }
    }

    /// Stores the records of a batch and names those that must come again. What the table has no time
    /// for is tried again until a second before `time_left` is over.
    ///
    /// A failed record without an identifier is reported with an empty one: Lambda then delivers the
    /// whole batch again, which is harmless, because an event is stored only once.
    pub async fn handle(&self, batch: SqsEvent, time_left: Duration) -> SqsBatchResponse {
        let until = Instant::now() + time_left.saturating_sub(RESERVED_FOR_THE_ANSWER);
        let contents: BTreeMap<usize, Content> = batch
            .records
            .iter()
            .enumerate()
            // A record that the program fails over is none of these: another version may store it.
            .filter_map(|(n, message)| Some((n, content(message)?)))
            .collect();
        let events = contents.iter().filter_map(|(n, content)| {
            let record = content.as_ref().ok()?;
            Some((*n, record))
        });
        let append = async |chain: Vec<&AuditRecord>| self.writer.append(&chain, until).await;
        let set_aside = contents.iter().filter_map(|(n, content)| {
            let reason = content.as_ref().err()?;
            Some(self.set_aside(*n, batch.records.get(*n)?, *reason, until))
        });
        let (mut settled, set_aside) =
            futures::join!(chains::store(events, append), join_all(set_aside));
        settled.extend(set_aside);
        respond(&batch.records, &settled)
    }

    async fn set_aside(
        &self,
        n: usize,
        message: &SqsMessage,
        reason: NotAnAuditEvent,
        until: Instant,
    ) -> (usize, Settled) {
        let body = message.body.as_deref().unwrap_or_default();
        let message_id = message.message_id.as_deref().unwrap_or_default();
        let reason = reason.to_string();
        let kept = self.dead_letters.keep(body, message_id, &reason);
        let settled = match timeout_at(until, kept).await {
            Ok(Ok(())) => Ok(Done::SetAside),
            Ok(Err(error)) => Err(error.into()),
            Err(_elapsed) => Err(NotStored::OutOfTime),
        };
        if settled.is_ok() {
            tracing::error!(message_id, reason, "set aside as a dead letter");
        }
        (n, settled)
    }
}

fn content(message: &SqsMessage) -> Option<Content> {
    let body = message.body.as_deref().unwrap_or_default();
    catch_unwind(|| AuditRecord::parse(body)).ok()
}

fn respond(records: &[SqsMessage], settled: &BTreeMap<usize, Settled>) -> SqsBatchResponse {
    let mut response = SqsBatchResponse::default();
    for (n, message) in records.iter().enumerate() {
        let message_id = message.message_id.clone().unwrap_or_default();
        // What nobody settled has failed.
        let error = match settled.get(&n) {
            Some(Ok(done)) => {
                tracing::debug!(message_id, ?done, "settled");
                continue;
            }
            Some(Err(error)) => error,
            None => &NotStored::Panic,
        };
        tracing::error!(message_id, %error, "an audit event was not stored");
        response.add_failure(message_id);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use raglan_aws::AwsClients;
    use raglan_core::clock::{ManualClock, Timestamp};
    use raglan_core::random::SequenceRandom;
    use raglan_store::AuditTable;
    use serde_json::json;

    use super::*;

    const NOBODY: &str = "http://127.0.0.1:9";

    fn event(id: &str) -> String {
        let event = json!({
            "schema_version": 1, "event_id": id, "at": "2026-11-30T08:15:00.000Z",
            "request_id": "r", "decision": "allowed", "http_status": 200, "key_id": "key-1",
            "duration_ms": 3,
        });
        event.to_string()
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

    /// A handler whose table and queue nobody serves. What it does with emulators is in the crate
    /// `tests`, which makes them from the deployment's template.
    fn handler_without_services() -> Handler {
        let clients = AwsClients::for_local_endpoints(NOBODY, NOBODY);
        let now = Timestamp::parse("2026-11-30T08:15:00.000Z").unwrap();
        let writer = AuditWriter::new(
            AuditTable::new(clients.dynamodb, "audit"),
            400,
            Arc::new(ManualClock::at(now)),
            Arc::new(SequenceRandom::seeded(1)),
        );
        let dead_letters = DeadLetterQueue::new(clients.sqs, format!("{NOBODY}/0/dead"));
        Handler::new(writer, dead_letters)
    }

    #[tokio::test]
    async fn every_record_comes_again_when_neither_the_table_nor_the_queue_answers() {
        let bodies = [event("e1"), "no json".to_owned(), event("e2")];
        let handler = handler_without_services();
        let response = handler.handle(batch(&bodies), Duration::from_secs(2)).await;
        assert_eq!(failed(&response), ["m0", "m1", "m2"]);
    }

    #[tokio::test]
    async fn without_time_nothing_is_tried_and_everything_comes_again() {
        let bodies = [event("e1"), "no json".to_owned()];
        let handler = handler_without_services();
        let response = handler.handle(batch(&bodies), Duration::ZERO).await;
        assert_eq!(failed(&response), ["m0", "m1"]);
    }

    /// `raglan dev` runs it on any of its threads.
    #[test]
    fn a_batch_can_be_handled_on_any_thread() {
        fn is_send(_: impl Send) {}
        let handler = handler_without_services();
        is_send(handler.handle(batch(&[]), Duration::ZERO));
    }

    #[test]
    fn a_record_that_nobody_settled_comes_again() {
        let batch = batch(&[event("e1"), event("e2")]);
        let settled = BTreeMap::from([(0, Ok(Done::New))]);
        assert_eq!(failed(&respond(&batch.records, &settled)), ["m1"]);
    }

    #[test]
    fn a_failed_record_without_an_identifier_brings_the_whole_batch_again() {
        let batch: SqsEvent =
            serde_json::from_value(json!({"Records": [{"body": "no json"}]})).unwrap();
        let response = respond(&batch.records, &BTreeMap::new());
        assert_eq!(failed(&response), [""]);
    }
}
