//! When and how much a key was used, read from the item that counts its calls ([`crate::limits`]), so
//! that no request pays a write for it.
//!
//! Every tool call that the rate limit let through is counted once, whatever came of it (twice, when
//! the count's answer got lost on the way and the client repeated it), and the last-used time is the last such call's, by the clock of the instance that took it. Not counted
//! are other methods (`initialize`, `tools/list`, …), refused calls, and calls that were let through
//! while the state table could not be asked (the log has those). The total is kept for 400 days after
//! the last call.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::operation::get_item::GetItemInput;
use raglan_aws::{DynamoDb, ServiceClient};
use raglan_core::clock::Timestamp;
use raglan_core::key::KeyHash;
use raglan_core::tool::Tool;

use crate::error::StoreError;
use crate::limits::{CALL_COUNT, LAST_USED, meter_key};
use crate::meter_item::MeterItem;
use crate::table::number_of;

/// The usage of keys.
#[derive(Debug, Clone)]
pub struct UsageStore {
    client: ServiceClient<DynamoDb>,
    table: String,
}

/// How much a key was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The last counted tool call.
    pub last_used_at: Timestamp,
    /// Counted tool calls since the key's first one.
    pub call_count: u64,
    /// The UTC day of `by_tool`, as its midnight: the day of the last counted call.
    pub day: Timestamp,
    /// Counted calls of that day by tool.
    pub by_tool: BTreeMap<Tool, u64>,
}

impl UsageStore {
    /// The usage in the state table of that name.
    #[must_use]
    pub fn new(client: ServiceClient<DynamoDb>, table: impl Into<String>) -> Self {
        Self {
            client,
            table: table.into(),
        }
    }

    /// The usage of the key with this hash; `None` when no tool call was ever counted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn of(&self, key: &KeyHash) -> Result<Option<Usage>, StoreError> {
        let output = self
            .client
            .send(
                GetItemInput::builder()
                    .table_name(&self.table)
                    .set_key(Some(meter_key(key)))
                    .consistent_read(true)
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_call("GetItem", &self.table, &error))?;
        Ok(output.item.map(|item| {
            let MeterItem { meter, today } = MeterItem::from(&item);
            Usage {
                last_used_at: Timestamp::from_epoch_ms(number_of(&item, LAST_USED)),
                call_count: u64::try_from(number_of(&item, CALL_COUNT)).unwrap_or(0),
                day: Timestamp::from_epoch_seconds(meter.day.saturating_mul(86_400)),
                by_tool: today,
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use raglan_core::key_record::RateLimit;
    use raglan_core::limits::Calls;

    use super::*;
    use crate::limits::{Meter, MeterStore};
    use crate::testing::{Key, create_table, key_record, local_dynamodb};

    const NO_LIMIT: RateLimit = RateLimit {
        requests_per_minute: 0,
        burst: 0,
    };

    #[tokio::test]
    async fn what_was_counted_is_what_is_told() {
        let client = local_dynamodb().await;
        create_table(&client, "state", &Key::of("partition", Some("sort")), None).await;
        let (meters, usage) = (
            MeterStore::new(client.clone(), "state"),
            UsageStore::new(client, "state"),
        );
        let key = key_record("key-1", 1).key_hash;
        assert_eq!(usage.of(&key).await, Ok(None));

        let mut calls = Calls::default();
        calls.add("ask");
        let moments = ["2026-11-30T08:15:00.001Z", "2026-12-01T09:00:00.002Z"];
        for moment in moments.map(|text| Timestamp::parse(text).unwrap()) {
            let counted = meters.count(&key, Meter::default(), &calls, NO_LIMIT, moment);
            counted.await.unwrap();
        }
        let expected = Usage {
            last_used_at: Timestamp::parse(moments[1]).unwrap(),
            call_count: 2,
            day: Timestamp::parse("2026-12-01").unwrap(),
            by_tool: BTreeMap::from([(Tool::Ask, 1)]),
        };
        assert_eq!(usage.of(&key).await, Ok(Some(expected)));
        assert_eq!(usage.of(&key_record("key-2", 2).key_hash).await, Ok(None));
    }
}
