//! Writes events into the audit trail: each one once, linked into the chain of its key and day.
//!
//! One `TransactWriteItems` moves the chain's head and puts the events behind it, all or nothing, so a
//! writer that dies leaves no half-linked chain, and two writers cannot take the same place: the second
//! one finds another head, reads it, and links anew. Events of one chain that come together share a
//! transaction and with it one move of the head.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsInput;
use aws_sdk_dynamodb::types::builders::PutBuilder;
use aws_sdk_dynamodb::types::{Put, TransactWriteItem};
use raglan_core::audit_chain::{Head, link};
use raglan_core::clock::{Clock, Timestamp};
use raglan_core::random::Random;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep, timeout_at};

use crate::audit_record::AuditRecord;
use crate::audit_table::{
    AuditTable, DAY, EVENT_ID, EXPIRES_AT, HEAD_HASH, HEAD_SEQUENCE, OWNER_DAY, PARTITION,
    chain_partition, day_shard, heads_partition, number, open_partition, open_sort, owner_day,
};
use crate::error::StoreError;
use crate::table::{Item, encode, text};

const SECONDS_PER_DAY: i64 = 86_400;
/// Events of one transaction, which can have 100 parts; two of them are the head and the mark of an
/// open chain.
const MAX_EVENTS: usize = 90;
/// Bytes of events in one transaction, which can have 4 MB.
const MAX_BYTES: usize = 3_000_000;
/// The pause before the second attempt, at most; it doubles from there on.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// The event was not there before.
    New,
    /// The event was there already: it was delivered twice.
    AlreadyThere,
}

/// Writes into the audit table.
#[derive(Clone)]
pub struct AuditWriter {
    table: AuditTable,
    retention_days: u32,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// Why a transaction did nothing.
enum Cancelled {
    /// One reason for each of its parts: `None` where nothing was wrong.
    Parts(Vec<Option<String>>),
    /// The call itself failed.
    Call(StoreError),
}

impl AuditWriter {
    /// Writes into `table`, each event for `retention_days` from the moment it happened.
    #[must_use]
    pub fn new(
        table: AuditTable,
        retention_days: u32,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self {
            table,
            retention_days,
            clock,
            random,
        }
    }

    /// The table.
    #[must_use]
    pub const fn table(&self) -> &AuditTable {
        &self.table
    }

    /// Stores events of one partition ([`raglan_core::audit::AuditEvent::partition`]) in the given
    /// order, each one once: an event that is there already is left as it is. What other writers,
    /// throttling or an unreachable table get in the way of is tried again until `until`. The results
    /// are those of the events, one by one; an event whose result is an error may be stored all the same.
    pub async fn append(
        &self,
        events: &[&AuditRecord],
        until: Instant,
    ) -> Vec<Result<Stored, StoreError>> {
        let mut results = Vec::with_capacity(events.len());
        let mut rest = events;
        while !rest.is_empty() {
            let (part, others) = rest.split_at(transaction_length(rest));
            results.extend(Box::pin(self.append_part(part, until)).await);
            rest = others;
        }
        results
    }

    async fn append_part(
        &self,
        events: &[&AuditRecord],
        until: Instant,
    ) -> Vec<Result<Stored, StoreError>> {
        let mut results = vec![Ok(Stored::New); events.len()];
        let mut waiting: Vec<usize> = Vec::new();
        for (n, event) in events.iter().enumerate() {
            let id = &event.event().event_id;
            // A transaction must not name the same item twice.
            if waiting
                .iter()
                .any(|&other| &events[other].event().event_id == id)
            {
                results[n] = Ok(Stored::AlreadyThere);
            } else {
                waiting.push(n);
            }
        }
        let mut attempt = 1;
        while !waiting.is_empty() {
            let parts: Vec<_> = waiting.iter().map(|&n| events[n]).collect();
            let error = match timeout_at(until, self.transact(&parts)).await {
                Ok(Ok(())) => return results,
                Err(_elapsed) => self.out_of_time(),
                // One of them, and the call does not say which.
                Ok(Err(Cancelled::Call(StoreError::Refused { .. }))) if waiting.len() > 1 => {
                    for &n in &waiting {
                        let alone = Box::pin(self.append_part(&events[n..=n], until)).await;
                        results.splice(n..=n, alone);
                    }
                    return results;
                }
                Ok(Err(Cancelled::Call(error))) => error,
                Ok(Err(Cancelled::Parts(reasons))) => {
                    let before = waiting.len();
                    let mut reason_of = reasons.iter().skip(1);
                    waiting.retain(|&n| match reason_of.next().and_then(Option::as_deref) {
                        Some("ConditionalCheckFailed" | "DuplicateItem") => {
                            results[n] = Ok(Stored::AlreadyThere);
                            false
                        }
                        Some(code @ ("ValidationError" | "ItemCollectionSizeLimitExceeded")) => {
                            results[n] = Err(self.refused(code));
                            false
                        }
                        _ => true,
                    });
                    if waiting.len() < before {
                        continue;
                    }
                    self.obstacle(&reasons)
                }
            };
            let can_help = error.is_transient() || matches!(error, StoreError::Conflict { .. });
            let pause = self.pause(attempt);
            if !can_help || Instant::now() + pause >= until {
                for &n in &waiting {
                    results[n] = Err(error.clone());
                }
                return results;
            }
            sleep(pause).await;
            attempt += 1;
        }
        results
    }

    /// One transaction: the head, the events, and the mark of a chain that is new or late.
    async fn transact(&self, events: &[&AuditRecord]) -> Result<(), Cancelled> {
        let Some((key, day)) = events.first().map(|event| chain_of(event)) else {
            return Ok(());
        };
        let before = self.table.head(&key, &day).await.map_err(Cancelled::Call)?;
        let mut head = before;
        let mut parts = Vec::with_capacity(events.len() + 2);
        for event in events {
            let item = self
                .linked(event, &key, &day, &mut head)
                .map_err(Cancelled::Call)?;
            parts.push(
                self.put(item)
                    .condition_expression("attribute_not_exists(event_id)"),
            );
        }
        parts.insert(0, self.head_put(&key, &day, before, head));
        if before == Head::START || day < self.clock.now().day() {
            let mut mark = self.chain_item(&open_partition(&key), &open_sort(&key, &day), &day);
            mark.insert(HEAD_SEQUENCE.to_owned(), number(head.sequence));
            parts.push(self.put(mark));
        }
        let parts: Result<Vec<_>, _> = parts.into_iter().map(PutBuilder::build).collect();
        let parts = parts.map_err(|_| Cancelled::Call(self.refused("incomplete")))?;
        let answer = self
            .table
            .client
            .send(
                TransactWriteItemsInput::builder()
                    .set_transact_items(Some(
                        parts
                            .into_iter()
                            .map(|put| TransactWriteItem::builder().put(put).build())
                            .collect(),
                    ))
                    .build(),
            )
            .await;
        let Err(error) = answer else {
            return Ok(());
        };
        if let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
            error.as_service_error()
            && !cancelled.cancellation_reasons().is_empty()
        {
            let reasons = cancelled.cancellation_reasons().iter();
            return Err(Cancelled::Parts(
                reasons
                    .map(|reason| reason.code().filter(|code| *code != "None"))
                    .map(|code| code.map(ToOwned::to_owned))
                    .collect(),
            ));
        }
        Err(Cancelled::Call(StoreError::of_transaction(
            &self.table.table,
            &error,
        )))
    }

    /// The event as it is stored, linked behind `head`, which it moves.
    fn linked(
        &self,
        record: &AuditRecord,
        key: &str,
        day: &str,
        head: &mut Head,
    ) -> Result<Item, StoreError> {
        let event = record.event();
        let expires_at = event.at.plus_seconds(self.retention_seconds());
        let mut fields: Map<String, Value> = record.fields().clone();
        let storage: [(&str, Value); 3] = [
            (PARTITION, chain_partition(key, day).into()),
            (DAY, day_shard(&event.event_id, day).into()),
            (EXPIRES_AT, expires_at.epoch_seconds().into()),
        ];
        for (name, value) in storage {
            fields.insert(name.to_owned(), value);
        }
        fields.remove(OWNER_DAY);
        if let Some(owner) = &event.owner {
            fields.insert(OWNER_DAY.to_owned(), owner_day(owner, day).into());
        }
        let next = link(&mut fields, *head);
        let item = encode(&self.table.table, &event.event_id, &fields)?;
        *head = next;
        Ok(item)
    }

    fn head_put(&self, key: &str, day: &str, before: Head, head: Head) -> PutBuilder {
        let mut item = self.chain_item(&heads_partition(key, day), key, day);
        item.insert(HEAD_SEQUENCE.to_owned(), number(head.sequence));
        item.insert(HEAD_HASH.to_owned(), text(head.hash.to_string()));
        let put = self.put(item);
        if before == Head::START {
            return put.condition_expression("attribute_not_exists(event_id)");
        }
        put.condition_expression("#hash = :hash")
            .expression_attribute_names("#hash", HEAD_HASH)
            .expression_attribute_values(":hash", text(before.hash.to_string()))
    }

    /// An item about a chain, which outlives the chain's last event.
    fn chain_item(&self, partition: &str, sort: &str, day: &str) -> Item {
        let begin = Timestamp::parse(day).unwrap_or(Timestamp::from_epoch_seconds(0));
        let expires_at = begin.plus_seconds(SECONDS_PER_DAY + self.retention_seconds());
        Item::from([
            (PARTITION.to_owned(), text(partition)),
            (EVENT_ID.to_owned(), text(sort)),
            (
                EXPIRES_AT.to_owned(),
                aws_sdk_dynamodb::types::AttributeValue::N(expires_at.epoch_seconds().to_string()),
            ),
        ])
    }

    fn put(&self, item: Item) -> PutBuilder {
        Put::builder()
            .table_name(&self.table.table)
            .set_item(Some(item))
    }

    fn retention_seconds(&self) -> i64 {
        i64::from(self.retention_days) * SECONDS_PER_DAY
    }

    fn refused(&self, code: &str) -> StoreError {
        StoreError::Refused {
            operation: "TransactWriteItems",
            resource: self.table.table.clone(),
            code: code.to_owned(),
        }
    }

    fn out_of_time(&self) -> StoreError {
        StoreError::Unavailable {
            operation: "TransactWriteItems",
            resource: self.table.table.clone(),
            cause: "no answer in the time that was left".to_owned(),
        }
    }

    /// What kept a transaction from happening although its events are good.
    fn obstacle(&self, reasons: &[Option<String>]) -> StoreError {
        let operation = "TransactWriteItems";
        let resource = self.table.table.clone();
        let mut codes = reasons.iter().filter_map(Option::as_deref);
        match codes.next() {
            Some("ProvisionedThroughputExceeded" | "ThrottlingError") => StoreError::Throttled {
                operation,
                resource,
            },
            Some("ConditionalCheckFailed" | "TransactionConflict" | "DuplicateItem") | None => {
                StoreError::Conflict {
                    operation,
                    resource,
                }
            }
            Some(code) => self.refused(code),
        }
    }

    /// A random pause, so that writers that met once do not meet again.
    fn pause(&self, attempt: u32) -> Duration {
        let longest = FIRST_PAUSE
            .saturating_mul(1 << attempt.min(8))
            .min(LONGEST_PAUSE);
        let mut byte = [u8::MAX];
        // Without randomness it is the longest pause.
        let _ = self.random.fill(&mut byte);
        longest.mul_f64(f64::from(byte[0]) / 255.0)
    }
}

fn chain_of(record: &AuditRecord) -> (String, String) {
    let partition = record.event().partition();
    match partition.rsplit_once('#') {
        Some((key, day)) => (key.to_owned(), day.to_owned()),
        None => (partition, record.event().at.day()),
    }
}

/// How many of the events fit into one transaction; at least one.
fn transaction_length(events: &[&AuditRecord]) -> usize {
    let mut size_bytes = 0;
    let fitting = events.iter().take(MAX_EVENTS).take_while(|event| {
        size_bytes += event.size_bytes();
        size_bytes <= MAX_BYTES
    });
    fitting.count().max(1)
}

#[cfg(test)]
mod tests;
