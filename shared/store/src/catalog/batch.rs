//! Reading listed knowledge bases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodb::operation::batch_get_item::BatchGetItemInput;
use aws_sdk_dynamodb::types::KeysAndAttributes;
use raglan_aws::Answer;
use raglan_core::catalog::{KnowledgeBase, KnowledgeBaseId};
use serde::Deserialize;

use super::{CatalogStore, Place, SORT, item_of, place};
use crate::error::StoreError;
use crate::item_json::{Record, usual};
use crate::table::{Item, decode_all};

/// `BatchGetItem` takes so many keys at most.
const BATCH_KEYS: usize = 100;
/// How often keys that `BatchGetItem` left out are asked for again.
const BATCH_ROUNDS: u32 = 5;
/// The pause before the first repetition; it doubles with each one: 0.3 s in all.
const BATCH_FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The usual answer to `BatchGetItem`, by table.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Batch {
    responses: BTreeMap<String, Vec<Record<KnowledgeBase>>>,
    unprocessed_keys: BTreeMap<String, LeftOut>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LeftOut {
    keys: Vec<Place>,
}

impl CatalogStore {
    /// The entries of one partition with these identifiers, as far as there are any.
    pub(super) async fn batch(
        &self,
        partition: &str,
        ids: &BTreeSet<KnowledgeBaseId>,
    ) -> Result<Vec<KnowledgeBase>, StoreError> {
        let keys: Vec<Item> = ids.iter().map(|id| place(partition, id.as_str())).collect();
        let mut entries = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(BATCH_KEYS) {
            entries.extend(self.batch_get(chunk.to_vec()).await?);
        }
        Ok(entries)
    }

    /// `BatchGetItem` may leave keys out when it is busy or the answer grows too large; they are
    /// asked for again, with growing pauses.
    async fn batch_get(&self, mut keys: Vec<Item>) -> Result<Vec<KnowledgeBase>, StoreError> {
        let operation = "BatchGetItem";
        let mut entries = Vec::with_capacity(keys.len());
        let mut pause = BATCH_FIRST_PAUSE;
        for round in 0..BATCH_ROUNDS {
            if round > 0 {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            let request = KeysAndAttributes::builder()
                .set_keys(Some(keys))
                .consistent_read(true)
                .build()
                .map_err(|_| self.incomplete(operation))?;
            let input = BatchGetItemInput::builder().request_items(&self.table, request);
            let answer = self.client.send_with_reader(input.build(), usual).await;
            keys = match answer
                .map_err(|error| StoreError::of_call(operation, &self.table, &error))?
            {
                Answer::Read(Batch {
                    mut responses,
                    mut unprocessed_keys,
                }) => {
                    let found = responses.remove(&self.table).unwrap_or_default();
                    entries.extend(found.into_iter().map(|Record(entry)| entry));
                    let left_out = unprocessed_keys.remove(&self.table);
                    let left_out = left_out.map(|LeftOut { keys }| keys).unwrap_or_default();
                    left_out.into_iter().map(item_of).collect()
                }
                Answer::Output(output) => {
                    let found = output.responses.and_then(|mut all| all.remove(&self.table));
                    entries.extend(decode_all(&self.table, SORT, found.unwrap_or_default()));
                    let left_out = output
                        .unprocessed_keys
                        .and_then(|mut all| all.remove(&self.table));
                    left_out.map(|left_out| left_out.keys).unwrap_or_default()
                }
            };
            if keys.is_empty() {
                return Ok(entries);
            }
        }
        Err(StoreError::Throttled {
            operation,
            resource: self.table.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use raglan_core::access::Reach;

    use super::super::ALL;
    use super::*;
    use crate::testing::{
        catalog_with, clients_at, ids, knowledge_base, knowledge_base_json, named, scripted,
    };

    #[tokio::test]
    async fn more_names_than_one_request_takes_are_all_read() {
        let entries: Vec<_> = (0..BATCH_KEYS + 5)
            .map(|n| knowledge_base(&format!("kb-{n}"), None))
            .collect();
        let store = catalog_with(&entries).await;
        let asked = ids(&entries);
        let read = store
            .read(&Reach::Listed {
                owner: None,
                ids: &asked,
            })
            .await
            .unwrap();
        assert_eq!(ids(&read), asked);
    }

    fn batch_answer(found: &[&str], left_out: &[&str]) -> (u16, String) {
        let key = |name: &&str| serde_json::json!({"partition": {"S": ALL}, "sort": {"S": name}});
        let unprocessed = if left_out.is_empty() {
            serde_json::json!({})
        } else {
            let keys: Vec<_> = left_out.iter().map(key).collect();
            serde_json::json!({"catalog": {"Keys": keys, "ConsistentRead": true}})
        };
        let items: Vec<_> = found.iter().map(|name| knowledge_base_json(name)).collect();
        let body = serde_json::json!({
            "Responses": {"catalog": items}, "UnprocessedKeys": unprocessed,
        });
        (200, body.to_string())
    }

    #[tokio::test]
    async fn keys_that_a_busy_table_leaves_out_are_asked_for_again() {
        let server = scripted(vec![
            batch_answer(&["a"], &["b"]),
            batch_answer(&["b"], &[]),
        ])
        .await;
        let store = CatalogStore::new(clients_at(&server.url).dynamodb, "catalog");
        let asked = named(&["a", "b"]);
        let read = store
            .read(&Reach::Listed {
                owner: None,
                ids: &asked,
            })
            .await
            .unwrap();
        assert_eq!(ids(&read), asked);
        let requests = server.requests();
        assert_eq!(requests.len(), 2);
        assert!(!requests[1].contains(r#"{"S":"a"}"#), "{}", requests[1]);
        assert!(
            requests
                .iter()
                .all(|body| body.contains(r#""ConsistentRead":true"#))
        );
    }

    #[tokio::test]
    async fn one_unreadable_entry_does_not_take_the_others_down() {
        let usual_answer = batch_answer(&["a"], &["b", "c"]);
        let mut unreadable = batch_answer(&["b", "c"], &[]);
        unreadable.1 = unreadable.1.replacen(r#"{"S":"bm25"}"#, r#"{"N":"25"}"#, 1);
        let is_usual = |answer: &str| usual::<Batch>(answer.as_bytes()).is_some();
        assert!(is_usual(&usual_answer.1) && !is_usual(&unreadable.1));

        let server = scripted(vec![usual_answer, unreadable]).await;
        let store = CatalogStore::new(clients_at(&server.url).dynamodb, "catalog");
        let asked = named(&["a", "b", "c"]);
        let reach = Reach::Listed {
            owner: None,
            ids: &asked,
        };
        let read = store.read(&reach).await.unwrap();
        assert_eq!(ids(&read), named(&["a", "c"]));
    }

    #[tokio::test]
    async fn a_scope_that_can_only_be_read_in_part_is_an_error() {
        let rounds = usize::try_from(BATCH_ROUNDS).unwrap();
        let server = scripted(vec![batch_answer(&[], &["a"]); rounds]).await;
        let store = CatalogStore::new(clients_at(&server.url).dynamodb, "catalog");
        let asked = named(&["a"]);
        let error = store
            .read(&Reach::Listed {
                owner: None,
                ids: &asked,
            })
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::Throttled { .. }), "{error}");
    }
}
