//! The table of API keys. Partition key `key_hash`; the index `key_id-index` finds a record by the
//! identifier that people use.
//!
//! Beside a record's own attributes an item carries `revision`, the number of changes to it. A change
//! names the revision that it was decided on, so that of two operators who change one key at the same
//! time the later one is told, instead of undoing the other's work.

use aws_sdk_dynamodb::operation::get_item::GetItemInput;
use aws_sdk_dynamodb::operation::put_item::PutItemInput;
use aws_sdk_dynamodb::operation::query::QueryInput;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsInput;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use raglan_aws::{Answer, DynamoDb, ServiceClient};
use raglan_core::key::KeyHash;
use raglan_core::key_record::KeyRecord;
use serde::Deserialize;

use crate::error::StoreError;
use crate::item_json::{Record, usual};
use crate::table::{decode, decode_all, encode, text};

const HASH: &str = "key_hash";
const ID: &str = "key_id";
const ID_INDEX: &str = "key_id-index";
const REVISION: &str = "revision";
const IS_NEW: &str = "attribute_not_exists(key_hash)";
/// No SHA-256 that anybody will find the key to.
const NO_KEY_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The keys' table.
#[derive(Debug, Clone)]
pub struct KeyStore {
    client: ServiceClient<DynamoDb>,
    table: String,
}

/// A record as it was read, and which of its revisions that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRecord {
    /// The record.
    pub record: KeyRecord,
    /// `None` for a record that was never changed.
    revision: Option<u64>,
}

impl ReadRecord {
    const fn next_revision(&self) -> u64 {
        match self.revision {
            None => 1,
            Some(revision) => revision.saturating_add(1),
        }
    }
}

/// The usual answer to `GetItem`.
#[derive(Deserialize)]
struct Found {
    #[serde(rename = "Item")]
    item: Option<Record<KeyRecord>>,
}

impl KeyStore {
    /// The table of that name.
    #[must_use]
    pub fn new(client: ServiceClient<DynamoDb>, table: impl Into<String>) -> Self {
        Self {
            client,
            table: table.into(),
        }
    }

    /// The record of the key with this hash, as it is now: a consistent read.
    ///
    /// # Errors
    /// [`StoreError`]; `Corrupt` names the hash's fingerprint.
    pub async fn find(&self, hash: &KeyHash) -> Result<Option<KeyRecord>, StoreError> {
        let input = GetItemInput::builder()
            .table_name(&self.table)
            .key(HASH, text(hash.as_str()))
            .consistent_read(true);
        let answer = self.client.send_with_reader(input.build(), usual).await;
        match answer.map_err(|error| StoreError::of_call("GetItem", &self.table, &error))? {
            Answer::Read(Found { item }) => Ok(item.map(|Record(record)| record)),
            Answer::Output(output) => output
                .item
                .map(|item| decode(&self.table, &hash.fingerprint(), item))
                .transpose(),
        }
    }

    /// Like [`KeyStore::find`], to change the record afterwards.
    ///
    /// # Errors
    /// [`StoreError`]; `Corrupt` names the hash's fingerprint.
    pub async fn read(&self, hash: &KeyHash) -> Result<Option<ReadRecord>, StoreError> {
        let input = GetItemInput::builder()
            .table_name(&self.table)
            .key(HASH, text(hash.as_str()))
            .consistent_read(true);
        let output = self.client.send(input.build()).await;
        let output = output.map_err(|error| StoreError::of_call("GetItem", &self.table, &error))?;
        let Some(item) = output.item else {
            return Ok(None);
        };
        let revision = item.get(REVISION).and_then(|value| value.as_n().ok());
        let revision = revision.and_then(|number| number.parse().ok());
        let record = decode(&self.table, &hash.fingerprint(), item)?;
        Ok(Some(ReadRecord { record, revision }))
    }

    /// Opens a connection to the table by asking for a key that cannot exist, so that the first
    /// request does not pay for the TLS handshake.
    ///
    /// # Errors
    /// [`StoreError`]; the next call opens the connection then.
    pub async fn warm(&self) -> Result<(), StoreError> {
        self.client
            .send(
                GetItemInput::builder()
                    .table_name(&self.table)
                    .key(HASH, text(NO_KEY_HASH))
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_call("GetItem", &self.table, &error))?;
        Ok(())
    }

    /// Writes the record of a new key.
    ///
    /// # Errors
    /// [`StoreError`]; `Conflict` when there is a record with this hash already.
    pub async fn put_new(&self, record: &KeyRecord) -> Result<(), StoreError> {
        self.write(record, Some(IS_NEW)).await
    }

    /// Writes the record, whatever was there before. What somebody else changed in the meantime is
    /// lost; [`KeyStore::replace`] is for changes.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put(&self, record: &KeyRecord) -> Result<(), StoreError> {
        self.write(record, None).await
    }

    /// Writes what became of a record since it was read.
    ///
    /// # Errors
    /// [`StoreError`]; `Conflict` when somebody else changed it meanwhile. Nothing is written then.
    pub async fn replace(&self, before: &ReadRecord, after: &KeyRecord) -> Result<(), StoreError> {
        let result = self.put_replacement(before, after).await;
        if let Err(StoreError::Conflict { .. }) = &result {
            // The client repeats a call whose answer was lost, and then meets its own change.
            let written = ReadRecord {
                record: after.clone(),
                revision: Some(before.next_revision()),
            };
            if self.read(&after.key_hash).await? == Some(written) {
                return Ok(());
            }
        }
        result
    }

    async fn put_replacement(
        &self,
        before: &ReadRecord,
        after: &KeyRecord,
    ) -> Result<(), StoreError> {
        let put = self.replacement(before, after)?;
        self.client
            .send(
                PutItemInput::builder()
                    .table_name(&self.table)
                    .set_item(Some(put.item))
                    .set_condition_expression(put.condition_expression)
                    .set_expression_attribute_values(put.expression_attribute_values)
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_call("PutItem", &self.table, &error))?;
        Ok(())
    }

    /// Writes both records of a rotation, or neither.
    ///
    /// # Errors
    /// [`StoreError`]; `Conflict` when somebody else changed the replaced key meanwhile, or when there
    /// is a record with the successor's hash already.
    pub async fn rotate(
        &self,
        before: &ReadRecord,
        replaced: &KeyRecord,
        successor: &KeyRecord,
    ) -> Result<(), StoreError> {
        let new = Put::builder()
            .table_name(&self.table)
            .set_item(Some(encode(&self.table, &successor.key_id, successor)?))
            .condition_expression(IS_NEW)
            .build()
            .map_err(|_| self.incomplete())?;
        let changes = [self.replacement(before, replaced)?, new]
            .map(|put| TransactWriteItem::builder().put(put).build());
        self.client
            .send(
                TransactWriteItemsInput::builder()
                    .set_transact_items(Some(changes.into()))
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_transaction(&self.table, &error))?;
        Ok(())
    }

    /// All records, in no order. Reads the whole table. Records that cannot be read are logged and
    /// left out.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn list(&self) -> Result<Vec<KeyRecord>, StoreError> {
        let mut records = Vec::new();
        let mut pages = self
            .client
            .sdk()
            .scan()
            .table_name(&self.table)
            .consistent_read(true)
            .into_paginator()
            .send();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| StoreError::of_call("Scan", &self.table, &error))?;
            records.extend(decode_all(&self.table, ID, page.items.unwrap_or_default()));
        }
        Ok(records)
    }

    /// The record of the key with this identifier. The index follows the table within moments, so a
    /// key that was made just now may not be found yet; the record itself is read consistently.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn find_by_id(&self, key_id: &str) -> Result<Option<KeyRecord>, StoreError> {
        if key_id.is_empty() {
            return Ok(None);
        }
        let output = self
            .client
            .send(
                QueryInput::builder()
                    .table_name(&self.table)
                    .index_name(ID_INDEX)
                    .key_condition_expression("key_id = :key_id")
                    .expression_attribute_values(":key_id", text(key_id))
                    .limit(1)
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_call("Query", &self.table, &error))?;
        let hash = output
            .items
            .unwrap_or_default()
            .into_iter()
            .next()
            .and_then(|mut item| item.remove(HASH))
            .and_then(|value| value.as_s().ok().cloned());
        match hash {
            None => Ok(None),
            Some(hash) => {
                let hash = KeyHash::try_from(hash).map_err(|_| StoreError::Corrupt {
                    resource: self.table.clone(),
                    record: key_id.to_owned(),
                })?;
                self.find(&hash).await
            }
        }
    }

    /// The record in the place of the revision that was read.
    fn replacement(&self, before: &ReadRecord, after: &KeyRecord) -> Result<Put, StoreError> {
        let mut item = encode(&self.table, &after.key_id, after)?;
        let number = |revision: u64| AttributeValue::N(revision.to_string());
        item.insert(REVISION.to_owned(), number(before.next_revision()));
        let put = Put::builder().table_name(&self.table).set_item(Some(item));
        let put = match before.revision {
            // Without the first condition a record that is gone would come back.
            None => put.condition_expression(
                "attribute_exists(key_hash) AND attribute_not_exists(revision)",
            ),
            Some(revision) => put
                .condition_expression("revision = :revision")
                .expression_attribute_values(":revision", number(revision)),
        };
        put.build().map_err(|_| self.incomplete())
    }

    /// The SDK's builders check at run time that everything required was given.
    fn incomplete(&self) -> StoreError {
        StoreError::Refused {
            operation: "TransactWriteItems",
            resource: self.table.clone(),
            code: "incomplete request".to_owned(),
        }
    }

    async fn write(&self, record: &KeyRecord, condition: Option<&str>) -> Result<(), StoreError> {
        let item = encode(&self.table, &record.key_id, record)?;
        self.client
            .send(
                PutItemInput::builder()
                    .table_name(&self.table)
                    .set_item(Some(item))
                    .set_condition_expression(condition.map(ToOwned::to_owned))
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_call("PutItem", &self.table, &error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        Key, clients_at, create_table, key_record, local_dynamodb, nobody_listens, scripted,
    };

    async fn store() -> KeyStore {
        let client = local_dynamodb().await;
        let index = Key::of(ID, None).index(ID_INDEX);
        create_table(&client, "keys", &Key::of(HASH, None), Some(&index)).await;
        KeyStore::new(client, "keys")
    }

    #[tokio::test]
    async fn a_record_is_found_by_its_hash_and_by_its_identifier() {
        let store = store().await;
        store.warm().await.unwrap();
        let (one, two) = (key_record("key-1", 1), key_record("key-2", 2));
        store.put_new(&one).await.unwrap();
        store.put_new(&two).await.unwrap();
        assert_eq!(store.find(&one.key_hash).await, Ok(Some(one.clone())));
        assert_eq!(store.find_by_id("key-2").await, Ok(Some(two)));
        assert_eq!(store.find(&key_record("key-3", 3).key_hash).await, Ok(None));
        for unknown in ["key-3", ""] {
            assert_eq!(store.find_by_id(unknown).await, Ok(None));
        }
        assert_eq!(store.list().await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_revoked_key_is_seen_as_revoked_by_the_next_read() {
        let store = store().await;
        let mut record = key_record("key-1", 1);
        store.put_new(&record).await.unwrap();
        record.revoked_at = Some(record.created_at);
        store.put(&record).await.unwrap();
        assert_eq!(store.find(&record.key_hash).await, Ok(Some(record)));
    }

    #[tokio::test]
    async fn a_new_key_never_replaces_an_existing_one() {
        let store = store().await;
        let record = key_record("key-1", 1);
        store.put_new(&record).await.unwrap();
        let error = store.put_new(&record).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    }

    #[tokio::test]
    async fn of_two_changes_at_once_the_second_is_refused_and_the_first_stays() {
        let store = store().await;
        let record = key_record("key-1", 1);
        store.put_new(&record).await.unwrap();
        // Both on a fresh record and on one that was changed before.
        for round in 0..2 {
            let one = store.read(&record.key_hash).await.unwrap().unwrap();
            let two = one.clone();
            let narrowed = KeyRecord {
                name: format!("narrowed {round}"),
                ..one.record.clone()
            };
            store.replace(&one, &narrowed).await.unwrap();
            let disabled = KeyRecord {
                enabled: false,
                ..two.record.clone()
            };
            let error = store.replace(&two, &disabled).await.unwrap_err();
            assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
            // A repetition of the first one, whose answer was lost, is none.
            store.replace(&one, &narrowed).await.unwrap();
            assert_eq!(store.find(&record.key_hash).await, Ok(Some(narrowed)));
        }
        let unknown = ReadRecord {
            record: key_record("key-2", 2),
            revision: None,
        };
        let error = store.replace(&unknown, &unknown.record).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_rotation_that_loses_a_race_leaves_no_second_key_behind() {
        let store = store().await;
        let (old, new, other) = (
            key_record("key-1", 1),
            key_record("key-2", 2),
            key_record("key-3", 3),
        );
        store.put_new(&old).await.unwrap();
        let read = store.read(&old.key_hash).await.unwrap().unwrap();
        let replaced = |by: &KeyRecord| KeyRecord {
            replaced_by: Some(by.key_id.clone()),
            ..old.clone()
        };
        store.rotate(&read, &replaced(&new), &new).await.unwrap();
        let error = store
            .rotate(&read, &replaced(&other), &other)
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
        assert_eq!(store.find(&other.key_hash).await, Ok(None));
        assert_eq!(store.find(&new.key_hash).await, Ok(Some(new.clone())));
        assert_eq!(store.find(&old.key_hash).await, Ok(Some(replaced(&new))));
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_is_named_without_its_content() {
        let store = store().await;
        let record = key_record("key-1", 1);
        let mut item = encode("keys", "key-1", &record).unwrap();
        item.insert("enabled".to_owned(), text("a-secret-word"));
        store
            .client
            .send(
                PutItemInput::builder()
                    .table_name("keys")
                    .set_item(Some(item))
                    .build(),
            )
            .await
            .unwrap();

        let error = store.find(&record.key_hash).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(&record.key_hash.fingerprint()));
        assert!(!shown.contains("a-secret-word") && !shown.contains(record.key_hash.as_str()));
        assert_eq!(store.list().await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn a_store_that_is_down_is_unavailable_and_never_an_unknown_key() {
        let store = KeyStore::new(clients_at(&nobody_listens().await).dynamodb, "keys");
        let error = store
            .find(&key_record("key-1", 1).key_hash)
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        assert!(error.is_transient());
    }

    #[tokio::test]
    async fn each_answer_of_the_service_has_its_cause() {
        let rows = [
            (400, "ThrottlingException", 3, "store_throttled"),
            (
                400,
                "ProvisionedThroughputExceededException",
                3,
                "store_throttled",
            ),
            (500, "InternalServerError", 3, "store_unavailable"),
            (503, "", 3, "store_unavailable"),
            (400, "AccessDeniedException", 1, "store_denied"),
            (400, "ExpiredTokenException", 1, "store_denied"),
            (400, "ResourceNotFoundException", 1, "store_not_found"),
            (400, "ValidationException", 1, "store_refused"),
        ];
        for (status, code, attempts, class) in rows {
            let body = format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}"}}"#);
            let body = if code.is_empty() {
                "busy".to_owned()
            } else {
                body
            };
            let server = scripted(vec![(status, body); attempts]).await;
            let store = KeyStore::new(clients_at(&server.url).dynamodb, "keys");
            let error = store
                .find(&key_record("key-1", 1).key_hash)
                .await
                .unwrap_err();
            assert_eq!(error.class(), class, "{error}");
            assert_eq!(server.requests().len(), attempts, "{code}");
        }
    }
}
