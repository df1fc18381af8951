//! The audit trail: what is where, and how it is read. [`crate::audit_append`] writes it.
//!
//! | partition | sort key | what it is |
//! |---|---|---|
//! | `<key>#<day>` | event id | an event; together they are the key's chain of that day |
//! | `heads#<day>#<shard>` | key | how far a chain reaches |
//! | `open#<shard>` | `<day>#<key>` | a chain that no root covers yet |
//!
//! The index `day-index` holds the events of all keys by `<day>#<shard>`, the index `owner-index` those
//! of an owner by `<owner>#<day>`. A shard is chosen by a hash, so that no partition takes all writes.
//! Events from before there were chains are in `day-index` by `<day>` alone, and in no chain and no
//! `owner-index`. Everything ends by TTL. Nothing is ever scanned.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use aws_sdk_dynamodb::operation::delete_item::DeleteItemInput;
use aws_sdk_dynamodb::operation::get_item::GetItemInput;
use aws_sdk_dynamodb::operation::query::QueryInput;
use aws_sdk_dynamodb::operation::query::builders::QueryInputBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use futures::future::try_join_all;
use raglan_aws::{DynamoDb, ServiceClient};
use raglan_core::audit_chain::{ChainRecord, Head};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::audit_record::AuditRecord;
use crate::error::StoreError;
use crate::table::{Item, decode, text};

pub(crate) const PARTITION: &str = "partition";
pub(crate) const EVENT_ID: &str = "event_id";
pub(crate) const DAY: &str = "day";
pub(crate) const OWNER_DAY: &str = "owner_day";
pub(crate) const EXPIRES_AT: &str = "expires_at";
pub(crate) const HEAD_SEQUENCE: &str = "sequence";
pub(crate) const HEAD_HASH: &str = "hash";
const DAY_INDEX: &str = "day-index";
const OWNER_INDEX: &str = "owner-index";
/// Attributes that only the table needs: no part of the event.
pub const STORAGE_ATTRIBUTES: [&str; 4] = [PARTITION, DAY, OWNER_DAY, EXPIRES_AT];
/// Partitions of one day in the index; one takes 1,000 write units a second.
const DAY_SHARDS: u8 = 8;
/// Partitions of the chains' heads of one day, and of all open chains.
const CHAIN_SHARDS: u8 = 16;

/// The part of the trail that one query reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slice<'a> {
    /// All events of a day (UTC, `YYYY-MM-DD`). The index follows the table within moments, in no
    /// particular order.
    Day(&'a str),
    /// The events of one key on a day, as the table is now. The key is its identifier, the fingerprint
    /// under which an unknown one was seen, or what an operator changed (`kb:…`).
    Key(&'a str, &'a str),
    /// The events of an owner's keys on a day, by an index like that of a day.
    Owner(&'a str, &'a str),
}

/// The bounds of a query by event identifier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds<'a> {
    /// Only events with a greater identifier.
    pub after: Option<&'a str>,
    /// Only events with this identifier or a smaller one.
    pub until: Option<&'a str>,
}

/// A chain that no root covers, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenChain {
    /// The day.
    pub day: String,
    /// Whose chain.
    pub key: String,
    sequence: u64,
}

/// The audit table.
#[derive(Debug, Clone)]
pub struct AuditTable {
    pub(crate) client: ServiceClient<DynamoDb>,
    pub(crate) table: String,
}

impl AuditTable {
    /// The table of that name.
    #[must_use]
    pub fn new(client: ServiceClient<DynamoDb>, table: impl Into<String>) -> Self {
        Self {
            client,
            table: table.into(),
        }
    }

    /// The events of a slice, oldest first. One call returns at most a few MB; ask again with the last
    /// identifier as `after` until nothing comes. An event that cannot be read is logged and left out.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn page(
        &self,
        slice: Slice<'_>,
        bounds: Bounds<'_>,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        match slice {
            Slice::Key(key, day) => {
                let query = self.query(None, PARTITION, &chain_partition(key, day));
                Ok(self.one_page(query, bounds).await?.records)
            }
            Slice::Owner(owner, day) => {
                let query = self.query(Some(OWNER_INDEX), OWNER_DAY, &owner_day(owner, day));
                Ok(self.one_page(query, bounds).await?.records)
            }
            Slice::Day(day) => {
                let partitions = day_partitions(day);
                let pages = partitions.iter().map(|partition| {
                    self.one_page(self.query(Some(DAY_INDEX), DAY, partition), bounds)
                });
                Ok(merge(try_join_all(pages).await?))
            }
        }
    }

    /// All events of a slice, for one that is known to be small.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn all(
        &self,
        slice: Slice<'_>,
        bounds: Bounds<'_>,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let mut records: Vec<AuditRecord> = Vec::new();
        loop {
            let last = records.last().map(|record| record.event().event_id.clone());
            let from_there = Bounds {
                after: last.as_deref().or(bounds.after),
                ..bounds
            };
            let page = self.page(slice, from_there).await?;
            if page.is_empty() {
                return Ok(records);
            }
            records.extend(page);
        }
    }

    /// What is needed to verify a chain, in no particular order: every record of the key's partition of
    /// that day, read consistently.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn chain(&self, key: &str, day: &str) -> Result<Vec<ChainRecord>, StoreError> {
        let query = self.query(None, PARTITION, &chain_partition(key, day));
        let mut records = Vec::new();
        self.each_item(query, |item| {
            records.push(ChainRecord::of(&self.fields(item)?));
            Ok(())
        })
        .await?;
        Ok(records)
    }

    /// How far each chain of a day reaches.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn heads(&self, day: &str) -> Result<BTreeMap<String, Head>, StoreError> {
        let mut heads = BTreeMap::new();
        for shard in 0..CHAIN_SHARDS {
            let query = self.query(None, PARTITION, &format!("heads#{day}#{shard}"));
            self.each_item(query, |item| {
                if let Some((key, head)) = head_of(&item) {
                    heads.insert(key, head);
                }
                Ok(())
            })
            .await?;
        }
        Ok(heads)
    }

    /// How far one chain reaches; [`Head::START`] when it has no readable head.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn head(&self, key: &str, day: &str) -> Result<Head, StoreError> {
        let answer = self
            .client
            .send(
                GetItemInput::builder()
                    .table_name(&self.table)
                    .key(PARTITION, text(heads_partition(key, day)))
                    .key(EVENT_ID, text(key))
                    .consistent_read(true)
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_call("GetItem", &self.table, &error))?;
        let head = answer.item.as_ref().and_then(head_of);
        Ok(head.map_or(Head::START, |(_, head)| head))
    }

    /// Whose events the index of a day holds: also events that no chain knows.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn keys_seen(&self, day: &str) -> Result<BTreeSet<String>, StoreError> {
        let mut keys = BTreeSet::new();
        for partition in day_partitions(day) {
            let query = self
                .query(Some(DAY_INDEX), DAY, &partition)
                .projection_expression("#partition, #own")
                .expression_attribute_names("#own", PARTITION);
            self.each_item(query, |item| {
                let partition = item.get(PARTITION).and_then(|value| value.as_s().ok());
                let key = partition.and_then(|partition| partition.rsplit_once('#'));
                keys.extend(key.map(|(key, _)| key.to_owned()));
                Ok(())
            })
            .await?;
        }
        Ok(keys)
    }

    /// The chains of the days before `day` that no root covers to their end.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open_before(&self, day: &str) -> Result<Vec<OpenChain>, StoreError> {
        let mut open = Vec::new();
        for shard in 0..CHAIN_SHARDS {
            let query = self
                .query(None, PARTITION, &format!("open#{shard}"))
                .key_condition_expression("#partition = :partition AND event_id < :day")
                .expression_attribute_values(":day", text(day));
            self.each_item(query, |item| {
                open.extend(open_chain(&item));
                Ok(())
            })
            .await?;
        }
        open.sort_unstable();
        Ok(open)
    }

    /// Notes that a root covers the chain as [`AuditTable::open_before`] saw it. When an event came in
    /// between, the chain stays open.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn mark_closed(&self, chain: &OpenChain) -> Result<(), StoreError> {
        let answer = self
            .client
            .send(
                DeleteItemInput::builder()
                    .table_name(&self.table)
                    .key(PARTITION, text(open_partition(&chain.key)))
                    .key(EVENT_ID, text(open_sort(&chain.key, &chain.day)))
                    .condition_expression("#sequence = :sequence")
                    .expression_attribute_names("#sequence", HEAD_SEQUENCE)
                    .expression_attribute_values(":sequence", number(chain.sequence))
                    .build(),
            )
            .await;
        match answer.map_err(|error| StoreError::of_call("DeleteItem", &self.table, &error)) {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn query(&self, index: Option<&str>, attribute: &str, value: &str) -> QueryInputBuilder {
        QueryInput::builder()
            .table_name(&self.table)
            .set_index_name(index.map(ToOwned::to_owned))
            .consistent_read(index.is_none())
            .key_condition_expression("#partition = :partition")
            .expression_attribute_names("#partition", attribute)
            .expression_attribute_values(":partition", text(value))
    }

    async fn one_page(
        &self,
        query: QueryInputBuilder,
        bounds: Bounds<'_>,
    ) -> Result<Page, StoreError> {
        let mut query = query;
        let mut condition = "#partition = :partition".to_owned();
        let after = bounds.after.filter(|after| !after.is_empty());
        // Only two bounds at once have a form of their own, and that one includes both ends.
        match (after, bounds.until) {
            (Some(after), Some(until)) => {
                condition.push_str(" AND event_id BETWEEN :after AND :until");
                query = query
                    .expression_attribute_values(":after", text(after))
                    .expression_attribute_values(":until", text(until));
            }
            (Some(after), None) => {
                condition.push_str(" AND event_id > :after");
                query = query.expression_attribute_values(":after", text(after));
            }
            (None, Some(until)) => {
                condition.push_str(" AND event_id <= :until");
                query = query.expression_attribute_values(":until", text(until));
            }
            (None, None) => {}
        }
        if after.is_some() && bounds.until.is_some() && after >= bounds.until {
            return Ok(Page::default());
        }
        let mut found = Page::default();
        self.each_page(
            query.key_condition_expression(condition),
            |items, has_more| {
                for item in items {
                    match self.record(item) {
                        Ok(record) if Some(record.event().event_id.as_str()) == after => {}
                        Ok(record) => found.records.push(record),
                        Err(error) => tracing::error!(%error, "a record is left out"),
                    }
                }
                found.has_more = has_more;
                // A page of nothing but unreadable records must not look like the end.
                let is_enough = !found.records.is_empty();
                Ok(if is_enough {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                })
            },
        )
        .await?;
        Ok(found)
    }

    async fn each_item(
        &self,
        query: QueryInputBuilder,
        mut see: impl FnMut(Item) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.each_page(query, |items, _| {
            items.into_iter().try_for_each(&mut see)?;
            Ok(ControlFlow::Continue(()))
        })
        .await
    }

    /// Hands over page after page, and whether another one follows, until `see` has enough.
    async fn each_page(
        &self,
        query: QueryInputBuilder,
        mut see: impl FnMut(Vec<Item>, bool) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let mut next = Some(None);
        while let Some(start) = next {
            let query = query.clone().set_exclusive_start_key(start);
            let page = self.client.send(query.build()).await;
            let page = page.map_err(|error| StoreError::of_call("Query", &self.table, &error))?;
            let has_more = page.last_evaluated_key.is_some();
            if see(page.items.unwrap_or_default(), has_more)?.is_break() {
                break;
            }
            next = page.last_evaluated_key.map(Some);
        }
        Ok(())
    }

    fn record(&self, item: Item) -> Result<AuditRecord, StoreError> {
        let fields = self.fields(item)?;
        let name = fields.get(EVENT_ID).and_then(Value::as_str);
        let name = name.unwrap_or("an unnamed record").to_owned();
        AuditRecord::of_fields(fields).map_err(|_| StoreError::Corrupt {
            resource: self.table.clone(),
            record: name,
        })
    }

    fn fields(&self, item: Item) -> Result<Map<String, Value>, StoreError> {
        decode(&self.table, "an audit event", item)
    }
}

/// What one query returned.
#[derive(Debug, Default)]
struct Page {
    records: Vec<AuditRecord>,
    has_more: bool,
}

/// The records of all shards in their common order, as far as no shard can have one in between.
fn merge(pages: Vec<Page>) -> Vec<AuditRecord> {
    let id = |record: &AuditRecord| record.event().event_id.clone();
    let known_to = pages
        .iter()
        .filter(|page| page.has_more)
        .filter_map(|page| page.records.last().map(id))
        .min();
    let mut records: Vec<_> = pages.into_iter().flat_map(|page| page.records).collect();
    if let Some(known_to) = known_to {
        records.retain(|record| record.event().event_id <= known_to);
    }
    records.sort_by_cached_key(id);
    records
}

pub(crate) fn chain_partition(key: &str, day: &str) -> String {
    format!("{key}#{day}")
}

pub(crate) fn heads_partition(key: &str, day: &str) -> String {
    format!("heads#{day}#{}", shard_of(key, CHAIN_SHARDS))
}

pub(crate) fn open_partition(key: &str) -> String {
    format!("open#{}", shard_of(key, CHAIN_SHARDS))
}

pub(crate) fn open_sort(key: &str, day: &str) -> String {
    format!("{day}#{key}")
}

pub(crate) fn owner_day(owner: &str, day: &str) -> String {
    format!("{owner}#{day}")
}

/// Where the index of a day has its events: the shards, and the one partition of before.
fn day_partitions(day: &str) -> Vec<String> {
    let shards = (0..DAY_SHARDS).map(|shard| format!("{day}#{shard}"));
    shards.chain([day.to_owned()]).collect()
}

pub(crate) fn day_shard(event_id: &str, day: &str) -> String {
    format!("{day}#{}", shard_of(event_id, DAY_SHARDS))
}

fn shard_of(text: &str, shards: u8) -> u8 {
    Sha256::digest(text.as_bytes())[0] % shards
}

pub(crate) fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

fn head_of(item: &Item) -> Option<(String, Head)> {
    let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok());
    let sequence = item.get(HEAD_SEQUENCE)?.as_n().ok()?.parse().ok()?;
    let hash = text(HEAD_HASH)?;
    let hash = raglan_core::audit_chain::Digest::parse(hash).ok()?;
    Some((text(EVENT_ID)?.clone(), Head { sequence, hash }))
}

fn open_chain(item: &Item) -> Option<OpenChain> {
    let (day, key) = item.get(EVENT_ID)?.as_s().ok()?.split_once('#')?;
    Some(OpenChain {
        day: day.to_owned(),
        key: key.to_owned(),
        sequence: item.get(HEAD_SEQUENCE)?.as_n().ok()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests;
