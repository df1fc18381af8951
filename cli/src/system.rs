//! The local stand-in for the AWS account: tables, queue, indexes and secrets in one folder.

use std::convert::Infallible;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use raglan_audit::archive::Archive;
use raglan_audit::closing::Closer;
use raglan_audit::handler::Handler;
use raglan_aws::AwsClients;
use raglan_core::audit::DEFAULT_RETENTION_DAYS;
use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::{Clock, SystemClock};
use raglan_core::ids;
use raglan_core::key::PlainKey;
use raglan_core::key_record::{KeyRecord, ScopeKind};
use raglan_core::random::{Random, SystemRandom};
use raglan_core::tool::Tool;
use raglan_engines::call::Surroundings;
use raglan_mcp::answers::Answers;
use raglan_mcp::app::App;
use raglan_mcp::backends::Backends;
use raglan_mcp::config::Config;
use raglan_store::{AuditTable, AuditWriter, CatalogStore, DeadLetterQueue, KeyStore};

use crate::language::text;
use crate::local::emulators::{EmulatorOptions, Emulators};
use crate::local::event_source::EventSource;
use crate::local::provision::{LocalResources, provision};
use crate::local::template::LocalTemplate;

const CURSOR_SECRET_FILE: &str = "cursor-secret";
const INDEX_FOLDER: &str = "index";
/// Where the roots of closed days lie, in the folder of the system.
pub const AUDIT_ROOTS_FOLDER: &str = "audit-roots";
/// How long one batch of audit events may take, as in the template.
pub const AUDIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Where a running system says how it is reached.
pub const RUNNING_FILE: &str = "running.env";

/// A running local system.
pub struct LocalSystem {
    /// DynamoDB and SQS.
    pub emulators: Emulators,
    /// Clients that talk to them.
    pub clients: AwsClients,
    /// The tables' and queues' names.
    pub resources: LocalResources,
    /// Where the embedded indexes lie.
    pub index_dir: PathBuf,
    audit_roots_folder: PathBuf,
    cursor_secret: String,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl LocalSystem {
    /// Starts in `folder`, which is made when it is not there.
    ///
    /// # Errors
    /// One line: the folder cannot be written or is in use, or what is in it cannot be read.
    pub async fn start(folder: &Path) -> anyhow::Result<Self> {
        make_private(folder)?;
        let options = EmulatorOptions {
            folder: Some(folder.to_owned()),
            ..Default::default()
        };
        let emulators = Emulators::start(options).await?;
        let clients = emulators.clients();
        let resources = provision(&clients, &LocalTemplate::embedded()?).await?;
        let random: Arc<dyn Random> = Arc::new(SystemRandom);
        let folder = folder
            .canonicalize()
            .context(text!("the state folder cannot be found again"))?;
        Ok(Self {
            cursor_secret: cursor_secret(&folder, random.as_ref())?,
            index_dir: folder.join(INDEX_FOLDER),
            audit_roots_folder: folder.join(AUDIT_ROOTS_FOLDER),
            emulators,
            clients,
            resources,
            clock: Arc::new(SystemClock),
            random,
        })
    }

    /// The same system with another time, for tests of what takes days.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The MCP function over this system: the code that Lambda runs.
    ///
    /// # Errors
    /// One line, when the configuration is refused.
    pub fn app(&self) -> anyhow::Result<App> {
        let variables = self.variables();
        let own = |name: &str| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, v)| v.clone())
        };
        // What a user exports for the function (limits, guard, origins) holds here as well.
        let lookup = |name: &str| own(name).or_else(|| std::env::var(name).ok());
        let config = Config {
            // Whoever wants to have them installs a recorder; without one they go nowhere.
            metrics_enabled: true,
            ..Config::from_lookup(lookup)?
        };
        let (clock, random) = (Arc::clone(&self.clock), Arc::clone(&self.random));
        let surroundings = Surroundings::from_environment(Arc::clone(&clock), Arc::clone(&random));
        let backends = Backends::from_config(&config, &surroundings)?;
        let answers = Answers::from_config(config.answers.as_ref(), &surroundings)?;
        Ok(App::new(
            config,
            &self.clients,
            backends,
            answers,
            clock,
            random,
        ))
    }

    /// The environment under which both functions find this system.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let text = ToOwned::to_owned;
        vec![
            (
                "AWS_ENDPOINT_URL_DYNAMODB",
                self.emulators.dynamodb_url.clone(),
            ),
            ("AWS_ENDPOINT_URL_SQS", self.emulators.sqs_url.clone()),
            ("AWS_REGION", text("us-east-1")),
            ("AWS_ACCESS_KEY_ID", text("local")),
            ("AWS_SECRET_ACCESS_KEY", text("local")),
            ("KEYS_TABLE", self.resources.keys_table.clone()),
            ("CATALOG_TABLE", self.resources.catalog_table.clone()),
            ("STATE_TABLE", self.resources.state_table.clone()),
            ("AUDIT_TABLE", self.resources.audit_table.clone()),
            ("AUDIT_QUEUE_URL", self.resources.audit_queue_url.clone()),
            (
                "AUDIT_DEAD_LETTER_QUEUE_URL",
                self.resources.audit_dead_letter_queue_url.clone(),
            ),
            ("CURSOR_SECRET", self.cursor_secret.clone()),
            // Standard output is the terminal here.
            ("METRICS_ENABLED", text("false")),
            ("INDEX_DIR", self.index_dir.display().to_string()),
        ]
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> KeyStore {
        KeyStore::new(
            self.clients.dynamodb.clone(),
            self.resources.keys_table.clone(),
        )
    }

    /// The catalogue.
    #[must_use]
    pub fn catalog(&self) -> CatalogStore {
        CatalogStore::new(
            self.clients.dynamodb.clone(),
            self.resources.catalog_table.clone(),
        )
    }

    /// The audit trail.
    #[must_use]
    pub fn audit_table(&self) -> AuditTable {
        AuditTable::new(
            self.clients.dynamodb.clone(),
            self.resources.audit_table.clone(),
        )
    }

    /// The audit function over this system: the code that Lambda runs.
    #[must_use]
    pub fn audit_handler(&self) -> Handler {
        let writer = AuditWriter::new(
            self.audit_table(),
            DEFAULT_RETENTION_DAYS,
            Arc::clone(&self.clock),
            Arc::clone(&self.random),
        );
        let dead_letters = DeadLetterQueue::new(
            self.clients.sqs.clone(),
            self.resources.audit_dead_letter_queue_url.clone(),
        );
        Handler::new(writer, dead_letters)
    }

    /// What closes the days of the audit trail that are over.
    #[must_use]
    pub fn closer(&self) -> Closer {
        let archive = Archive::Folder(self.audit_roots_folder());
        let clock = Arc::clone(&self.clock);
        Closer::new(self.audit_table(), archive, DEFAULT_RETENTION_DAYS, clock)
    }

    /// Where the roots of closed days lie.
    #[must_use]
    pub fn audit_roots_folder(&self) -> PathBuf {
        self.audit_roots_folder.clone()
    }

    /// Stores every audit event that lies in the queue: what the audit function would do.
    ///
    /// # Errors
    /// One line, when events stay behind.
    pub async fn store_audit_events(&self) -> anyhow::Result<()> {
        let handler = self.audit_handler();
        let queue_url = self.resources.audit_queue_url.clone();
        let source = EventSource::connect(&self.clients, queue_url).await?;
        let handle =
            |event| async { Ok::<_, Infallible>(handler.handle(event, AUDIT_TIMEOUT).await) };
        let left = source.drain(&handle).await?;
        anyhow::ensure!(
            left == 0,
            text!("{left} audit events could not be stored", left)
        );
        Ok(())
    }

    /// Makes a system key for every tool and every knowledge base, and stores its hash.
    ///
    /// # Errors
    /// One line, when it cannot be stored.
    pub async fn mint_key(&self, name: &str) -> anyhow::Result<(PlainKey, KeyRecord)> {
        mint_key(
            &self.keys(),
            name,
            self.clock.as_ref(),
            self.random.as_ref(),
        )
        .await
    }

    /// The time.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// The randomness.
    #[must_use]
    pub fn random(&self) -> &dyn Random {
        self.random.as_ref()
    }
}

/// Makes a system key for every tool and every knowledge base, and stores its hash.
///
/// # Errors
/// One line, when it cannot be stored.
pub async fn mint_key(
    keys: &KeyStore,
    name: &str,
    clock: &dyn Clock,
    random: &dyn Random,
) -> anyhow::Result<(PlainKey, KeyRecord)> {
    let key = PlainKey::generate(random)?;
    let (key_id, name) = (ids::key_id(random)?, name.to_owned());
    let record = KeyRecord {
        tools: Tool::ALL.into_iter().collect(),
        scope: ScopeKind::All,
        ..KeyRecord::without_rights(key.hash(), key.fingerprint(), key_id, name, clock.now())
    };
    keys.put_new(&record).await?;
    Ok((key, record))
}

/// The sample knowledge base's identifier.
///
/// # Errors
/// Never for the identifiers that this program writes itself.
pub fn knowledge_base_id(text: &str) -> anyhow::Result<KnowledgeBaseId> {
    Ok(KnowledgeBaseId::parse(text)?)
}

/// Writes a file that only its owner can read, whole or not at all.
///
/// # Errors
/// One line that names the file.
pub fn write_private(path: &Path, content: &str) -> anyhow::Result<()> {
    let partial = path.with_extension("partial");
    let written = (|| {
        // A left-over of an interrupted run may have other rights.
        let _ = fs::remove_file(&partial);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&partial)?;
        file.write_all(content.as_bytes())?;
        fs::rename(&partial, path)
    })();
    written.with_context(|| text!("{path} cannot be written", path = path.display()))
}

/// Makes the folder for its owner's eyes only: questions, addresses and hashes of keys are kept in it.
/// One that is there already is left as it is.
fn make_private(folder: &Path) -> anyhow::Result<()> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder);
    made.with_context(|| {
        text!(
            "the folder {folder} cannot be made",
            folder = folder.display()
        )
    })
}

fn cursor_secret(folder: &Path, random: &dyn Random) -> anyhow::Result<String> {
    let path = folder.join(CURSOR_SECRET_FILE);
    match fs::read_to_string(&path) {
        Ok(secret) if secret.trim().len() >= 32 => Ok(secret.trim().to_owned()),
        _ => {
            let secret = ids::random_hex::<32>(random)?;
            write_private(&path, &secret)?;
            Ok(secret)
        }
    }
}
