//! The whole system in memory: tables and queue as the template defines them, both functions, an
//! embedded index, an engine that obeys the test, a clock that stands still and repeatable randomness.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::types::AttributeValue;
use raglan_audit::handler::Handler;
use raglan_aws::{AccountChoice, AwsClients, LazyAccount};
use raglan_cli::local::emulators::{EmulatorOptions, Emulators};
use raglan_cli::local::event_source::EventSource;
use raglan_cli::local::provision::{LocalResources, provision};
use raglan_cli::local::template::LocalTemplate;
use raglan_cli::system::AUDIT_TIMEOUT;
use raglan_core::audit::{AuditEvent, DEFAULT_RETENTION_DAYS};
use raglan_core::catalog::{BackendReference, KnowledgeBase, KnowledgeBaseId};
use raglan_core::clock::{Clock as _, ManualClock, Timestamp};
use raglan_core::key::PlainKey;
use raglan_core::key_record::{KeyRecord, ScopeKind};
use raglan_core::random::SequenceRandom;
use raglan_core::task::{Task, TaskStatus};
use raglan_core::tool::Tool;
use raglan_engines::call::Surroundings;
use raglan_engines::credentials::Credentials;
use raglan_mcp::answers::Answers;
use raglan_mcp::app::App;
use raglan_mcp::backends::Backends;
use raglan_mcp::config::Config;
use raglan_store::audit_table::{Bounds, Slice};
use raglan_store::catalog::PutMode;
use raglan_store::{AuditRecord, AuditTable, AuditWriter, CatalogStore, DeadLetterQueue, KeyStore};
use tempfile::TempDir;

use super::engine::{Behaviour, ScriptedEngine, passage};
use super::gate::Gate;
use super::knowledge::index_handbook;
use super::queue::Queue;
use super::steps::Steps;

/// The moment at which the tests' clocks stand.
pub const NOW: &str = "2026-11-30T08:15:00.000Z";

/// A running system with these knowledge bases:
///
/// | id | owner | engine |
/// |---|---|---|
/// | `handbook` | none | embedded, three documents |
/// | `script` | none | scripted, two passages |
/// | `anna-notes` | anna | scripted, one passage |
/// | `bo-notes` | bo | scripted, one passage |
///
/// and one task for each of them, `task-<id>`.
pub struct World {
    pub app: App,
    pub clock: Arc<ManualClock>,
    pub engine: Arc<ScriptedEngine>,
    /// An engine of kind [`ScriptedEngine::POOR_KIND`]; no knowledge base is there from the start.
    pub poor_engine: Arc<ScriptedEngine>,
    /// The function's way to DynamoDB.
    pub dynamodb: Gate,
    /// The function's way to SQS.
    pub sqs: Gate,
    /// The order of the function's AWS calls.
    pub steps: Arc<Steps>,
    /// SQS itself, as well as a test lets it be.
    pub queue: Queue,
    pub clients: AwsClients,
    pub resources: LocalResources,
    pub index_dir: PathBuf,
    /// Where the tables lie, when they lie in files.
    pub state_dir: PathBuf,
    /// The function's environment.
    pub variables: HashMap<&'static str, String>,
    key_seed: AtomicU64,
    _emulators: Emulators,
    _folder: TempDir,
}

/// The credential of configured engines, where `env:ENGINE_KEY` leads to.
pub const ENGINE_KEY: &str = "sk-of-the-engine-and-of-nobody-else";

/// What configured engines share: no account, and an environment with one credential in it.
async fn surroundings(clock: &Arc<ManualClock>) -> Surroundings {
    let environment = |name: &str| (name == "ENGINE_KEY").then(|| ENGINE_KEY.to_owned());
    let account = AccountChoice::default().load().await;
    let credentials = Credentials::of_config(&account, environment, Arc::clone(clock) as _);
    Surroundings {
        outbound: Arc::default(),
        credentials: Arc::new(credentials),
        account: Arc::new(LazyAccount::loaded(account)),
        clock: Arc::clone(clock) as _,
        random: Arc::new(SequenceRandom::seeded(2)),
    }
}

/// The identifier of a knowledge base.
pub fn id(text: &str) -> KnowledgeBaseId {
    KnowledgeBaseId::parse(text).unwrap()
}

impl World {
    /// A system with the default configuration.
    pub async fn start() -> Self {
        Self::configured(|_| {}).await
    }

    /// A system whose MCP function is configured by `change`.
    pub async fn configured(change: impl FnOnce(&mut Config)) -> Self {
        // Boxed, because every test's future would hold it.
        Box::pin(async { Self::without_knowledge(change).await.with_knowledge().await }).await
    }

    /// The same, with its tables in files below [`World::state_dir`].
    pub async fn on_disk(change: impl FnOnce(&mut Config)) -> Self {
        Box::pin(async { Self::begin(true, change).await.with_knowledge().await }).await
    }

    async fn with_knowledge(self) -> Self {
        let world = self;
        index_handbook(&world.index_dir, &id("handbook"), world.clock.now());
        world
            .add_knowledge_base("handbook", None, BackendReference::EMBEDDED)
            .await;
        world
            .add_knowledge_base("script", None, ScriptedEngine::KIND)
            .await;
        world
            .add_knowledge_base("anna-notes", Some("anna"), ScriptedEngine::KIND)
            .await;
        world
            .add_knowledge_base("bo-notes", Some("bo"), ScriptedEngine::KIND)
            .await;
        let say = |knowledge_base: &str, passages| {
            world
                .engine
                .order(knowledge_base, Behaviour::Passages(passages));
        };
        say(
            "script",
            vec![
                passage(1, "Leave is thirty days a year for every employee."),
                passage(2, "Travel is booked by the travel desk."),
            ],
        );
        say(
            "anna-notes",
            vec![passage(3, "Anna keeps notes about leave.")],
        );
        say("bo-notes", vec![passage(4, "Bo keeps notes about leave.")]);
        world
    }

    /// A system without a single knowledge base.
    pub async fn without_knowledge(change: impl FnOnce(&mut Config)) -> Self {
        Self::begin(false, change).await
    }

    async fn begin(on_disk: bool, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = folder.path().join("state");
        let index_dir = folder.path().join("index");
        let emulators = Emulators::start(EmulatorOptions {
            folder: on_disk.then(|| state_dir.clone()),
            ..EmulatorOptions::default()
        })
        .await
        .unwrap();
        let clients = emulators.clients();
        let resources = provision(&clients, &LocalTemplate::embedded().unwrap())
            .await
            .unwrap();

        let variables = HashMap::from([
            ("METRICS_ENABLED", "false".to_owned()),
            ("KEYS_TABLE", resources.keys_table.clone()),
            ("CATALOG_TABLE", resources.catalog_table.clone()),
            ("STATE_TABLE", resources.state_table.clone()),
            ("AUDIT_QUEUE_URL", resources.audit_queue_url.clone()),
            (
                "CURSOR_SECRET",
                "a secret of the tests, 32 bytes and more".to_owned(),
            ),
            ("INDEX_DIR", index_dir.display().to_string()),
            // The tests of the limits set their own: elsewhere no answer may depend on the one before.
            ("RATE_LIMIT_PER_MINUTE", "0".to_owned()),
            ("DAILY_QUOTAS", "none".to_owned()),
            ("AUTH_FAILURES_PER_MINUTE", "0".to_owned()),
        ]);
        let mut config = Config::from_lookup(|name| variables.get(name).cloned()).unwrap();
        change(&mut config);

        let dynamodb = Gate::before(&emulators.dynamodb_url).await;
        let queue = Queue::before(&emulators.sqs_url).await;
        let sqs = Gate::before(&queue.url).await;
        let engine = Arc::new(ScriptedEngine::able());
        let poor_engine = Arc::new(ScriptedEngine::poor());
        let embedded_dir = config.index_dir.clone();
        let clock = Arc::new(ManualClock::at(Timestamp::parse(NOW).unwrap()));
        let random = Arc::new(SequenceRandom::seeded(1));
        let surroundings = surroundings(&clock).await;
        let answers = Answers::from_config(config.answers.as_ref(), &surroundings).unwrap();
        let backends = Backends::from_config(&config, &surroundings)
            .unwrap()
            .with(ScriptedEngine::KIND, Arc::clone(&engine) as _)
            .with(ScriptedEngine::POOR_KIND, Arc::clone(&poor_engine) as _);
        let steps = Steps::new();
        let app = App::new(
            config,
            &AwsClients::for_local_endpoints_over(Arc::clone(&steps) as _, &dynamodb.url, &sqs.url),
            backends,
            answers,
            Arc::clone(&clock) as _,
            random,
        );
        Self {
            app,
            clock,
            engine,
            poor_engine,
            dynamodb,
            sqs,
            steps,
            queue,
            clients,
            resources,
            index_dir: embedded_dir,
            state_dir,
            variables,
            key_seed: AtomicU64::new(1_000),
            _emulators: emulators,
            _folder: folder,
        }
    }

    /// The table of keys.
    pub fn keys(&self) -> KeyStore {
        KeyStore::new(
            self.clients.dynamodb.clone(),
            self.resources.keys_table.clone(),
        )
    }

    /// The catalogue.
    pub fn catalog(&self) -> CatalogStore {
        CatalogStore::new(
            self.clients.dynamodb.clone(),
            self.resources.catalog_table.clone(),
        )
    }

    /// A key that may do everything.
    pub async fn full_key(&self) -> PlainKey {
        self.key("key-full", |_| {}).await
    }

    /// A system key for every tool and knowledge base, as `change` has it.
    pub async fn key(&self, key_id: &str, change: impl FnOnce(&mut KeyRecord)) -> PlainKey {
        let seed = self.key_seed.fetch_add(1, Ordering::SeqCst);
        let key = PlainKey::generate(&SequenceRandom::seeded(seed)).unwrap();
        self.store_key(&key, key_id, change).await;
        key
    }

    /// The same for a key that is there already.
    pub async fn store_key(
        &self,
        key: &PlainKey,
        key_id: &str,
        change: impl FnOnce(&mut KeyRecord),
    ) {
        let (id, name) = (key_id.to_owned(), format!("the key {key_id}"));
        let now = self.clock.now();
        let mut record = KeyRecord {
            tools: Tool::ALL.into_iter().collect(),
            scope: ScopeKind::All,
            ..KeyRecord::without_rights(key.hash(), key.fingerprint(), id, name, now)
        };
        change(&mut record);
        self.keys().put_new(&record).await.unwrap();
    }

    /// Changes the record of a key.
    pub async fn change_key(&self, key: &PlainKey, change: impl FnOnce(&mut KeyRecord)) {
        let mut record = self.keys().find(&key.hash()).await.unwrap().unwrap();
        change(&mut record);
        self.keys().put(&record).await.unwrap();
    }

    /// Adds a knowledge base and its task.
    pub async fn add_knowledge_base(&self, name: &str, owner: Option<&str>, kind: &str) {
        let now = self.clock.now();
        let entry = KnowledgeBase {
            id: id(name),
            name: format!("The {name}"),
            description: format!("What the {name} covers."),
            owner: owner.map(ToOwned::to_owned),
            backend: BackendReference {
                kind: kind.to_owned(),
                id: name.to_owned(),
            },
            strategy: "bm25".to_owned(),
            document_count: Some(3),
            chunk_count: Some(3),
            created_at: now,
            updated_at: now,
        };
        self.catalog()
            .put(&entry, PutMode::CreateOnly)
            .await
            .unwrap();
        let task = Task {
            id: format!("task-{name}"),
            kb_id: id(name),
            document_id: None,
            status: TaskStatus::Succeeded,
            retry_count: 0,
            error: None,
            created_at: now,
            updated_at: now,
        };
        self.catalog()
            .put_task(&task, now.plus_seconds(3600))
            .await
            .unwrap();
    }

    /// Runs the audit function until the queue is empty, and reads the trail of the clock's day.
    pub async fn audit_events(&self) -> Vec<AuditEvent> {
        self.drain_queue().await;
        let day = self.clock.now().day();
        let table = self.audit_table();
        let records = table
            .all(Slice::Day(&day), Bounds::default())
            .await
            .unwrap();
        records.into_iter().map(AuditRecord::into_event).collect()
    }

    /// The audit table.
    pub fn audit_table(&self) -> AuditTable {
        AuditTable::new(
            self.clients.dynamodb.clone(),
            self.resources.audit_table.clone(),
        )
    }

    /// The audit function's code.
    pub fn audit_handler(&self) -> Handler {
        self.audit_handler_over(&self.clients)
    }

    /// The same behind the gates.
    pub fn gated_audit_handler(&self) -> Handler {
        let clients = AwsClients::for_local_endpoints(&self.dynamodb.url, &self.sqs.url);
        self.audit_handler_over(&clients)
    }

    fn audit_handler_over(&self, clients: &AwsClients) -> Handler {
        let table = AuditTable::new(clients.dynamodb.clone(), &self.resources.audit_table);
        let writer = AuditWriter::new(
            table,
            DEFAULT_RETENTION_DAYS,
            Arc::clone(&self.clock) as _,
            Arc::new(SequenceRandom::seeded(2)),
        );
        let dead_letters = DeadLetterQueue::new(
            clients.sqs.clone(),
            self.resources.audit_dead_letter_queue_url.clone(),
        );
        Handler::new(writer, dead_letters)
    }

    /// Hands everything in the queue to the audit function, as Lambda would.
    pub async fn drain_queue(&self) {
        let handler = self.audit_handler();
        let url = self.resources.audit_queue_url.clone();
        let source = EventSource::connect(&self.clients, url).await.unwrap();
        let handle = async |event| Ok::<_, Infallible>(handler.handle(event, AUDIT_TIMEOUT).await);
        assert_eq!(source.drain(&handle).await, Ok(0));
    }

    /// Every event of the audit table, as it is stored.
    pub async fn audit_items(&self) -> Vec<HashMap<String, AttributeValue>> {
        let mut items = self.audit_table_items().await;
        items.retain(|item| item.contains_key("request_id"));
        items
    }

    /// Everything that is in the audit table.
    pub async fn audit_table_items(&self) -> Vec<HashMap<String, AttributeValue>> {
        let scan = self
            .clients
            .dynamodb
            .sdk()
            .scan()
            .table_name(&self.resources.audit_table);
        scan.send().await.unwrap().items.unwrap_or_default()
    }
}
