//! Conversations: the latest turns of a session, so that a question can refer to the one before.
//!
//! One item a turn, below the API key's own partition of the state table, so two API keys never meet,
//! whatever they call their sessions, and two turns at the same time are both kept. The sort key holds
//! the hash of the session's name and an identifier that sorts by time.

use aws_sdk_dynamodb::operation::put_item::PutItemInput;
use aws_sdk_dynamodb::operation::query::QueryInput;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use raglan_aws::{DynamoDb, ServiceClient};
use raglan_core::clock::Timestamp;
use raglan_core::key::KeyHash;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::StoreError;
use crate::limits::{number, state_key};
use crate::table::{Item, decode, encode, text};

/// How many turns of a session are read.
pub const TURNS_READ: usize = 6;
/// The beginning of a question or an answer that is kept.
pub const TEXT_MAX_BYTES: usize = 2 * 1024;

const EXPIRES_AT: &str = "expires_at";
/// Names in errors which kind of record it is.
const RECORD: &str = "a turn of a conversation";

/// The kept conversations.
#[derive(Debug, Clone)]
pub struct SessionStore {
    client: ServiceClient<DynamoDb>,
    table: String,
}

/// One conversation of one API key.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    /// The API key's hash.
    pub key: &'a KeyHash,
    /// The session's name, as the caller chose it.
    pub id: &'a str,
}

/// One turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTurn {
    /// The question, or its beginning.
    pub question: String,
    /// The beginning of the answer; `None` when there was none.
    pub answer: Option<String>,
    /// The passages that the answer cited.
    pub cited: Vec<CitedPassage>,
}

/// A passage that an answer cited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CitedPassage {
    /// The knowledge base.
    pub kb_id: String,
    /// The passage in it.
    pub id: String,
}

/// A turn that is not written yet.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTurn {
    item: Item,
}

impl NewTurn {
    /// As a part of a transaction.
    pub(crate) fn into_change(self, table: &str) -> Result<TransactWriteItem, StoreError> {
        let put = Put::builder().table_name(table).set_item(Some(self.item));
        let put = put.build().map_err(|_| StoreError::Refused {
            operation: "TransactWriteItems",
            resource: table.to_owned(),
            code: "incomplete".to_owned(),
        })?;
        Ok(TransactWriteItem::builder().put(put).build())
    }
}

impl SessionStore {
    /// The conversations in the state table of that name.
    #[must_use]
    pub fn new(client: ServiceClient<DynamoDb>, table: impl Into<String>) -> Self {
        Self {
            client,
            table: table.into(),
        }
    }

    /// A turn as it is written. `turn_id` must sort by time and be unlike every other; question and answer are cut.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it cannot be written as an item.
    pub fn new_turn(
        &self,
        session: Session<'_>,
        turn_id: &str,
        turn: &SessionTurn,
        expires: Timestamp,
    ) -> Result<NewTurn, StoreError> {
        let cut = SessionTurn {
            question: beginning(&turn.question),
            answer: turn.answer.as_deref().map(beginning),
            cited: turn.cited.clone(),
        };
        let mut item = encode(&self.table, RECORD, &cut)?;
        item.extend(state_key(
            session.key,
            &format!("{}{turn_id}", prefix(session)),
        ));
        item.insert(EXPIRES_AT.to_owned(), number(expires.epoch_seconds()));
        Ok(NewTurn { item })
    }

    /// Adds a turn.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn append(&self, turn: NewTurn) -> Result<(), StoreError> {
        self.client
            .send(
                PutItemInput::builder()
                    .table_name(&self.table)
                    .set_item(Some(turn.item))
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_call("PutItem", &self.table, &error))?;
        Ok(())
    }

    /// The latest turns that have not expired, at most [`TURNS_READ`], oldest first.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn latest(
        &self,
        session: Session<'_>,
        now: Timestamp,
    ) -> Result<Vec<SessionTurn>, StoreError> {
        let key = state_key(session.key, "");
        let partition = key.get("partition").cloned();
        let limit = i32::try_from(TURNS_READ).unwrap_or(i32::MAX);
        let page = self
            .client
            .send(
                QueryInput::builder()
                    .table_name(&self.table)
                    .key_condition_expression(
                        "#partition = :partition AND begins_with(#sort, :session)",
                    )
                    .expression_attribute_names("#partition", "partition")
                    .expression_attribute_names("#sort", "sort")
                    .set_expression_attribute_values(partition.map(|partition| {
                        Item::from([
                            (":partition".to_owned(), partition),
                            (":session".to_owned(), text(prefix(session))),
                        ])
                    }))
                    .scan_index_forward(false)
                    .limit(limit)
                    .consistent_read(true)
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_call("Query", &self.table, &error))?;
        let mut turns = Vec::new();
        for item in page.items.unwrap_or_default() {
            // DynamoDB deletes what has expired within days only.
            if expires_at(&item) <= now.epoch_seconds() {
                continue;
            }
            turns.push(decode(&self.table, RECORD, item)?);
        }
        turns.reverse();
        Ok(turns)
    }
}

fn expires_at(item: &Item) -> i64 {
    let value = item.get(EXPIRES_AT).and_then(|value| match value {
        AttributeValue::N(text) => text.parse().ok(),
        _ => None,
    });
    value.unwrap_or(0)
}

/// The caller's name of a session is hashed: it may hold anything.
fn prefix(session: Session<'_>) -> String {
    let hash = raglan_core::ids::to_hex(&Sha256::digest(session.id.as_bytes()));
    format!("session#{hash}#")
}

fn beginning(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_MAX_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Key, create_table, key_record, local_dynamodb};

    const NOW: Timestamp = Timestamp::from_epoch_seconds(1_800_000_000);
    const DAY_SECONDS: i64 = 86_400;

    async fn store() -> SessionStore {
        let client = local_dynamodb().await;
        create_table(&client, "state", &Key::of("partition", Some("sort")), None).await;
        SessionStore::new(client, "state")
    }

    fn turn(question: &str) -> SessionTurn {
        SessionTurn {
            question: question.to_owned(),
            answer: Some(format!("The answer to {question}")),
            cited: vec![CitedPassage {
                kb_id: "handbook".to_owned(),
                id: "passage-1".to_owned(),
            }],
        }
    }

    async fn add(store: &SessionStore, session: Session<'_>, turn_id: &str, question: &str) {
        let expires = NOW.plus_seconds(DAY_SECONDS);
        let turn = store.new_turn(session, turn_id, &turn(question), expires);
        store.append(turn.unwrap()).await.unwrap();
    }

    async fn questions(store: &SessionStore, session: Session<'_>, now: Timestamp) -> Vec<String> {
        let turns = store.latest(session, now).await.unwrap();
        turns.into_iter().map(|turn| turn.question).collect()
    }

    #[tokio::test]
    async fn the_last_six_turns_come_back_oldest_first() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let session = Session {
            key: &key,
            id: "default",
        };
        assert_eq!(store.latest(session, NOW).await.unwrap(), []);
        for n in 1..=8 {
            add(&store, session, &format!("0{n}"), &format!("question {n}")).await;
        }
        let expected: Vec<SessionTurn> = (3..=8).map(|n| turn(&format!("question {n}"))).collect();
        assert_eq!(store.latest(session, NOW).await.unwrap(), expected);
    }

    #[tokio::test]
    async fn sessions_of_one_name_under_two_keys_never_meet() {
        let store = store().await;
        let (one, two) = (
            key_record("key-1", 1).key_hash,
            key_record("key-2", 2).key_hash,
        );
        let of = |key, id| Session { key, id };
        add(&store, of(&one, "default"), "1", "one").await;
        add(&store, of(&one, "default#2"), "1", "another session").await;
        assert_eq!(questions(&store, of(&two, "default"), NOW).await, [""; 0]);
        assert_eq!(questions(&store, of(&one, "default"), NOW).await, ["one"]);
        assert_eq!(questions(&store, of(&one, "defaul"), NOW).await, [""; 0]);
    }

    #[tokio::test]
    async fn an_expired_turn_that_is_still_there_is_not_read() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let session = Session {
            key: &key,
            id: "default",
        };
        add(&store, session, "1", "one").await;
        let last = NOW.plus_seconds(DAY_SECONDS - 1);
        assert_eq!(questions(&store, session, last).await, ["one"]);
        let over = NOW.plus_seconds(DAY_SECONDS);
        assert_eq!(questions(&store, session, over).await, [""; 0]);
    }

    #[tokio::test]
    async fn turns_at_the_same_time_are_all_kept() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let session = Session {
            key: &key,
            id: "default",
        };
        let names: Vec<String> = (0..6).map(|n| n.to_string()).collect();
        let all = names.iter().map(|name| add(&store, session, name, name));
        futures::future::join_all(all).await;
        assert_eq!(questions(&store, session, NOW).await, names);
    }

    #[tokio::test]
    async fn long_texts_are_cut_between_characters() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let session = Session {
            key: &key,
            id: "default",
        };
        add(&store, session, "1", &"年".repeat(4_000)).await;
        let turn = store.latest(session, NOW).await.unwrap().remove(0);
        assert_eq!(turn.question, "年".repeat(TEXT_MAX_BYTES / 3));
        assert!(turn.answer.unwrap().len() <= TEXT_MAX_BYTES);
    }
}
