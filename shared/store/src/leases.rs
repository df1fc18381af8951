//! Places for calls of one key that may be at work at the same time.
//!
//! One item a key has an attribute for every place: the moment at which the place is free by itself,
//! in case that nobody gives it back. Taking a place is one conditional `UpdateItem` as a rule; when
//! somebody else sits there, the refused write tells which places are free.

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemInput;
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use raglan_aws::{DynamoDb, ServiceClient};
use raglan_core::clock::Timestamp;
use raglan_core::key::KeyHash;

use crate::error::StoreError;
use crate::limits::{number, state_key};
use crate::table::{Item, number_of};

const ASK: &str = "leases#ask";
/// Writes for one place, at most: each one after the first lost a race for a place that was free.
const WRITES_MAX: usize = 8;
/// The item of a key that asks nothing for this long is deleted.
const KEPT_SECONDS: i64 = 86_400;

/// The places.
#[derive(Debug, Clone)]
pub struct LeaseStore {
    client: ServiceClient<DynamoDb>,
    table: String,
}

/// A place that was taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    item_key: Item,
    place: String,
    until_ms: i64,
}

impl LeaseStore {
    /// The places in the state table of that name.
    #[must_use]
    pub fn new(client: ServiceClient<DynamoDb>, table: impl Into<String>) -> Self {
        Self {
            client,
            table: table.into(),
        }
    }

    /// Takes one of the key's `places` until `until`; `None` when none is free. The search begins at
    /// `first_guess`, a random number, so that callers at the same time rarely want the same place.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn take(
        &self,
        key: &KeyHash,
        places: u32,
        first_guess: u32,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Option<Lease>, StoreError> {
        let mut free: Vec<u32> = (0..places).collect();
        for write in 0..WRITES_MAX {
            if free.is_empty() {
                return Ok(None);
            }
            let at = (first_guess as usize + write) % free.len();
            let lease = Lease {
                item_key: state_key(key, ASK),
                place: format!("until_ms_{}", free[at]),
                until_ms: until.epoch_ms(),
            };
            match self.try_take(&lease, now).await? {
                None => return Ok(Some(lease)),
                Some(there) => {
                    let is_free = |place: &u32| {
                        number_of(&there, &format!("until_ms_{place}")) <= now.epoch_ms()
                    };
                    free = (0..places).filter(is_free).collect();
                }
            }
        }
        // Every place that was free went to somebody else: in effect there was none.
        Ok(None)
    }

    /// Gives a place back.
    ///
    /// # Errors
    /// [`StoreError`]; the place is free by itself then, later. `Conflict` when it was already.
    pub async fn give_back(&self, lease: &Lease) -> Result<(), StoreError> {
        self.client
            .send(
                UpdateItemInput::builder()
                    .table_name(&self.table)
                    .set_key(Some(lease.item_key.clone()))
                    .update_expression(format!("REMOVE {}", lease.place))
                    .condition_expression(format!("{} = :until", lease.place))
                    .expression_attribute_values(":until", number(lease.until_ms))
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_call("UpdateItem", &self.table, &error))?;
        Ok(())
    }

    /// The item as it is when the place is not free.
    async fn try_take(&self, lease: &Lease, now: Timestamp) -> Result<Option<Item>, StoreError> {
        let place = &lease.place;
        let sent = self
            .client
            .send(
                UpdateItemInput::builder()
                    .table_name(&self.table)
                    .set_key(Some(lease.item_key.clone()))
                    .update_expression(format!("SET {place} = :until, expires_at = :expires"))
                    .condition_expression(format!(
                        "attribute_not_exists({place}) OR {place} <= :now"
                    ))
                    .expression_attribute_values(":until", number(lease.until_ms))
                    .expression_attribute_values(":now", number(now.epoch_ms()))
                    .expression_attribute_values(
                        ":expires",
                        number(now.epoch_seconds() + KEPT_SECONDS),
                    )
                    .return_values_on_condition_check_failure(
                        ReturnValuesOnConditionCheckFailure::AllOld,
                    )
                    .build(),
            )
            .await;
        match sent {
            Ok(_) => Ok(None),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                    Ok(Some(failed.item.clone().unwrap_or_default()))
                }
                _ => Err(StoreError::of_call("UpdateItem", &self.table, &error)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Key, create_table, key_record, local_dynamodb};

    const NOW: Timestamp = Timestamp::from_epoch_seconds(1_800_000_000);

    async fn store() -> LeaseStore {
        let client = local_dynamodb().await;
        create_table(&client, "state", &Key::of("partition", Some("sort")), None).await;
        LeaseStore::new(client, "state")
    }

    async fn take(store: &LeaseStore, key: &KeyHash, guess: u32, now: Timestamp) -> Option<Lease> {
        let lease = store.take(key, 3, guess, now, now.plus_seconds(30));
        lease.await.unwrap()
    }

    #[tokio::test]
    async fn there_are_as_many_places_as_allowed_and_a_place_given_back_is_free() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let mut taken = Vec::new();
        for guess in [0, 0, u32::MAX] {
            taken.push(take(&store, &key, guess, NOW).await.unwrap());
        }
        assert_eq!(take(&store, &key, 1, NOW).await, None);
        assert!(
            take(&store, &key_record("key-2", 2).key_hash, 0, NOW)
                .await
                .is_some()
        );
        store.give_back(&taken[1]).await.unwrap();
        assert!(take(&store, &key, 7, NOW).await.is_some());
        assert_eq!(take(&store, &key, 7, NOW).await, None);
    }

    #[tokio::test]
    async fn a_place_that_is_never_given_back_is_free_in_time() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        for _ in 0..3 {
            take(&store, &key, 0, NOW).await.unwrap();
        }
        assert_eq!(take(&store, &key, 0, NOW.plus_seconds(29)).await, None);
        assert!(take(&store, &key, 0, NOW.plus_seconds(30)).await.is_some());
    }

    #[tokio::test]
    async fn callers_at_once_never_hold_more_than_the_places() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let callers = (0..16).map(|guess| take(&store, &key, guess, NOW));
        let taken = futures::future::join_all(callers).await;
        let places: std::collections::BTreeSet<_> =
            taken.iter().flatten().map(|lease| &lease.place).collect();
        assert_eq!(places.len(), 3);
        assert_eq!(taken.iter().flatten().count(), 3);
    }
}
