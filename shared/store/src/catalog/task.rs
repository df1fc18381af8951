//! Indexing tasks in the catalogue's table.

use aws_sdk_dynamodb::operation::put_item::PutItemInput;
use aws_sdk_dynamodb::types::AttributeValue;
use raglan_core::clock::Timestamp;
use raglan_core::task::Task;

use super::{CatalogStore, place};
use crate::error::StoreError;
use crate::table::{Item, decode, encode};

const EXPIRES_AT: &str = "expires_at";
const TASK: &str = "task";
/// Longest task identifier that is looked up.
const TASK_ID_MAX_CHARS: usize = 64;

impl CatalogStore {
    /// The task with this identifier, as it is now. A text that cannot be an identifier is not
    /// looked up. DynamoDB deletes expired items when it gets to it; until then they count as absent.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn find_task(
        &self,
        task_id: &str,
        now: Timestamp,
    ) -> Result<Option<Task>, StoreError> {
        if !is_task_id(task_id) {
            return Ok(None);
        }
        let item = self.get_item(&task_partition(task_id), TASK).await?;
        match item {
            Some(item) if !is_expired(&item, now) => decode(&self.table, task_id, item).map(Some),
            _ => Ok(None),
        }
    }

    /// Writes a task, new or in the place of its earlier state; it is kept until `expires_at`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_task(&self, task: &Task, expires_at: Timestamp) -> Result<(), StoreError> {
        let mut item = encode(&self.table, &task.id, task)?;
        item.extend(place(&task_partition(&task.id), TASK));
        item.insert(
            EXPIRES_AT.to_owned(),
            AttributeValue::N(expires_at.epoch_seconds().to_string()),
        );
        self.client
            .send(
                PutItemInput::builder()
                    .table_name(&self.table)
                    .set_item(Some(item))
                    .build(),
            )
            .await
            .map_err(|error| StoreError::of_call("PutItem", &self.table, &error))?;
        Ok(())
    }
}

pub(super) fn task_partition(task_id: &str) -> String {
    format!("task#{task_id}")
}

fn is_task_id(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=TASK_ID_MAX_CHARS).contains(&text.len()) && text.bytes().all(inner)
}

/// Whether the item's time is over. An item without an end never ends; one whose end cannot be read
/// counts as ended.
fn is_expired(item: &Item, now: Timestamp) -> bool {
    match item.get(EXPIRES_AT) {
        None => false,
        Some(AttributeValue::N(end)) => end
            .parse::<i64>()
            .map_or(true, |end| now.epoch_seconds() >= end),
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use raglan_core::catalog::KnowledgeBaseId;
    use raglan_core::task::TaskStatus;

    use super::*;
    use crate::testing::{catalog_with, clients_at, scripted};

    const NOW: Timestamp = Timestamp::from_epoch_seconds(1_800_000_000);

    fn task(id: &str) -> Task {
        Task {
            id: id.to_owned(),
            kb_id: KnowledgeBaseId::parse("kb").unwrap(),
            document_id: None,
            status: TaskStatus::Running,
            retry_count: 1,
            error: None,
            created_at: NOW,
            updated_at: NOW,
        }
    }

    #[tokio::test]
    async fn a_task_is_found_until_the_moment_it_expires() {
        let store = catalog_with(&[]).await;
        let task = task("0a1b");
        store.put_task(&task, NOW.plus_seconds(60)).await.unwrap();
        assert_eq!(store.find_task("0a1b", NOW).await, Ok(Some(task)));
        assert_eq!(
            store.find_task("0a1b", NOW.plus_seconds(60)).await,
            Ok(None)
        );
        assert_eq!(store.find_task("ffff", NOW).await, Ok(None));
    }

    #[tokio::test]
    async fn a_text_that_is_no_task_identifier_is_not_looked_up() {
        let server = scripted(Vec::new()).await;
        let store = CatalogStore::new(clients_at(&server.url).dynamodb, "catalog");
        for text in ["", "a#b", "../x", "задача", &"a".repeat(65)] {
            assert_eq!(store.find_task(text, NOW).await, Ok(None), "{text}");
        }
        assert!(server.requests().is_empty());
    }
}
