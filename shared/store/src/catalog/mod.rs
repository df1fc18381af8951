//! The catalogue's table: knowledge bases and indexing tasks.
//!
//! | partition | sort | holds |
//! |---|---|---|
//! | `all` | knowledge base id | every knowledge base |
//! | `owner#<owner>` | knowledge base id | the same once more, for those with an owner |
//! | `task#<task id>` | `task` | one task, until its `expires_at` |
//!
//! Both copies of a knowledge base change in one transaction. A caller's kind decides the partition
//! that is read: a system key reads `all`, a user's key reads `owner#<owner>` and nothing else, so
//! what belongs to others does not even leave the database.
//!
//! Reading is here; [`write`] changes knowledge bases, `batch` reads listed ones, [`task`] keeps tasks.

mod batch;
pub mod task;
pub mod write;

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::operation::get_item::GetItemInput;
use aws_sdk_dynamodb::operation::query::QueryInput;
use raglan_aws::{Answer, DynamoDb, ServiceClient};
use raglan_core::access::Reach;
use raglan_core::catalog::{KnowledgeBase, KnowledgeBaseId};
use serde::Deserialize;

pub use write::PutMode;

use crate::error::StoreError;
use crate::item_json::{Record, usual};
use crate::table::{Item, decode, decode_all, text};

const PARTITION: &str = "partition";
const SORT: &str = "sort";
const ALL: &str = "all";

/// The catalogue's table.
#[derive(Debug, Clone)]
pub struct CatalogStore {
    client: ServiceClient<DynamoDb>,
    table: String,
}

impl CatalogStore {
    /// The table of that name.
    #[must_use]
    pub fn new(client: ServiceClient<DynamoDb>, table: impl Into<String>) -> Self {
        Self {
            client,
            table: table.into(),
        }
    }

    /// The entries within a grant's reach, as they are now; identifiers without an entry are simply
    /// not there. Entries that cannot be read are logged and left out.
    ///
    /// # Errors
    /// [`StoreError`]: then nothing is known and the call must not go on.
    pub async fn read(&self, reach: &Reach<'_>) -> Result<Vec<KnowledgeBase>, StoreError> {
        match reach {
            Reach::Nothing => Ok(Vec::new()),
            Reach::Everything { owner } => self.query(&partition(*owner)).await,
            Reach::Listed { owner, ids } => self.batch(&partition(*owner), ids).await,
        }
    }

    /// Every entry of the deployment. Entries that cannot be read are logged and left out.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn list_all(&self) -> Result<Vec<KnowledgeBase>, StoreError> {
        self.query(ALL).await
    }

    /// One entry, whoever owns it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn get(&self, id: &KnowledgeBaseId) -> Result<Option<KnowledgeBase>, StoreError> {
        let item = self.get_item(ALL, id.as_str()).await?;
        item.map(|item| decode(&self.table, id.as_str(), item))
            .transpose()
    }

    async fn get_item(&self, partition: &str, sort: &str) -> Result<Option<Item>, StoreError> {
        let output = self
            .client
            .send(
                GetItemInput::builder()
                    .table_name(&self.table)
                    .set_key(Some(place(partition, sort)))
                    .consistent_read(true)
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_call("GetItem", &self.table, &error))?;
        Ok(output.item)
    }

    async fn query(&self, partition: &str) -> Result<Vec<KnowledgeBase>, StoreError> {
        let mut entries = Vec::new();
        let query = QueryInput::builder()
            .table_name(&self.table)
            .consistent_read(true)
            .key_condition_expression("#partition = :partition")
            .expression_attribute_names("#partition", PARTITION)
            .expression_attribute_values(":partition", text(partition));
        let mut next = Some(None);
        while let Some(start) = next {
            let query = query.clone().set_exclusive_start_key(start);
            let page = self.client.send_with_reader(query.build(), usual).await;
            let page = page.map_err(|error| StoreError::of_call("Query", &self.table, &error))?;
            let last = match page {
                Answer::Read(Page {
                    items,
                    last_evaluated_key,
                }) => {
                    entries.extend(items.into_iter().map(|Record(entry)| entry));
                    last_evaluated_key.map(item_of)
                }
                Answer::Output(page) => {
                    let items = page.items.unwrap_or_default();
                    entries.extend(decode_all(&self.table, SORT, items));
                    page.last_evaluated_key
                }
            };
            next = last.map(Some);
        }
        Ok(entries)
    }

    /// The SDK's builders check at run time that everything required was given.
    fn incomplete(&self, operation: &'static str) -> StoreError {
        StoreError::Refused {
            operation,
            resource: self.table.clone(),
            code: "incomplete request".to_owned(),
        }
    }
}

/// The partition that a caller of this kind reads.
fn partition(owner: Option<&str>) -> String {
    match owner {
        None => ALL.to_owned(),
        Some(owner) => format!("owner#{owner}"),
    }
}

/// A whole primary key.
fn place(partition: &str, sort: &str) -> Item {
    HashMap::from([
        (PARTITION.to_owned(), text(partition)),
        (SORT.to_owned(), text(sort)),
    ])
}

/// A primary key as answers have it.
type Place = Record<BTreeMap<String, String>>;

fn item_of(Record(place): Place) -> Item {
    place
        .into_iter()
        .map(|(name, value)| (name, text(value)))
        .collect()
}

/// The usual answer to `Query`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    items: Vec<Record<KnowledgeBase>>,
    last_evaluated_key: Option<Place>,
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::operation::put_item::PutItemInput;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{
        catalog_with, clients_at, ids, knowledge_base, knowledge_base_json, named, scripted,
    };

    #[tokio::test]
    async fn each_kind_of_caller_reads_its_own_partition() {
        let store = catalog_with(&[
            knowledge_base("public", None),
            knowledge_base("anna-1", Some("anna")),
            knowledge_base("anna-2", Some("anna")),
            knowledge_base("bo-1", Some("bo")),
        ])
        .await;
        let asked = named(&["anna-1", "bo-1", "public", "no-such"]);
        let rows: [(Reach<'_>, &[&str]); 7] = [
            (Reach::Nothing, &[]),
            (
                Reach::Everything { owner: None },
                &["anna-1", "anna-2", "bo-1", "public"],
            ),
            (
                Reach::Everything {
                    owner: Some("anna"),
                },
                &["anna-1", "anna-2"],
            ),
            (
                Reach::Everything {
                    owner: Some("nobody"),
                },
                &[],
            ),
            (Reach::Everything { owner: Some("") }, &[]),
            (
                Reach::Listed {
                    owner: None,
                    ids: &asked,
                },
                &["anna-1", "bo-1", "public"],
            ),
            (
                Reach::Listed {
                    owner: Some("anna"),
                    ids: &asked,
                },
                &["anna-1"],
            ),
        ];
        for (reach, expected) in rows {
            let read = store.read(&reach).await.unwrap();
            assert_eq!(ids(&read), named(expected), "{reach:?}");
            assert_eq!(read.len(), expected.len());
        }
    }

    #[tokio::test]
    async fn one_unreadable_entry_does_not_take_the_others_down() {
        let store = catalog_with(&[knowledge_base("good", None)]).await;
        let mut item = place(ALL, "bad");
        item.insert("id".to_owned(), text("bad"));
        store
            .client
            .send(
                PutItemInput::builder()
                    .table_name("catalog")
                    .set_item(Some(item))
                    .build(),
            )
            .await
            .unwrap();

        assert_eq!(ids(&store.list_all().await.unwrap()), named(&["good"]));
        let bad = KnowledgeBaseId::parse("bad").unwrap();
        let error = store.get(&bad).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        assert_eq!(store.remove(&bad).await, Ok(true));
    }

    #[tokio::test]
    async fn every_page_is_read_whichever_way_it_can_be_read() {
        let place = |name: &str| json!({ "partition": { "S": ALL }, "sort": { "S": name } });
        let page = |items: &[Value], last: Option<&str>| {
            let mut page = json!({ "Count": items.len(), "Items": items, "ScannedCount": 9 });
            if let Some(last) = last {
                page["LastEvaluatedKey"] = place(last);
            }
            page.to_string()
        };
        let usual_page = page(&[knowledge_base_json("a")], Some("a"));
        let unreadable = page(&[place("b"), knowledge_base_json("c")], Some("c"));
        let end = page(&[], None);
        let is_usual = |page: &str| usual::<Page>(page.as_bytes()).is_some();
        assert!(is_usual(&usual_page) && !is_usual(&unreadable) && is_usual(&end));

        let server = scripted([usual_page, unreadable, end].map(|page| (200, page)).into()).await;
        let store = CatalogStore::new(clients_at(&server.url).dynamodb, "catalog");
        assert_eq!(ids(&store.list_all().await.unwrap()), named(&["a", "c"]));
        let starts = server.requests().into_iter().map(|body| {
            let body: Value = serde_json::from_str(&body).unwrap();
            body.get("ExclusiveStartKey").cloned()
        });
        let expected = [None, Some(place("a")), Some(place("c"))];
        assert_eq!(starts.collect::<Vec<_>>(), expected);
    }

    proptest! {
        #[test]
        fn no_owner_reads_the_partition_of_another_or_of_the_deployment(
            one in ".{0,12}", other in ".{0,12}",
        ) {
            prop_assert_ne!(partition(Some(&one)), partition(None));
            prop_assert_ne!(partition(Some(&one)), task::task_partition(&other));
            prop_assert_eq!(partition(Some(&one)) == partition(Some(&other)), one == other);
        }
    }
}
