//! The audit trail. Partition `<key id>#<day>`, sort key `event_id`; the index `day-index` holds the
//! events of all keys by day. Entries end by TTL.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use raglan_core::audit::AuditEvent;
use raglan_core::clock::Timestamp;
use serde_json::{Map, Value};

use crate::error::StoreError;
use crate::table::{decode_all, encode, text};

const PARTITION: &str = "partition";
const EVENT_ID: &str = "event_id";
const DAY: &str = "day";
const EXPIRES_AT: &str = "expires_at";
const DAY_INDEX: &str = "day-index";
/// Largest item, in bytes: DynamoDB's limit is 400 KB with all names and values, and both keys are
/// stored once more in the index.
pub const MAX_ITEM_BYTES: usize = 390_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// An event together with everything that its writer sent, so that fields of a newer writer are
/// stored although this version does not know them.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditRecord {
    event: AuditEvent,
    fields: Map<String, Value>,
    size_bytes: usize,
}

/// The text is not the JSON of an audit event that this version understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an audit event: {0}")]
pub struct NotAnAuditEvent(&'static str);

impl AuditRecord {
    /// Reads an event as it comes out of the queue. Unknown fields are kept. An event that lacks a
    /// known field, or gives it another meaning, is refused: it stays in the queue, and from there
    /// goes to the dead-letter queue until a version that understands it takes it.
    ///
    /// # Errors
    /// [`NotAnAuditEvent`].
    pub fn parse(body: &str) -> Result<Self, NotAnAuditEvent> {
        let fields: Map<String, Value> =
            serde_json::from_str(body).map_err(|_| NotAnAuditEvent("not a JSON object"))?;
        let event: AuditEvent = serde_json::from_str(body)
            .map_err(|_| NotAnAuditEvent("a field is missing or of an unexpected kind"))?;
        if event.event_id.is_empty() {
            return Err(NotAnAuditEvent("the event's identifier is empty"));
        }
        Ok(Self {
            event,
            fields,
            size_bytes: body.len(),
        })
    }

    /// The part that this version knows.
    #[must_use]
    pub const fn event(&self) -> &AuditEvent {
        &self.event
    }
}

/// What [`AuditTable::put`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// The event was not there before.
    New,
    /// The event was there already: it was delivered twice.
    AlreadyThere,
}

/// The audit table.
#[derive(Debug, Clone)]
pub struct AuditTable {
    client: Client,
    table: String,
}

impl AuditTable {
    /// The table of that name.
    #[must_use]
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self {
            client,
            table: table.into(),
        }
    }

    /// Stores an event once, for `retention_days` from the moment it happened. An event that is
    /// there already is left as it is.
    ///
    /// # Errors
    /// [`StoreError`]; `TooLarge` when it cannot fit into an item.
    pub async fn put(
        &self,
        record: &AuditRecord,
        retention_days: u32,
    ) -> Result<Stored, StoreError> {
        if record.size_bytes > MAX_ITEM_BYTES {
            return Err(StoreError::TooLarge {
                resource: self.table.clone(),
                size_bytes: record.size_bytes,
                limit_bytes: MAX_ITEM_BYTES,
            });
        }
        let event = &record.event;
        let retention_seconds = i64::from(retention_days) * SECONDS_PER_DAY;
        let expires_at = event.at.plus_seconds(retention_seconds).epoch_seconds();
        let mut item = encode(&self.table, &event.event_id, &record.fields)?;
        item.insert(PARTITION.to_owned(), text(event.partition()));
        item.insert(DAY.to_owned(), text(event.at.day()));
        item.insert(
            EXPIRES_AT.to_owned(),
            AttributeValue::N(expires_at.to_string()),
        );
        let answer = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(event_id)")
            .send()
            .await;
        match answer.map_err(|error| StoreError::of_call("PutItem", &self.table, &error)) {
            Ok(_) => Ok(Stored::New),
            Err(StoreError::Conflict { .. }) => Ok(Stored::AlreadyThere),
            Err(error) => Err(error),
        }
    }

    /// Events of all keys on one day (UTC, `YYYY-MM-DD`), oldest first, only those after
    /// `after_event_id`. One call returns at most 1 MB; ask again with the last identifier until
    /// nothing comes. The index follows the table within moments, in no particular order.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn by_day(
        &self,
        day: &str,
        after_event_id: Option<&str>,
    ) -> Result<Vec<AuditEvent>, StoreError> {
        self.page(Some(DAY_INDEX), DAY, day, after_event_id).await
    }

    /// Events of one key on the day of `at`, oldest first, only those after `after_event_id`; in
    /// pages like [`AuditTable::by_day`], but as the table is now. `key` is a key's identifier, or
    /// the fingerprint under which a key that is not known was seen.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn by_key(
        &self,
        key: &str,
        at: Timestamp,
        after_event_id: Option<&str>,
    ) -> Result<Vec<AuditEvent>, StoreError> {
        let partition = format!("{key}#{}", at.day());
        self.page(None, PARTITION, &partition, after_event_id).await
    }

    async fn page(
        &self,
        index: Option<&str>,
        attribute: &str,
        value: &str,
        after_event_id: Option<&str>,
    ) -> Result<Vec<AuditEvent>, StoreError> {
        let mut condition = "#partition = :partition";
        let mut values = HashMap::from([(":partition".to_owned(), text(value))]);
        if let Some(after) = after_event_id.filter(|after| !after.is_empty()) {
            condition = "#partition = :partition AND event_id > :after";
            values.insert(":after".to_owned(), text(after));
        }
        let mut pages = self
            .client
            .query()
            .table_name(&self.table)
            .set_index_name(index.map(ToOwned::to_owned))
            .consistent_read(index.is_none())
            .key_condition_expression(condition)
            .expression_attribute_names("#partition", attribute)
            .set_expression_attribute_values(Some(values))
            .into_paginator()
            .send();
        // A page of nothing but unreadable records must not look like the end.
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| StoreError::of_call("Query", &self.table, &error))?;
            let events = decode_all(&self.table, EVENT_ID, page.items.unwrap_or_default());
            if !events.is_empty() {
                return Ok(events);
            }
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{
        Key, audit_event, clients_at, create_table, local_dynamodb, nobody_listens,
    };

    const RETENTION_DAYS: u32 = 400;

    async fn table() -> AuditTable {
        let client = local_dynamodb().await;
        let index = Key::of(DAY, Some(EVENT_ID)).index(DAY_INDEX);
        create_table(
            &client,
            "audit",
            &Key::of(PARTITION, Some(EVENT_ID)),
            Some(&index),
        )
        .await;
        AuditTable::new(client, "audit")
    }

    fn record(event: &AuditEvent) -> AuditRecord {
        AuditRecord::parse(&serde_json::to_string(event).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn an_event_that_is_delivered_twice_is_stored_once() {
        let table = table().await;
        let event = audit_event("event-1");
        assert_eq!(
            table.put(&record(&event), RETENTION_DAYS).await,
            Ok(Stored::New)
        );
        let later = AuditEvent {
            http_status: 500,
            ..event.clone()
        };
        assert_eq!(
            table.put(&record(&later), RETENTION_DAYS).await,
            Ok(Stored::AlreadyThere)
        );
        let day = event.at.day();
        assert_eq!(table.by_day(&day, None).await, Ok(vec![event]));
    }

    #[tokio::test]
    async fn a_trail_is_followed_from_the_last_event_on() {
        let table = table().await;
        for id in ["event-3", "event-1", "event-2"] {
            table
                .put(&record(&audit_event(id)), RETENTION_DAYS)
                .await
                .unwrap();
        }
        let at = audit_event("event-1").at;
        let ids = |events: Vec<AuditEvent>| -> Vec<String> {
            events.into_iter().map(|event| event.event_id).collect()
        };
        let all = table.by_day(&at.day(), None).await.unwrap();
        assert_eq!(ids(all), ["event-1", "event-2", "event-3"]);
        let rest = table.by_day(&at.day(), Some("event-2")).await.unwrap();
        assert_eq!(ids(rest), ["event-3"]);
        let of_key = table.by_key("key-1", at, Some("event-1")).await.unwrap();
        assert_eq!(ids(of_key), ["event-2", "event-3"]);
        assert_eq!(table.by_key("key-2", at, None).await, Ok(Vec::new()));
        assert_eq!(table.by_day("2020-01-01", None).await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn fields_of_a_newer_writer_are_stored_and_the_expiry_counts_from_the_event() {
        let table = table().await;
        let event = audit_event("event-1");
        let mut json = serde_json::to_value(&event).unwrap();
        json["schema_version"] = 2.into();
        json["cost"] = serde_json::json!({"tokens": 12});
        json["expires_at"] = "never".into();
        let newer = AuditRecord::parse(&json.to_string()).unwrap();
        table.put(&newer, RETENTION_DAYS).await.unwrap();

        let scan = table
            .client
            .scan()
            .table_name("audit")
            .send()
            .await
            .unwrap();
        let item = &scan.items()[0];
        let cost = item["cost"].as_m().unwrap();
        assert_eq!(cost["tokens"], AttributeValue::N("12".to_owned()));
        let end = event.at.plus_seconds(400 * SECONDS_PER_DAY).epoch_seconds();
        assert_eq!(item[EXPIRES_AT], AttributeValue::N(end.to_string()));
    }

    #[tokio::test]
    async fn an_event_that_no_item_can_hold_is_refused_without_asking_the_table() {
        let table = AuditTable::new(clients_at(&nobody_listens().await).dynamodb, "audit");
        let event = AuditEvent {
            parameters: Some("x".repeat(MAX_ITEM_BYTES)),
            ..audit_event("event-1")
        };
        let error = table
            .put(&record(&event), RETENTION_DAYS)
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    }

    #[test]
    fn what_is_no_event_is_refused() {
        for body in ["", "null", "[]", "{}", r#"{"event_id":"x"}"#, "{"] {
            assert!(AuditRecord::parse(body).is_err(), "{body}");
        }
        let nameless = AuditEvent {
            event_id: String::new(),
            ..audit_event("x")
        };
        assert!(AuditRecord::parse(&serde_json::to_string(&nameless).unwrap()).is_err());
    }

    proptest! {
        #[test]
        fn no_message_makes_the_parser_panic(body in ".*") {
            let _ = AuditRecord::parse(&body);
        }
    }
}
