//! Results of calls that carry an idempotency key: kept in the state table for 15 minutes, so that the
//! same call again is answered with the same result instead of being worked on again.
//!
//! One item a call, below the API key's own partition, so two API keys never meet. The item is first a
//! claim with an end (`claim_until_ms`), so that work that was cut off does not hold the key for ever,
//! and then the result. Claiming is one conditional `PutItem`; whoever comes second is told by the
//! refused write what is there.

use aws_sdk_dynamodb::operation::delete_item::DeleteItemInput;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemInput;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsInput;
use aws_sdk_dynamodb::types::{Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use raglan_aws::{DynamoDb, ServiceClient};
use raglan_core::clock::Timestamp;
use raglan_core::key::KeyHash;
use raglan_core::tool::Tool;
use sha2::{Digest as _, Sha256};

use crate::error::StoreError;
use crate::limits::{number, state_key};
use crate::sessions::NewTurn;
use crate::table::{Item, text};

/// How long a result is given again, counted from the first call.
pub const REPLAY_SECONDS: i64 = 15 * 60;
/// DynamoDB takes items of 400 KB; the rest is for the other attributes.
const RESULT_MAX_BYTES: usize = 380 * 1024;

const ARGUMENTS: &str = "arguments_hash";
const CLAIM: &str = "claim_id";
const CLAIM_UNTIL: &str = "claim_until_ms";
const RESULT: &str = "result";
/// Whoever comes back after its claim was taken over changes nothing.
const STILL_MINE: &str = "claim_id = :claim";
const TRANSACTION: &str = "TransactWriteItems";
const REPLAY_UNTIL: &str = "replay_until_ms";

/// The kept results.
#[derive(Debug, Clone)]
pub struct IdempotencyStore {
    client: ServiceClient<DynamoDb>,
    table: String,
}

/// A call with an idempotency key.
#[derive(Debug, Clone, Copy)]
pub struct KeyedCall<'a> {
    /// The API key's hash.
    pub key: &'a KeyHash,
    /// The tool.
    pub tool: Tool,
    /// The idempotency key, as the caller chose it.
    pub idempotency_key: &'a str,
    /// The call's other arguments, as a text that is equal when they are.
    pub arguments: &'a str,
}

/// What there is for a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Claimed {
    /// Nothing: the caller of this module does the work and then settles the claim.
    New(Claim),
    /// The same call has this result.
    Done(String),
    /// The same call is being worked on.
    InProgress,
    /// The idempotency key belongs to a call with other arguments.
    OtherArguments,
}

/// The right to do the work of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    item: Item,
}

impl IdempotencyStore {
    /// The results in the state table of that name.
    #[must_use]
    pub fn new(client: ServiceClient<DynamoDb>, table: impl Into<String>) -> Self {
        Self {
            client,
            table: table.into(),
        }
    }

    /// Claims a call's work until `until`, or tells what is there already. `claim_id` must be unlike
    /// every other.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn claim(
        &self,
        call: KeyedCall<'_>,
        claim_id: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Claimed, StoreError> {
        let replay_until = now.plus_seconds(REPLAY_SECONDS);
        let mut item = state_key(call.key, &sort(call));
        let mut put = |name: &str, value| item.insert(name.to_owned(), value);
        put(ARGUMENTS, text(hex_hash(call.arguments)));
        put(CLAIM, text(claim_id));
        put(CLAIM_UNTIL, number(until.epoch_ms()));
        put(REPLAY_UNTIL, number(replay_until.epoch_ms()));
        put("expires_at", number(replay_until.epoch_seconds()));
        let request = PutItemInput::builder()
            .table_name(&self.table)
            .set_item(Some(item.clone()))
            // DynamoDB deletes what has expired within days only, so the times are compared here too.
            .condition_expression(
                "attribute_not_exists(claim_id) OR replay_until_ms <= :now \
                 OR (attribute_not_exists(#result) AND claim_until_ms <= :now) \
                 OR claim_id = :claim",
            )
            .expression_attribute_names("#result", RESULT)
            .expression_attribute_values(":now", number(now.epoch_ms()))
            // The client repeats a write whose answer got lost; the repetition is this same claim.
            .expression_attribute_values(":claim", text(claim_id))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build();
        let sent = self.client.send(request).await;
        match sent {
            Ok(_) => Ok(Claimed::New(Claim { item })),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(failed)) => {
                    let there = failed.item.clone().unwrap_or_default();
                    Ok(found(&there, &item))
                }
                _ => Err(StoreError::of_call("PutItem", &self.table, &error)),
            },
        }
    }

    /// Keeps the result of a claimed call and, with it or not at all, the turn that the call adds to a
    /// conversation in the same table: a call that is worked on once more adds no second turn. A claim
    /// that ran out and was taken over keeps nothing.
    ///
    /// # Errors
    /// [`StoreError`]; `TooLarge` when no item can hold the result, `Conflict` when the claim was taken
    /// over.
    pub async fn keep(
        &self,
        claim: &Claim,
        result: &str,
        turn: Option<NewTurn>,
    ) -> Result<(), StoreError> {
        if result.len() > RESULT_MAX_BYTES {
            return Err(StoreError::TooLarge {
                resource: self.table.clone(),
                size_bytes: result.len(),
                limit_bytes: RESULT_MAX_BYTES,
            });
        }
        let mut item = claim.item.clone();
        item.insert(RESULT.to_owned(), text(result));
        let Some(turn) = turn else {
            self.client
                .send(
                    PutItemInput::builder()
                        .table_name(&self.table)
                        .set_item(Some(item))
                        .condition_expression(STILL_MINE)
                        .set_expression_attribute_values(Some(claim.values()))
                        .build(),
                )
                .await
                .map_err(|error| StoreError::of_call("PutItem", &self.table, &error))?;
            return Ok(());
        };
        let put = Put::builder()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression(STILL_MINE)
            .set_expression_attribute_values(Some(claim.values()))
            .build()
            .map_err(|_| StoreError::Refused {
                operation: TRANSACTION,
                resource: self.table.clone(),
                code: "incomplete".to_owned(),
            })?;
        self.client
            .send(
                TransactWriteItemsInput::builder()
                    .transact_items(TransactWriteItem::builder().put(put).build())
                    .transact_items(turn.into_change(&self.table)?)
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_transaction(&self.table, &error))?;
        Ok(())
    }

    /// Frees the idempotency key of a call that failed.
    ///
    /// # Errors
    /// [`StoreError`]; the claim ends by itself then.
    pub async fn free(&self, claim: &Claim) -> Result<(), StoreError> {
        let key = ["partition", "sort"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), claim.item.get(name)?.clone())))
            .collect();
        self.client
            .send(
                DeleteItemInput::builder()
                    .table_name(&self.table)
                    .set_key(Some(key))
                    .condition_expression(STILL_MINE)
                    .set_expression_attribute_values(Some(claim.values()))
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_call("DeleteItem", &self.table, &error))?;
        Ok(())
    }
}

impl Claim {
    fn values(&self) -> Item {
        let claim = self.item.get(CLAIM).cloned();
        claim
            .map(|claim| (":claim".to_owned(), claim))
            .into_iter()
            .collect()
    }
}

/// What the item that is there means for the one that was to be written.
fn found(there: &Item, wanted: &Item) -> Claimed {
    if there.get(ARGUMENTS) != wanted.get(ARGUMENTS) {
        return Claimed::OtherArguments;
    }
    let result = there.get(RESULT).and_then(|value| value.as_s().ok());
    result.map_or(Claimed::InProgress, |result| Claimed::Done(result.clone()))
}

/// The caller's text is hashed: it may hold anything, and a sort key has a limit.
fn sort(call: KeyedCall<'_>) -> String {
    let key = hex_hash(call.idempotency_key);
    format!("idempotency#{}#{key}", call.tool)
}

fn hex_hash(text: &str) -> String {
    raglan_core::ids::to_hex(&Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::{Session, SessionStore, SessionTurn};
    use crate::testing::{Key, create_table, key_record, local_dynamodb};

    const NOW: Timestamp = Timestamp::from_epoch_seconds(1_800_000_000);

    async fn store() -> IdempotencyStore {
        let client = local_dynamodb().await;
        create_table(&client, "state", &Key::of("partition", Some("sort")), None).await;
        IdempotencyStore::new(client, "state")
    }

    fn call<'a>(key: &'a KeyHash, arguments: &'a str) -> KeyedCall<'a> {
        KeyedCall {
            key,
            tool: Tool::Ask,
            idempotency_key: "order-1",
            arguments,
        }
    }

    async fn claim(
        store: &IdempotencyStore,
        call: KeyedCall<'_>,
        id: &str,
        now: Timestamp,
    ) -> Claimed {
        let claimed = store.claim(call, id, now, now.plus_seconds(30)).await;
        claimed.unwrap()
    }

    fn new(claimed: Claimed) -> Claim {
        match claimed {
            Claimed::New(claim) => claim,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn the_same_call_has_one_result_for_fifteen_minutes() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let first = new(claim(&store, call(&key, "a"), "1", NOW).await);
        assert_eq!(
            claim(&store, call(&key, "a"), "2", NOW).await,
            Claimed::InProgress
        );
        store.keep(&first, "the result", None).await.unwrap();

        let done = Claimed::Done("the result".to_owned());
        let last = NOW.plus_seconds(REPLAY_SECONDS - 1);
        assert_eq!(claim(&store, call(&key, "a"), "3", last).await, done);
        let over = NOW.plus_seconds(REPLAY_SECONDS);
        new(claim(&store, call(&key, "a"), "4", over).await);
    }

    #[tokio::test]
    async fn other_arguments_are_told_apart_and_other_keys_never_meet() {
        let store = store().await;
        let (one, two) = (
            key_record("key-1", 1).key_hash,
            key_record("key-2", 2).key_hash,
        );
        let first = new(claim(&store, call(&one, "a"), "1", NOW).await);
        let other = claim(&store, call(&one, "b"), "2", NOW).await;
        assert_eq!(other, Claimed::OtherArguments);
        store.keep(&first, "the result", None).await.unwrap();
        let other = claim(&store, call(&one, "b"), "3", NOW).await;
        assert_eq!(other, Claimed::OtherArguments);
        new(claim(&store, call(&two, "a"), "4", NOW).await);
    }

    #[tokio::test]
    async fn a_failed_call_frees_its_key_and_an_abandoned_one_does_so_in_time() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let first = new(claim(&store, call(&key, "a"), "1", NOW).await);
        store.free(&first).await.unwrap();
        let abandoned = new(claim(&store, call(&key, "b"), "2", NOW).await);

        let later = NOW.plus_seconds(30);
        let second = new(claim(&store, call(&key, "c"), "3", later).await);
        // Whoever comes back after its claim was taken over changes nothing.
        for late in [
            store.keep(&abandoned, "late", None).await,
            store.free(&abandoned).await,
        ] {
            assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
        }
        store.keep(&second, "the result", None).await.unwrap();
        let done = Claimed::Done("the result".to_owned());
        assert_eq!(claim(&store, call(&key, "c"), "4", later).await, done);
    }

    #[tokio::test]
    async fn of_many_at_once_exactly_one_does_the_work() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let ids: Vec<String> = (0..16).map(|n| n.to_string()).collect();
        let claims = ids.iter().map(|id| claim(&store, call(&key, "a"), id, NOW));
        let claimed = futures::future::join_all(claims).await;
        let new = |claimed: &&Claimed| matches!(claimed, Claimed::New(_));
        assert_eq!(claimed.iter().filter(new).count(), 1);
    }

    #[tokio::test]
    async fn a_turn_is_kept_with_the_result_or_not_at_all() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let sessions = SessionStore::new(store.client.clone(), "state");
        let session = Session {
            key: &key,
            id: "default",
        };
        let turn = SessionTurn {
            question: "leave?".to_owned(),
            answer: None,
            cited: Vec::new(),
        };
        let new_turn = || {
            let expires = NOW.plus_seconds(60);
            Some(sessions.new_turn(session, "1", &turn, expires).unwrap())
        };
        let abandoned = new(claim(&store, call(&key, "a"), "1", NOW).await);
        let second = new(claim(&store, call(&key, "a"), "2", NOW.plus_seconds(30)).await);
        let late = store.keep(&abandoned, "late", new_turn()).await;
        assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
        assert_eq!(sessions.latest(session, NOW).await.unwrap(), []);

        store.keep(&second, "the result", new_turn()).await.unwrap();
        let latest = sessions.latest(session, NOW).await.unwrap();
        assert_eq!(latest, std::slice::from_ref(&turn));
        let done = Claimed::Done("the result".to_owned());
        assert_eq!(claim(&store, call(&key, "a"), "3", NOW).await, done);
    }

    #[tokio::test]
    async fn a_result_that_no_item_can_hold_is_refused_without_asking_the_table() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let first = new(claim(&store, call(&key, "a"), "1", NOW).await);
        let result = store
            .keep(&first, &"x".repeat(RESULT_MAX_BYTES + 1), None)
            .await;
        assert!(
            matches!(result, Err(StoreError::TooLarge { .. })),
            "{result:?}"
        );
    }
}
