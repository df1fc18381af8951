//! What the tests of this crate stand on: the embedded emulators behind the real SDK, and a server
//! that answers what a test tells it to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType,
};
use hyper_util::rt::TokioIo;
use raglan_core::audit::{AuditEvent, Decision, EventPhase, SCHEMA_VERSION};
use raglan_core::catalog::{BackendReference, KnowledgeBase, KnowledgeBaseId};
use raglan_core::clock::{ManualClock, Timestamp};
use raglan_core::key::PlainKey;
use raglan_core::key_record::KeyRecord;
use raglan_core::random::SequenceRandom;
use rustack_sqs_core::config::SqsConfig;
use rustack_sqs_core::handler::RustackSqsHandler;
use rustack_sqs_core::provider::RustackSqs;
use rustack_sqs_http::service::{SqsHttpConfig, SqsHttpService};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::audit_append::AuditWriter;
use crate::audit_table::AuditTable;
use crate::catalog::{CatalogStore, PutMode};
use raglan_aws::{AwsClients, DynamoDb, ServiceClient, Sqs};

/// Clients that find both services at this URL.
pub(crate) fn clients_at(url: &str) -> AwsClients {
    AwsClients::for_local_endpoints(url, url)
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// A URL whose port is closed.
pub(crate) async fn nobody_listens() -> String {
    listen().await.1
}

/// An empty DynamoDB in memory.
pub(crate) async fn local_dynamodb() -> ServiceClient<DynamoDb> {
    let (listener, url) = listen().await;
    let database = dynoxide::Database::memory().unwrap();
    tokio::spawn(dynoxide::server::serve_on(listener, database));
    clients_at(&url).dynamodb
}

/// An SQS with one queue, and the queue's URL.
pub(crate) async fn local_sqs() -> (ServiceClient<Sqs>, String) {
    let (listener, url) = listen().await;
    let provider = Arc::new(RustackSqs::new(SqsConfig {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().unwrap().port(),
        ..SqsConfig::default()
    }));
    let handler = Arc::new(RustackSqsHandler::new(provider));
    let service = SqsHttpService::new(handler, SqsHttpConfig::default());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service.clone());
            tokio::spawn(connection);
        }
    });
    let sqs = clients_at(&url).sqs;
    let queue = sqs
        .sdk()
        .create_queue()
        .queue_name("audit")
        .send()
        .await
        .unwrap();
    (sqs, queue.queue_url.unwrap())
}

/// A primary key: attribute names, all of them texts.
pub(crate) struct Key {
    partition: &'static str,
    sort: Option<&'static str>,
}

/// A secondary index over everything.
pub(crate) struct Index {
    name: &'static str,
    key: Key,
}

impl Key {
    pub(crate) const fn of(partition: &'static str, sort: Option<&'static str>) -> Self {
        Self { partition, sort }
    }

    pub(crate) const fn index(self, name: &'static str) -> Index {
        Index { name, key: self }
    }

    fn names(&self) -> impl Iterator<Item = (&'static str, KeyType)> {
        let sort = self.sort.map(|name| (name, KeyType::Range));
        std::iter::once((self.partition, KeyType::Hash)).chain(sort)
    }

    fn schema(&self) -> Vec<KeySchemaElement> {
        self.names()
            .map(|(name, kind)| {
                KeySchemaElement::builder()
                    .attribute_name(name)
                    .key_type(kind)
                    .build()
                    .unwrap()
            })
            .collect()
    }
}

pub(crate) async fn create_table<'a>(
    client: &ServiceClient<DynamoDb>,
    name: &str,
    key: &Key,
    indexes: impl IntoIterator<Item = &'a Index>,
) {
    let indexes: Vec<_> = indexes.into_iter().collect();
    let names = key
        .names()
        .chain(indexes.iter().flat_map(|index| index.key.names()));
    let attributes: BTreeMap<_, _> = names
        .map(|(name, _)| {
            let attribute = AttributeDefinition::builder()
                .attribute_name(name)
                .attribute_type(ScalarAttributeType::S);
            (name, attribute.build().unwrap())
        })
        .collect();
    let built = indexes.iter().map(|index| {
        let projection = Projection::builder()
            .projection_type(ProjectionType::All)
            .build();
        let built = GlobalSecondaryIndex::builder()
            .index_name(index.name)
            .set_key_schema(Some(index.key.schema()))
            .projection(projection);
        built.build().unwrap()
    });
    let built: Vec<_> = built.collect();
    client
        .sdk()
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(attributes.into_values().collect()))
        .set_key_schema(Some(key.schema()))
        .set_global_secondary_indexes((!built.is_empty()).then_some(built))
        .send()
        .await
        .unwrap();
}

/// The audit table as the template defines it, empty.
pub(crate) async fn local_audit_table() -> AuditTable {
    let client = local_dynamodb().await;
    let indexes = [
        Key::of("day", Some("event_id")).index("day-index"),
        Key::of("owner_day", Some("event_id")).index("owner-index"),
    ];
    let key = Key::of("partition", Some("event_id"));
    create_table(&client, "audit", &key, &indexes).await;
    AuditTable::new(client, "audit")
}

/// Time enough for an emulator.
pub(crate) fn soon() -> tokio::time::Instant {
    tokio::time::Instant::now() + std::time::Duration::from_secs(20)
}

/// The writer of an audit table, on the day of [`audit_event`].
pub(crate) fn audit_writer(table: &AuditTable, retention_days: u32) -> AuditWriter {
    let clock = ManualClock::at(Timestamp::from_epoch_seconds(1_800_000_000));
    let random = SequenceRandom::seeded(1);
    AuditWriter::new(
        table.clone(),
        retention_days,
        Arc::new(clock),
        Arc::new(random),
    )
}

/// A server that gives the next answer of its script to each request.
pub(crate) struct ScriptedServer {
    pub(crate) url: String,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl ScriptedServer {
    /// The bodies of the requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }
}

/// Starts a [`ScriptedServer`] with these HTTP statuses and bodies. When they are used up, it closes
/// connections without an answer.
pub(crate) async fn scripted(answers: Vec<(u16, String)>) -> ScriptedServer {
    let (listener, url) = listen().await;
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&bodies);
    tokio::spawn(async move {
        for (status, answer) in answers {
            let Ok((mut stream, _)) = listener.accept().await else {
                return;
            };
            let body = read_body(&mut stream).await;
            seen.lock().unwrap().push(body);
            let head = format!(
                "HTTP/1.1 {status} Scripted\r\ncontent-type: application/x-amz-json-1.0\r\n\
                 content-length: {}\r\nconnection: close\r\n\r\n",
                answer.len()
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    ScriptedServer { url, bodies }
}

async fn read_body(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .map_or(0, |(_, value)| value.trim().parse().unwrap());
            if body.len() >= length {
                return body.to_owned();
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap() == 0 {
            return text;
        }
    }
}

/// A system key that may do nothing.
pub(crate) fn key_record(key_id: &str, seed: u64) -> KeyRecord {
    let key = PlainKey::generate(&SequenceRandom::seeded(seed)).unwrap();
    let (id, name) = (key_id.to_owned(), "test".to_owned());
    let created_at = Timestamp::from_epoch_seconds(1_800_000_000);
    KeyRecord {
        daily_quotas: BTreeMap::from([("ask".to_owned(), 100)]),
        ..KeyRecord::without_rights(key.hash(), key.fingerprint(), id, name, created_at)
    }
}

/// An entry of the catalogue.
pub(crate) fn knowledge_base(id: &str, owner: Option<&str>) -> KnowledgeBase {
    KnowledgeBase {
        id: KnowledgeBaseId::parse(id).unwrap(),
        name: id.to_owned(),
        description: "for tests".to_owned(),
        owner: owner.map(ToOwned::to_owned),
        backend: BackendReference {
            kind: BackendReference::EMBEDDED.to_owned(),
            id: id.to_owned(),
        },
        strategy: "bm25".to_owned(),
        document_count: None,
        chunk_count: None,
        created_at: Timestamp::from_epoch_seconds(1_800_000_000),
        updated_at: Timestamp::from_epoch_seconds(1_800_000_000),
    }
}

/// The same as DynamoDB sends it, in the partition that holds all.
pub(crate) fn knowledge_base_json(id: &str) -> serde_json::Value {
    let entry = serde_json::to_value(knowledge_base(id, None)).unwrap();
    let text = |field: &str| serde_json::json!({ "S": entry[field] });
    serde_json::json!({
        "partition": { "S": "all" }, "sort": { "S": id },
        "backend": { "M": { "kind": { "S": "embedded" }, "id": { "S": id } } },
        "id": text("id"), "name": text("name"), "description": text("description"),
        "strategy": text("strategy"), "created_at": text("created_at"),
        "updated_at": text("updated_at"),
    })
}

/// An event of `key-1` on one fixed day.
pub(crate) fn audit_event(event_id: &str) -> AuditEvent {
    AuditEvent {
        schema_version: SCHEMA_VERSION,
        event_id: event_id.to_owned(),
        at: Timestamp::from_epoch_seconds(1_800_000_000),
        request_id: "request-1".to_owned(),
        phase: EventPhase::Outcome,
        batch_element: None,
        trace_id: None,
        decision: Decision::Allowed,
        http_status: 200,
        method: Some("tools/call".to_owned()),
        tool: Some("retrieve".to_owned()),
        key_id: Some("key-1".to_owned()),
        key_fingerprint: None,
        owner: None,
        source_ip: None,
        user_agent: None,
        protocol_version: None,
        error_class: None,
        duration_ms: 12,
        parameters: Some(r#"{"query":"leave"}"#.to_owned()),
        params_bytes: Some(17),
        knowledge_bases: vec!["kb".to_owned()],
        result_count: Some(3),
        guard_findings: BTreeMap::from([("override".to_owned(), 1)]),
        cut: BTreeSet::new(),
        administration: None,
    }
}

/// A catalogue with these entries.
pub(crate) async fn catalog_with(entries: &[KnowledgeBase]) -> CatalogStore {
    let client = local_dynamodb().await;
    create_table(
        &client,
        "catalog",
        &Key::of("partition", Some("sort")),
        None,
    )
    .await;
    let store = CatalogStore::new(client, "catalog");
    for entry in entries {
        store.put(entry, PutMode::CreateOnly).await.unwrap();
    }
    store
}

/// The identifiers of these entries.
pub(crate) fn ids(entries: &[KnowledgeBase]) -> BTreeSet<KnowledgeBaseId> {
    entries.iter().map(|entry| entry.id.clone()).collect()
}

/// These texts as identifiers.
pub(crate) fn named(names: &[&str]) -> BTreeSet<KnowledgeBaseId> {
    names
        .iter()
        .map(|name| KnowledgeBaseId::parse(name).unwrap())
        .collect()
}
