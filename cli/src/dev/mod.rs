//! `raglan dev`: the whole system on this machine, and the order in which it comes up.

mod metrics;
pub mod serve;
mod tour;
mod trail;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent};
use raglan_audit::closing::Closer;
use raglan_core::key::PlainKey;
use raglan_core::key_record::KeyRecord;
use raglan_core::life_cycle;
use raglan_core::task::Task;
use raglan_ingest::build::IndexReport;
use raglan_mcp::app::App;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Outcome;
use crate::arguments::DevArguments;
use crate::audit::view;
use crate::connect;
use crate::http_client::JsonClient;
use crate::index::{Destination, IndexJob, index, report_details};
use crate::language::text;
use crate::local::event_source::EventSource;
use crate::system::{AUDIT_TIMEOUT, LocalSystem, RUNNING_FILE, knowledge_base_id, write_private};
use crate::terminal::{one_line, say, stop_signal, warn};
use raglan_ingest::build::Reading;

use self::tour::Tour;
use self::trail::Trail;

/// The sample that ships with the source.
const SAMPLE_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/knowledge");
const SAMPLE_ID: &str = "handbook";
const SAMPLE_NAME: &str = "Handbook of Lindqvist & Mao Instruments";
const OWN_DATA_ID: &str = "documents";
/// How often is looked for days of the audit trail that are over.
const CLOSING_INTERVAL: Duration = Duration::from_hours(1);
/// How long the demonstration waits until the audit trail is complete.
const TRAIL_PATIENCE: Duration = Duration::from_secs(20);

/// Runs the command.
///
/// # Errors
/// One line: what is in the way and what to do about it.
pub async fn run(arguments: DevArguments) -> anyhow::Result<Outcome> {
    if arguments.demo {
        return demonstrate(&arguments).await;
    }
    if let Some(env_file) = arguments.env_file.as_deref().filter(|file| file.exists()) {
        bail!(text!(
            "{env_file} exists: name a new file, it is removed at the end",
            env_file = env_file.display()
        ));
    }
    // What can be refused at once is not refused after the indexing.
    let listener = if arguments.emulators_only {
        None
    } else {
        Some(listen(arguments.port).await?)
    };
    if let Some(folder) = &arguments.data {
        let is_folder = folder.is_dir();
        anyhow::ensure!(
            is_folder,
            text!(
                "{folder} is no folder that can be read",
                folder = folder.display()
            )
        );
    }
    let system = LocalSystem::start(&arguments.state_dir).await?;
    let app = system.app()?;
    let indexed = index_documents(&system, arguments.data.as_deref()).await?;
    let outcome = match listener {
        None => provide_services(&system, &arguments).await,
        Some(listener) => run_functions(&system, &arguments, indexed, listener, app).await,
    };
    let _ = std::fs::remove_file(arguments.state_dir.join(RUNNING_FILE));
    system.emulators.shutdown().await;
    outcome
}

async fn listen(port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port))
        .await
        .with_context(|| {
            text!(
                "port {port} cannot be used; choose another one with --port",
                port
            )
        })
}

/// Everything in this process, until it is told to stop.
async fn run_functions(
    system: &LocalSystem,
    arguments: &DevArguments,
    indexed: Indexed,
    listener: TcpListener,
    app: App,
) -> anyhow::Result<Outcome> {
    let functions = Functions::start_on(system, listener, app).await?;
    let url = functions.url.clone();
    let endpoint = ("RAGLAN_URL", url.clone());
    write_variables(
        &arguments.state_dir.join(RUNNING_FILE),
        system,
        Some(endpoint),
    )?;
    say(text!("\nMCP endpoint  {url}", url));
    let (origin, _) = url.rsplit_once('/').unwrap_or_default();
    let metrics = format!("{origin}{}", metrics::PATH);
    say(text!("Metrics       {metrics}", metrics));

    let known = known_key(system).await?;
    let new = match known {
        Some(record) if !arguments.new_key => {
            say(text!(
                "Key           {fingerprint} (made earlier; `raglan dev --new-key` makes \
                 another)\n",
                fingerprint = record.fingerprint
            ));
            None
        }
        _ => Some(system.mint_key("raglan dev").await?.0),
    };
    if let Some(key) = &new {
        say(text!(
            "Key           {key} (shown this once)\n",
            key = key.reveal()
        ));
    }
    let shown_key = new
        .as_ref()
        .map_or(connect::KEY_PLACEHOLDER, PlainKey::reveal);
    let (recipes, others) = connect::first_recipes(&url, shown_key);
    for recipe in recipes {
        say(recipe.shown());
    }
    say(format_args!("{others}\n"));
    let mut trail = Trail::begin(system);
    with_key(system, new, async |key| {
        let tour = Tour {
            client: JsonClient::default(),
            url: &url,
            key,
            indexed,
        };
        if let Err(error) = tour.take().await {
            warn(text!(
                "the tour did not end well: {cause}",
                cause = one_line(&error)
            ));
        }
    })
    .await?;

    say(text!("\nAudit trail (Ctrl-C ends):"));
    say(view::heading());
    tokio::select! {
        () = trail.follow() => {}
        () = stop_signal() => say(text!("\nStopping.")),
    }
    functions.stop().await;
    Ok(Outcome::Done)
}

/// All of it once, in a temporary folder; works only if everything in it did.
async fn demonstrate(arguments: &DevArguments) -> anyhow::Result<Outcome> {
    let folder = tempfile::tempdir().context(text!("no temporary folder can be made"))?;
    let system = LocalSystem::start(folder.path()).await?;
    let indexed = index_documents(&system, arguments.data.as_deref()).await?;
    let functions = Functions::start(&system, 0).await?;
    say(text!("\nMCP endpoint  {url}", url = functions.url));
    let (key, _) = system.mint_key("raglan dev --demo").await?;
    let mut trail = Trail::begin(&system);
    let tour = Tour {
        client: JsonClient::default(),
        url: &functions.url,
        key: &key,
        indexed,
    };
    let calls = tour.take().await?;
    say(text!("\nAudit trail:"));
    say(view::heading());
    let seen = trail.wait_for(calls, TRAIL_PATIENCE).await;
    functions.stop().await;
    system.emulators.shutdown().await;
    if seen < calls {
        warn(text!(
            "only {seen} of {calls} calls reached the audit trail",
            seen,
            calls
        ));
        return Ok(Outcome::Failed);
    }
    say(text!(
        "\nAll {calls} calls were answered as they should, and all are in the audit trail.",
        calls
    ));
    Ok(Outcome::Done)
}

/// Only what AWS would provide, until Ctrl-C.
async fn provide_services(
    system: &LocalSystem,
    arguments: &DevArguments,
) -> anyhow::Result<Outcome> {
    let env_file = arguments
        .env_file
        .as_deref()
        .context(text!("--env-file is missing"))?;
    let (key, mut record) = system.mint_key("raglan dev --emulators-only").await?;
    write_variables(&arguments.state_dir.join(RUNNING_FILE), system, None)?;
    let key = ("RAGLAN_KEY", key.reveal().to_owned());
    write_variables(env_file, system, Some(key))?;
    let (stop, stopped) = watch::channel(false);
    let feeding = feed_audit(system, arguments.invoke_audit.clone(), stopped).await?;
    say(text!(
        "The functions' environment and RAGLAN_KEY are in {env_file}.",
        env_file = env_file.display()
    ));
    say(text!("Ctrl-C ends."));
    stop_signal().await;
    say(text!("\nStopping."));
    stop.send_replace(true);
    let _ = feeding.await;
    let _ = std::fs::remove_file(env_file);
    // Nobody has the key any more.
    record.revoked_at = Some(system.clock().now());
    system.keys().put(&record).await?;
    Ok(Outcome::Done)
}

/// Both functions' code, running in this process.
pub struct Functions {
    url: String,
    stop_serving: watch::Sender<bool>,
    serving: JoinHandle<()>,
    stop_feeding: watch::Sender<bool>,
    feeding: JoinHandle<()>,
}

impl Functions {
    /// Starts both; port 0 takes a free one.
    ///
    /// # Errors
    /// One line: the port is taken, or the configuration is refused.
    pub async fn start(system: &LocalSystem, port: u16) -> anyhow::Result<Self> {
        let (listener, app) = (listen(port).await?, system.app()?);
        Self::start_on(system, listener, app).await
    }

    async fn start_on(
        system: &LocalSystem,
        listener: TcpListener,
        app: App,
    ) -> anyhow::Result<Self> {
        let url = format!("http://{}/mcp", listener.local_addr()?);
        metrics::install();
        let app = Arc::new(app);
        app.warm_up().await;
        let (stop_feeding, feeding_stopped) = watch::channel(false);
        let feeding = feed_audit(system, None, feeding_stopped).await?;
        let (stop_serving, serving_stopped) = watch::channel(false);
        let serving = tokio::spawn(serve::serve(listener, app, serving_stopped));
        Ok(Self {
            url,
            stop_serving,
            serving,
            stop_feeding,
            feeding,
        })
    }

    /// The MCP endpoint.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends after the requests that are under way and after their audit events are stored.
    pub async fn stop(self) {
        self.stop_serving.send_replace(true);
        let _ = self.serving.await;
        // Only now is the last event in the queue.
        self.stop_feeding.send_replace(true);
        let _ = self.feeding.await;
    }
}

/// The queue's event source: hands audit events to the audit function's code, here or behind a Lambda
/// endpoint, in the form in which Lambda would.
async fn feed_audit(
    system: &LocalSystem,
    endpoint: Option<String>,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<JoinHandle<()>> {
    let queue_url = system.resources.audit_queue_url.clone();
    let source = EventSource::connect(&system.clients, queue_url).await?;
    Ok(match endpoint {
        None => {
            let (handler, closer) = (system.audit_handler(), system.closer());
            let closing = tokio::spawn(close_days(closer, stopped.clone()));
            tokio::spawn(async move {
                let handle = async |event| {
                    let response = handler.handle(event, AUDIT_TIMEOUT).await;
                    Ok::<_, std::convert::Infallible>(response)
                };
                source.run(handle, stopped).await;
                let _ = closing.await;
            })
        }
        Some(endpoint) => {
            let base = endpoint.trim_end_matches('/');
            let url = format!("{base}/2015-03-31/functions/audit/invocations");
            let client = JsonClient::default();
            tokio::spawn(async move {
                source
                    .run(async |event| invoke(&client, &url, &event).await, stopped)
                    .await;
            })
        }
    })
}

/// What the schedule does in a deployment, until told to stop. Failures are in the log.
async fn close_days(closer: Closer, mut stopped: watch::Receiver<bool>) {
    loop {
        let _ = closer.close_days().await;
        let told = stopped.wait_for(|stopped| *stopped);
        if tokio::time::timeout(CLOSING_INTERVAL, told).await.is_ok() {
            return;
        }
    }
}

async fn invoke(
    client: &JsonClient,
    url: &str,
    event: &SqsEvent,
) -> anyhow::Result<SqsBatchResponse> {
    let (status, answer) = client
        .post(url, None, &serde_json::to_value(event)?)
        .await?;
    anyhow::ensure!(
        status.is_success(),
        text!(
            "the audit function answered {status}: {answer}",
            status,
            answer
        )
    );
    serde_json::from_value(answer)
        .context(text!("the audit function's answer is not one for a batch"))
}

/// What there is to ask about.
#[derive(Debug, Clone, Copy)]
struct Indexed {
    kb_id: &'static str,
    is_sample: bool,
}

/// Indexes the user's folder or the sample, and says so.
async fn index_documents(system: &LocalSystem, data: Option<&Path>) -> anyhow::Result<Indexed> {
    let (id, job) = indexing_job(data)?;
    let catalog = system.catalog();
    if data.is_some() {
        // A user's own documents come instead of the sample, also of one from an earlier run.
        let sample = knowledge_base_id(SAMPLE_ID)?;
        if catalog
            .get(&sample)
            .await?
            .is_some_and(|entry| entry.name == SAMPLE_NAME)
        {
            catalog.remove(&sample).await?;
        }
    } else if let Some(entry) = catalog.get(&job.kb_id).await?
        && entry.name != SAMPLE_NAME
    {
        say(text!(
            "The knowledge base `{id}` is yours; the sample is left out.",
            id
        ));
        return Ok(Indexed {
            kb_id: id,
            is_sample: false,
        });
    }
    let (task, report) = run_job(system, &job).await?;
    say(text!(
        "Indexed {documents} documents ({passages} passages) from {folder} as `{id}` (task {task})",
        documents = report.documents,
        passages = report.chunks,
        folder = job.folder.display(),
        id,
        task = task.id
    ));
    report_details(&report);
    Ok(Indexed {
        kb_id: id,
        is_sample: data.is_none(),
    })
}

/// Indexes the sample without a word.
///
/// # Errors
/// One line.
pub async fn index_sample(system: &LocalSystem) -> anyhow::Result<()> {
    let (_, job) = indexing_job(None)?;
    run_job(system, &job).await?;
    Ok(())
}

async fn run_job(system: &LocalSystem, job: &IndexJob) -> anyhow::Result<(Task, IndexReport)> {
    let destination = Destination {
        catalog: &system.catalog(),
        index_dir: &system.index_dir,
        publisher: None,
        embedder: None,
        clock: system.clock(),
        random: system.random(),
    };
    index(job, &destination).await
}

/// What to index, and under which identifier.
fn indexing_job(data: Option<&Path>) -> anyhow::Result<(&'static str, IndexJob)> {
    let (folder, id, name, description) = match data {
        Some(folder) => (
            folder.to_owned(),
            OWN_DATA_ID,
            "Documents".to_owned(),
            text!("The documents in {folder}.", folder = folder.display()),
        ),
        None => (
            sample_folder()?,
            SAMPLE_ID,
            SAMPLE_NAME.to_owned(),
            text!(
                "The handbook of a fictional maker of weather stations, in English and Chinese: \
                 leave, expenses, travel, products, engineering, support and security, and how \
                 raglan itself is operated."
            )
            .to_owned(),
        ),
    };
    let job = IndexJob {
        folder,
        kb_id: knowledge_base_id(id)?,
        name: Some(name),
        description: Some(description),
        owner: None,
        reading: Reading::Changed,
    };
    Ok((id, job))
}

fn sample_folder() -> anyhow::Result<PathBuf> {
    let folder = Path::new(SAMPLE_FOLDER);
    folder.canonicalize().with_context(|| {
        text!(
            "the sample in {folder} is not there; name a folder of yours with --data",
            folder = SAMPLE_FOLDER
        )
    })
}

/// A key that an earlier run made and that still works.
async fn known_key(system: &LocalSystem) -> anyhow::Result<Option<KeyRecord>> {
    let now = system.clock().now();
    let keys = system.keys().list().await?;
    let working = keys
        .into_iter()
        .filter(|record| record.name == "raglan dev" && record.check(now).is_ok());
    Ok(working.max_by_key(|record| record.created_at))
}

/// Runs `work` with the key at hand, or with one that exists only as long as the work.
async fn with_key(
    system: &LocalSystem,
    at_hand: Option<PlainKey>,
    work: impl AsyncFnOnce(&PlainKey),
) -> anyhow::Result<()> {
    if let Some(key) = at_hand {
        work(&key).await;
        return Ok(());
    }
    let (key, record) = system.mint_key("raglan dev: tour").await?;
    work(&key).await;
    if let Some(read) = system.keys().read(&record.key_hash).await? {
        let revoked = life_cycle::revoke(&read.record, system.clock().now());
        system.keys().replace(&read, &revoked).await?;
    }
    Ok(())
}

/// Writes what other programs need to work with the running system: its tables, queue and services.
///
/// # Errors
/// One line that names the file.
pub fn write_variables(
    path: &Path,
    system: &LocalSystem,
    further: Option<(&'static str, String)>,
) -> anyhow::Result<()> {
    let mut text = String::new();
    for (name, value) in system.variables().into_iter().chain(further) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}={value}");
    }
    write_private(path, &text)
}
