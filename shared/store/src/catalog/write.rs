//! Changing knowledge bases: both copies at once, and only from the state that was read.

use std::collections::HashMap;

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsInput;
use aws_sdk_dynamodb::types::{AttributeValue, Delete, Put, TransactWriteItem};
use raglan_core::catalog::{KnowledgeBase, KnowledgeBaseId};
use raglan_core::clock::Timestamp;

use super::{ALL, CatalogStore, PARTITION, partition, place};
use crate::error::StoreError;
use crate::table::{Item, encode, text};

const OWNER: &str = "owner";
const UPDATED_AT: &str = "updated_at";
const TRANSACTION: &str = "TransactWriteItems";

/// Whether [`CatalogStore::put`] may replace an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutMode {
    /// Only a new entry: one that exists is a `Conflict`.
    CreateOnly,
    /// A new entry or one in the place of an earlier one.
    Replace,
}

impl CatalogStore {
    /// Writes an entry. When its owner changed, the former owner's copy goes in the same transaction.
    ///
    /// # Errors
    /// [`StoreError`]; `Conflict` when `mode` forbids to replace, or when somebody else changed the
    /// owner at the same time.
    pub async fn put(
        &self,
        knowledge_base: &KnowledgeBase,
        mode: PutMode,
    ) -> Result<(), StoreError> {
        let id = knowledge_base.id.as_str();
        let before = match mode {
            PutMode::CreateOnly => None,
            PutMode::Replace => self.get_item(ALL, id).await?.as_ref().map(Entry::of),
        };
        let owner_before = before.as_ref().and_then(|entry| entry.owner.as_deref());
        let condition = Condition::unchanged(before.as_ref());
        self.write(knowledge_base, owner_before, condition).await
    }

    /// Writes what became of an entry since it was read. When its owner changed, the former owner's
    /// copy goes in the same transaction.
    ///
    /// # Errors
    /// [`StoreError`]; `Conflict` when somebody else changed or removed the entry meanwhile. Nothing is
    /// written then.
    pub async fn replace(
        &self,
        before: &KnowledgeBase,
        after: &KnowledgeBase,
    ) -> Result<(), StoreError> {
        let entry = Entry {
            owner: before.owner.clone(),
        };
        let unchanged = Condition::unchanged(Some(&entry)).and_updated_at(before.updated_at);
        self.write(after, before.owner.as_deref(), unchanged).await
    }

    async fn write(
        &self,
        knowledge_base: &KnowledgeBase,
        owner_before: Option<&str>,
        condition: Condition,
    ) -> Result<(), StoreError> {
        let id = knowledge_base.id.as_str();
        let owner = knowledge_base.owner.as_deref();
        let item = encode(&self.table, id, knowledge_base)?;
        let mut changes = vec![self.put_change(place(ALL, id), item.clone(), condition)?];
        if owner.is_some() {
            let copy = place(&partition(owner), id);
            changes.push(self.put_change(copy, item, Condition::default())?);
        }
        if owner_before.is_some() && owner_before != owner {
            let copy = place(&partition(owner_before), id);
            changes.push(self.delete_change(copy, Condition::default())?);
        }
        self.transact(changes).await
    }

    /// Takes an entry away. True when there was one.
    ///
    /// # Errors
    /// [`StoreError`]; `Conflict` when somebody else changed the owner at the same time.
    pub async fn remove(&self, id: &KnowledgeBaseId) -> Result<bool, StoreError> {
        let id = id.as_str();
        let Some(item) = self.get_item(ALL, id).await? else {
            return Ok(false);
        };
        let entry = Entry::of(&item);
        let condition = Condition::unchanged(Some(&entry));
        let mut changes = vec![self.delete_change(place(ALL, id), condition)?];
        if entry.owner.is_some() {
            let copy = place(&partition(entry.owner.as_deref()), id);
            changes.push(self.delete_change(copy, Condition::default())?);
        }
        self.transact(changes).await?;
        Ok(true)
    }

    fn put_change(
        &self,
        place: Item,
        mut item: Item,
        condition: Condition,
    ) -> Result<TransactWriteItem, StoreError> {
        item.extend(place);
        let put = Put::builder()
            .table_name(&self.table)
            .set_item(Some(item))
            .set_condition_expression(condition.expression)
            .set_expression_attribute_names(condition.names)
            .set_expression_attribute_values(condition.values)
            .build()
            .map_err(|_| self.incomplete(TRANSACTION))?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    fn delete_change(
        &self,
        place: Item,
        condition: Condition,
    ) -> Result<TransactWriteItem, StoreError> {
        let delete = Delete::builder()
            .table_name(&self.table)
            .set_key(Some(place))
            .set_condition_expression(condition.expression)
            .set_expression_attribute_names(condition.names)
            .set_expression_attribute_values(condition.values)
            .build()
            .map_err(|_| self.incomplete(TRANSACTION))?;
        Ok(TransactWriteItem::builder().delete(delete).build())
    }

    async fn transact(&self, changes: Vec<TransactWriteItem>) -> Result<(), StoreError> {
        self.client
            .send(
                TransactWriteItemsInput::builder()
                    .set_transact_items(Some(changes))
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_transaction(&self.table, &error))?;
        Ok(())
    }
}

/// The part of a stored entry that its replacement depends on; readable even if the rest is not.
struct Entry {
    owner: Option<String>,
}

impl Entry {
    fn of(item: &Item) -> Self {
        let owner = item.get(OWNER).and_then(|value| value.as_s().ok());
        Self {
            owner: owner.cloned(),
        }
    }
}

/// What must hold for a change to be made.
#[derive(Default)]
struct Condition {
    expression: Option<String>,
    names: Option<HashMap<String, String>>,
    values: Option<HashMap<String, AttributeValue>>,
}

impl Condition {
    /// The entry is as it was read: absent, or still its owner's.
    fn unchanged(before: Option<&Entry>) -> Self {
        let names = |name: &str, attribute: &str| {
            Some(HashMap::from([(name.to_owned(), attribute.to_owned())]))
        };
        match before {
            None => Self {
                expression: Some("attribute_not_exists(#partition)".to_owned()),
                names: names("#partition", PARTITION),
                values: None,
            },
            Some(Entry { owner: None }) => Self {
                expression: Some("attribute_not_exists(#owner)".to_owned()),
                names: names("#owner", OWNER),
                values: None,
            },
            Some(Entry { owner: Some(owner) }) => Self {
                expression: Some("#owner = :owner".to_owned()),
                names: names("#owner", OWNER),
                values: Some(HashMap::from([(":owner".to_owned(), text(owner))])),
            },
        }
    }

    /// And the entry was last changed at that moment.
    fn and_updated_at(mut self, moment: Timestamp) -> Self {
        let owner = self.expression.take().unwrap_or_default();
        self.expression = Some(format!(
            "attribute_exists(#partition) AND {owner} AND #updated = :updated"
        ));
        let names = self.names.get_or_insert_default();
        names.insert("#partition".to_owned(), PARTITION.to_owned());
        names.insert("#updated".to_owned(), UPDATED_AT.to_owned());
        let values = self.values.get_or_insert_default();
        values.insert(":updated".to_owned(), text(moment.to_string()));
        self
    }
}

#[cfg(test)]
mod tests {
    use raglan_core::access::Reach;

    use super::*;
    use crate::testing::{catalog_with, clients_at, knowledge_base, scripted};

    #[tokio::test]
    async fn an_entry_that_moves_to_another_owner_leaves_the_former_one_at_once() {
        let store = catalog_with(&[knowledge_base("kb", Some("anna"))]).await;
        for owner in [Some("bo"), None, Some("anna")] {
            let entry = knowledge_base("kb", owner);
            store.put(&entry, PutMode::Replace).await.unwrap();
            for reader in ["anna", "bo"] {
                let read = store
                    .read(&Reach::Everything {
                        owner: Some(reader),
                    })
                    .await
                    .unwrap();
                assert_eq!(
                    read.len(),
                    usize::from(owner == Some(reader)),
                    "{owner:?} {reader}"
                );
            }
            assert_eq!(store.get(&entry.id).await, Ok(Some(entry)));
        }
    }

    #[tokio::test]
    async fn a_new_entry_never_replaces_an_existing_one() {
        let store = catalog_with(&[knowledge_base("kb", Some("anna"))]).await;
        let other = knowledge_base("kb", Some("bo"));
        let error = store.put(&other, PutMode::CreateOnly).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
        assert_eq!(
            store.read(&Reach::Everything { owner: Some("bo") }).await,
            Ok(Vec::new())
        );
    }

    #[tokio::test]
    async fn of_two_edits_at_once_the_second_is_refused_and_the_first_stays() {
        for owner in [None, Some("anna")] {
            let before = knowledge_base("kb", owner);
            let store = catalog_with(std::slice::from_ref(&before)).await;
            let first = KnowledgeBase {
                description: "the first".to_owned(),
                updated_at: before.updated_at.plus_seconds(1),
                ..before.clone()
            };
            store.replace(&before, &first).await.unwrap();
            let second = KnowledgeBase {
                owner: Some("bo".to_owned()),
                updated_at: before.updated_at.plus_seconds(2),
                ..before.clone()
            };
            let error = store.replace(&before, &second).await.unwrap_err();
            assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
            assert_eq!(store.get(&before.id).await, Ok(Some(first.clone())));
            store.remove(&before.id).await.unwrap();
            let error = store.replace(&first, &first).await.unwrap_err();
            assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
        }
    }

    #[tokio::test]
    async fn a_replaced_entry_moves_between_owners_in_one_step() {
        let before = knowledge_base("kb", Some("anna"));
        let store = catalog_with(std::slice::from_ref(&before)).await;
        let after = KnowledgeBase {
            owner: Some("bo".to_owned()),
            ..before.clone()
        };
        store.replace(&before, &after).await.unwrap();
        for (reader, count) in [("anna", 0), ("bo", 1)] {
            let reach = Reach::Everything {
                owner: Some(reader),
            };
            assert_eq!(store.read(&reach).await.unwrap().len(), count, "{reader}");
        }
    }

    #[tokio::test]
    async fn a_removed_entry_is_gone_for_its_owner_too() {
        let entry = knowledge_base("kb", Some("anna"));
        let store = catalog_with(std::slice::from_ref(&entry)).await;
        assert_eq!(store.remove(&entry.id).await, Ok(true));
        assert_eq!(store.remove(&entry.id).await, Ok(false));
        assert_eq!(store.list_all().await, Ok(Vec::new()));
        assert_eq!(
            store
                .read(&Reach::Everything {
                    owner: Some("anna")
                })
                .await,
            Ok(Vec::new())
        );
    }

    #[tokio::test]
    async fn a_transaction_that_loses_a_race_is_a_conflict_and_a_busy_one_is_throttled() {
        for (reason, class) in [
            ("TransactionConflict", "store_conflict"),
            ("ThrottlingError", "store_throttled"),
        ] {
            let body = serde_json::json!({
                "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
                "Message": "cancelled",
                "CancellationReasons": [{"Code": "None"}, {"Code": reason}],
            });
            let server = scripted(vec![(400, body.to_string()); 3]).await;
            let store = CatalogStore::new(clients_at(&server.url).dynamodb, "catalog");
            let entry = knowledge_base("kb", None);
            let error = store.put(&entry, PutMode::CreateOnly).await.unwrap_err();
            assert_eq!(error.class(), class, "{error}");
        }
    }
}
