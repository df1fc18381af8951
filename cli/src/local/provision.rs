//! Makes the tables and queues of the template on the emulators, through the AWS SDK. What is there
//! already is kept, so that a restart finds its data.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types as dynamodb;
use aws_sdk_sqs::types::QueueAttributeName;
use raglan_aws::AwsClients;
use raglan_store::StoreError;

use super::template::{
    AttributeKind, IndexDefinition, KeyAttribute, KeySchema, LocalTemplate, Projection,
    QueueDefinition, TableDefinition,
};

use crate::language::text;

/// The names under which the functions find their tables and queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalResources {
    /// `KEYS_TABLE`
    pub keys_table: String,
    /// `CATALOG_TABLE`
    pub catalog_table: String,
    /// `STATE_TABLE`
    pub state_table: String,
    /// `AUDIT_TABLE`
    pub audit_table: String,
    /// `AUDIT_QUEUE_URL`
    pub audit_queue_url: String,
    /// The queue of events that could not be stored.
    pub audit_dead_letter_queue_url: String,
}

/// The local tables and queues could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// An emulator refused or did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A table of an earlier version has another key or other indexes.
    #[error(
        "{}",
        text!(
            "the table {table} was made by another version: {difference}; move the local data \
             away or use that version",
            table = .table,
            difference = .difference
        )
    )]
    SchemaDiffers {
        /// The table.
        table: String,
        /// What differs.
        difference: String,
    },
    /// The template lacks something that the functions need or refers to something it lacks.
    #[error("{}", text!("the template has no resource {name}", name = .0))]
    Missing(String),
    /// A definition of the template cannot be put into a request.
    #[error(
        "{}",
        text!(
            "the template's table {table} is incomplete: {cause}",
            table = .table,
            cause = .cause
        )
    )]
    Incomplete {
        /// The table.
        table: String,
        /// What the SDK says.
        cause: BuildError,
    },
}

/// Makes what is missing and leaves alone what is there.
///
/// # Errors
/// [`ProvisionError`]. What was made before the failure stays; running this again goes on from there.
pub async fn provision(
    clients: &AwsClients,
    template: &LocalTemplate,
) -> Result<LocalResources, ProvisionError> {
    for table in &template.tables {
        provision_table(&clients.dynamodb.sdk(), table).await?;
    }
    let urls = provision_queues(&clients.sqs.sdk(), &template.queues).await?;

    let missing = |name: &str| ProvisionError::Missing(name.to_owned());
    let table = |name: &str| {
        let found = template.tables.iter().find(|table| table.name == name);
        found
            .map(|table| table.name.clone())
            .ok_or_else(|| missing(name))
    };
    let queue = |name: &str| urls.get(name).cloned().ok_or_else(|| missing(name));
    Ok(LocalResources {
        keys_table: table("KeysTable")?,
        catalog_table: table("CatalogTable")?,
        state_table: table("StateTable")?,
        audit_table: table("AuditTable")?,
        audit_queue_url: queue("AuditQueue")?,
        audit_dead_letter_queue_url: queue("AuditDeadLetterQueue")?,
    })
}

async fn provision_table(
    client: &aws_sdk_dynamodb::Client,
    table: &TableDefinition,
) -> Result<(), ProvisionError> {
    let name = &table.name;
    let described = client.describe_table().table_name(name).send().await;
    match described.map_err(|error| StoreError::of_call("DescribeTable", name, &error)) {
        Ok(output) => compare(table, output.table.as_ref())?,
        Err(StoreError::NotFound { .. }) => create_table(client, table).await?,
        Err(error) => return Err(error.into()),
    }
    if let Some(attribute) = &table.ttl_attribute {
        provision_ttl(client, name, attribute).await?;
    }
    Ok(())
}

async fn create_table(
    client: &aws_sdk_dynamodb::Client,
    table: &TableDefinition,
) -> Result<(), ProvisionError> {
    let incomplete = |cause| ProvisionError::Incomplete {
        table: table.name.clone(),
        cause,
    };
    let attributes = attribute_definitions(table).map_err(incomplete)?;
    let indexes = table
        .indexes
        .iter()
        .map(secondary_index)
        .collect::<Result<Vec<_>, _>>();
    let indexes = indexes.map_err(incomplete)?;
    client
        .create_table()
        .table_name(&table.name)
        .billing_mode(dynamodb::BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(attributes))
        .set_key_schema(Some(key_elements(&table.key).map_err(incomplete)?))
        .set_global_secondary_indexes((!indexes.is_empty()).then_some(indexes))
        .send()
        .await
        .map_err(|error| StoreError::of_call("CreateTable", &table.name, &error))?;
    Ok(())
}

/// Refuses a table that does not answer the queries that this version asks.
fn compare(
    table: &TableDefinition,
    found: Option<&dynamodb::TableDescription>,
) -> Result<(), ProvisionError> {
    let differs = |difference: String| ProvisionError::SchemaDiffers {
        table: table.name.clone(),
        difference,
    };
    let found = found.ok_or_else(|| differs(text!("it has no description").to_owned()))?;
    let kinds: BTreeMap<_, _> = found
        .attribute_definitions()
        .iter()
        .map(|attribute| (attribute.attribute_name(), attribute.attribute_type()))
        .collect();
    let same_key = |expected: &KeySchema, elements: &[dynamodb::KeySchemaElement]| {
        let expected: BTreeSet<_> = key_parts(expected)
            .map(|(attribute, role)| {
                (
                    attribute.name.as_str(),
                    role.as_str().to_owned(),
                    Some(scalar(attribute.kind)),
                )
            })
            .collect();
        let found: BTreeSet<_> = elements
            .iter()
            .map(|element| {
                let name = element.attribute_name();
                let kind = kinds.get(name).map(|kind| (*kind).clone());
                (name, element.key_type().as_str().to_owned(), kind)
            })
            .collect();
        expected == found
    };
    if !same_key(&table.key, found.key_schema()) {
        return Err(differs(text!("its key is another one").to_owned()));
    }
    for index in &table.indexes {
        let same = found
            .global_secondary_indexes()
            .iter()
            .find(|candidate| candidate.index_name() == Some(index.name.as_str()))
            .is_some_and(|candidate| {
                let kind = candidate.projection().and_then(|all| all.projection_type());
                same_key(&index.key, candidate.key_schema())
                    && kind == Some(&projection(index.projection))
            });
        if !same {
            return Err(differs(text!(
                "its index {name} is missing or another one",
                name = index.name
            )));
        }
    }
    Ok(())
}

async fn provision_ttl(
    client: &aws_sdk_dynamodb::Client,
    table: &str,
    attribute: &str,
) -> Result<(), ProvisionError> {
    let described = client
        .describe_time_to_live()
        .table_name(table)
        .send()
        .await
        .map_err(|error| StoreError::of_call("DescribeTimeToLive", table, &error))?;
    let current = described
        .time_to_live_description
        .and_then(|ttl| ttl.attribute_name);
    match current.as_deref() {
        Some(name) if name == attribute => Ok(()),
        Some(other) => Err(ProvisionError::SchemaDiffers {
            table: table.to_owned(),
            difference: text!("its items expire by {other}", other),
        }),
        None => {
            let specification = dynamodb::TimeToLiveSpecification::builder()
                .attribute_name(attribute)
                .enabled(true)
                .build()
                .map_err(|cause| ProvisionError::Incomplete {
                    table: table.to_owned(),
                    cause,
                })?;
            client
                .update_time_to_live()
                .table_name(table)
                .time_to_live_specification(specification)
                .send()
                .await
                .map_err(|error| StoreError::of_call("UpdateTimeToLive", table, &error))?;
            Ok(())
        }
    }
}

/// The queues' URLs by name. Queues that others point to come first.
async fn provision_queues(
    client: &aws_sdk_sqs::Client,
    queues: &[QueueDefinition],
) -> Result<BTreeMap<String, String>, ProvisionError> {
    let mut urls = BTreeMap::<String, String>::new();
    let (pointing, plain): (Vec<_>, Vec<_>) =
        queues.iter().partition(|queue| queue.redrive.is_some());
    for queue in plain.into_iter().chain(pointing) {
        let mut attributes = queue_attributes(queue);
        if let Some(redrive) = &queue.redrive {
            let target = &redrive.dead_letter_queue;
            let url = urls
                .get(target)
                .ok_or_else(|| ProvisionError::Missing(target.clone()))?;
            let policy = serde_json::json!({
                "deadLetterTargetArn": queue_arn(client, url).await?,
                "maxReceiveCount": redrive.max_receive_count,
            });
            attributes.insert(QueueAttributeName::RedrivePolicy, policy.to_string());
        }
        let created = client
            .create_queue()
            .queue_name(&queue.name)
            .set_attributes(Some(attributes))
            .send()
            .await
            .map_err(|error| StoreError::of_call("CreateQueue", &queue.name, &error))?;
        urls.insert(queue.name.clone(), created.queue_url.unwrap_or_default());
    }
    Ok(urls)
}

fn queue_attributes(queue: &QueueDefinition) -> HashMap<QueueAttributeName, String> {
    let numbers = [
        (
            QueueAttributeName::VisibilityTimeout,
            queue.visibility_timeout_seconds,
        ),
        (
            QueueAttributeName::MessageRetentionPeriod,
            queue.retention_seconds,
        ),
    ];
    let given = numbers.into_iter();
    given
        .filter_map(|(name, value)| Some((name, value?.to_string())))
        .collect()
}

/// The queue's Amazon Resource Name.
pub(super) async fn queue_arn(
    client: &aws_sdk_sqs::Client,
    url: &str,
) -> Result<String, StoreError> {
    let output = client
        .get_queue_attributes()
        .queue_url(url)
        .attribute_names(QueueAttributeName::QueueArn)
        .send()
        .await
        .map_err(|error| StoreError::of_call("GetQueueAttributes", url, &error))?;
    let mut attributes = output.attributes.unwrap_or_default();
    Ok(attributes
        .remove(&QueueAttributeName::QueueArn)
        .unwrap_or_default())
}

fn key_parts(key: &KeySchema) -> impl Iterator<Item = (&KeyAttribute, dynamodb::KeyType)> {
    let sort = key
        .sort
        .as_ref()
        .map(|sort| (sort, dynamodb::KeyType::Range));
    std::iter::once((&key.partition, dynamodb::KeyType::Hash)).chain(sort)
}

fn key_elements(key: &KeySchema) -> Result<Vec<dynamodb::KeySchemaElement>, BuildError> {
    key_parts(key)
        .map(|(attribute, role)| {
            let element = dynamodb::KeySchemaElement::builder().attribute_name(&attribute.name);
            element.key_type(role).build()
        })
        .collect()
}

fn attribute_definitions(
    table: &TableDefinition,
) -> Result<Vec<dynamodb::AttributeDefinition>, BuildError> {
    let keys = std::iter::once(&table.key).chain(table.indexes.iter().map(|index| &index.key));
    let kinds: BTreeMap<_, _> = keys
        .flat_map(key_parts)
        .map(|(attribute, _)| (attribute.name.as_str(), attribute.kind))
        .collect();
    let definitions = kinds.into_iter().map(|(name, kind)| {
        let definition = dynamodb::AttributeDefinition::builder().attribute_name(name);
        definition.attribute_type(scalar(kind)).build()
    });
    definitions.collect()
}

fn secondary_index(index: &IndexDefinition) -> Result<dynamodb::GlobalSecondaryIndex, BuildError> {
    let held = dynamodb::Projection::builder().projection_type(projection(index.projection));
    dynamodb::GlobalSecondaryIndex::builder()
        .index_name(&index.name)
        .set_key_schema(Some(key_elements(&index.key)?))
        .projection(held.build())
        .build()
}

const fn scalar(kind: AttributeKind) -> dynamodb::ScalarAttributeType {
    match kind {
        AttributeKind::Text => dynamodb::ScalarAttributeType::S,
        AttributeKind::Number => dynamodb::ScalarAttributeType::N,
        AttributeKind::Binary => dynamodb::ScalarAttributeType::B,
    }
}

const fn projection(projection: Projection) -> dynamodb::ProjectionType {
    match projection {
        Projection::All => dynamodb::ProjectionType::All,
        Projection::KeysOnly => dynamodb::ProjectionType::KeysOnly,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use raglan_core::clock::Timestamp;
    use raglan_core::key::PlainKey;
    use raglan_core::key_record::KeyRecord;
    use raglan_core::random::SequenceRandom;
    use raglan_store::KeyStore;

    use super::super::emulators::{EmulatorOptions, Emulators};
    use super::*;

    async fn start(folder: Option<&Path>) -> Emulators {
        let folder = folder.map(ToOwned::to_owned);
        Emulators::start(EmulatorOptions {
            folder,
            ..EmulatorOptions::default()
        })
        .await
        .unwrap()
    }

    fn key_record() -> KeyRecord {
        let key = PlainKey::generate(&SequenceRandom::seeded(1)).unwrap();
        serde_json::from_value(serde_json::json!({
            "key_hash": key.hash(), "key_id": "key-1", "name": "test",
            "fingerprint": key.fingerprint(),
            "created_at": Timestamp::from_epoch_seconds(1_800_000_000),
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn a_restart_finds_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let template = LocalTemplate::embedded().unwrap();
        let record = key_record();
        for run in 0..2 {
            let emulators = start(Some(folder.path())).await;
            let clients = emulators.clients();
            let resources = provision(&clients, &template).await.unwrap();
            // A second time in the same run changes nothing either.
            assert_eq!(provision(&clients, &template).await.unwrap(), resources);
            let keys = KeyStore::new(clients.dynamodb.clone(), resources.keys_table);
            if run == 0 {
                keys.put_new(&record).await.unwrap();
            }
            assert_eq!(keys.find(&record.key_hash).await, Ok(Some(record.clone())));
            assert_eq!(keys.find_by_id("key-1").await, Ok(Some(record.clone())));
            emulators.shutdown().await;
        }
    }

    #[tokio::test]
    async fn tables_expire_items_and_the_queue_redrives_as_the_template_says() {
        let emulators = start(None).await;
        let clients = emulators.clients();
        let template = LocalTemplate::embedded().unwrap();
        let resources = provision(&clients, &template).await.unwrap();
        for table in &template.tables {
            let described = clients
                .dynamodb
                .sdk()
                .describe_time_to_live()
                .table_name(&table.name)
                .send()
                .await;
            let ttl = described.unwrap().time_to_live_description.unwrap();
            assert_eq!(ttl.attribute_name, table.ttl_attribute, "{}", table.name);
        }
        let attributes = clients
            .sqs
            .sdk()
            .get_queue_attributes()
            .queue_url(&resources.audit_queue_url)
            .attribute_names(QueueAttributeName::All)
            .send()
            .await
            .unwrap()
            .attributes
            .unwrap();
        let policy: serde_json::Value =
            serde_json::from_str(&attributes[&QueueAttributeName::RedrivePolicy]).unwrap();
        let target = queue_arn(&clients.sqs.sdk(), &resources.audit_dead_letter_queue_url)
            .await
            .unwrap();
        assert_eq!(policy["deadLetterTargetArn"], target);
        assert_eq!(attributes[&QueueAttributeName::VisibilityTimeout], "190");
        emulators.shutdown().await;
    }

    #[tokio::test]
    async fn a_table_of_another_version_is_refused_and_left_as_it_is() {
        let emulators = start(None).await;
        let clients = emulators.clients();
        let mut template = LocalTemplate::embedded().unwrap();
        provision(&clients, &template).await.unwrap();

        let original = template.clone();
        template.tables[0].key.partition.name = "other".to_owned();
        let error = provision(&clients, &template)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("KeysTable") && error.contains("key is another one"),
            "{error}"
        );

        template = original.clone();
        template.tables[3].indexes[0].projection = Projection::KeysOnly;
        let error = provision(&clients, &template)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("AuditTable") && error.contains("day-index"),
            "{error}"
        );

        provision(&clients, &original).await.unwrap();
        emulators.shutdown().await;
    }

    #[tokio::test]
    async fn an_emulator_that_is_gone_is_unavailable() {
        let emulators = start(None).await;
        let clients = emulators.clients();
        emulators.shutdown().await;
        let template = LocalTemplate::embedded().unwrap();
        let error = provision(&clients, &template).await.unwrap_err();
        let unavailable = matches!(error, ProvisionError::Store(StoreError::Unavailable { .. }));
        assert!(unavailable, "{error}");
    }
}
