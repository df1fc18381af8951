//! `raglan index`: reads a folder, builds the embedded index, and writes catalogue entry and task.

mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use raglan_aws::AccountChoice;
use raglan_core::catalog::{BackendReference, KnowledgeBase, KnowledgeBaseId};
use raglan_core::clock::{Clock, SystemClock};
use raglan_core::ids;
use raglan_core::random::{Random, SystemRandom};
use raglan_core::task::{Task, TaskError, TaskStatus};
use raglan_index_store::{IndexLocation, Publisher};
use raglan_ingest::build::{IndexOptions, IndexReport, Progress, Reading, embed_folder};
use raglan_ingest::embedding::Embedding;
use raglan_rag::embedded::embedding::Embedder;
use raglan_rag::embedded::layout;
use raglan_store::CatalogStore;
use raglan_store::catalog::PutMode;

use crate::Outcome;
use crate::arguments::IndexArguments;
use crate::embedding;
use crate::language::text;
use crate::target::{MissingFolder, Target, require_region};
use crate::terminal::{say, stop_signal, warn};

use self::watch::State as WatchedState;

/// How long a finished task can be looked up.
const TASK_RETENTION_SECONDS: i64 = 30 * 24 * 3600;
/// Names of left-out documents in a task's error.
const NAMED_FAILURES: usize = 5;
/// How an embedded index is searched, in the catalogue: without vectors and with them.
const WORDS: &str = "bm25";
const WORDS_AND_MEANING: &str = "hybrid";
/// What a shell shows for a program that was interrupted (128 + SIGINT).
const INTERRUPTED: i32 = 130;

/// What to index, and what to say of it in the catalogue.
#[derive(Debug, Clone)]
pub struct IndexJob {
    /// The documents' folder.
    pub folder: PathBuf,
    /// The knowledge base.
    pub kb_id: KnowledgeBaseId,
    /// Name for people; `None` keeps the one that is there, or takes the identifier.
    pub name: Option<String>,
    /// What it covers; `None` keeps what is there.
    pub description: Option<String>,
    /// Whose it is; `None` keeps whose it was.
    pub owner: Option<String>,
    /// Which files are read.
    pub reading: Reading,
}

/// Where a job's results go.
pub struct Destination<'a> {
    /// Knowledge bases and tasks.
    pub catalog: &'a CatalogStore,
    /// The embedded indexes.
    pub index_dir: &'a Path,
    /// Where the index is published as well.
    pub publisher: Option<&'a Publisher>,
    /// The model that makes vectors of the passages.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// The time.
    pub clock: &'a dyn Clock,
    /// The randomness.
    pub random: &'a dyn Random,
}

/// Runs the command.
///
/// # Errors
/// One line; the earlier index answers on.
pub async fn run(arguments: IndexArguments) -> anyhow::Result<Outcome> {
    let job = IndexJob {
        kb_id: KnowledgeBaseId::parse(&arguments.kb_id).with_context(|| {
            text!(
                "--kb {kb_id} cannot be used",
                kb_id = format_args!("{:?}", arguments.kb_id)
            )
        })?,
        folder: arguments.folder,
        name: arguments.name,
        description: arguments.description,
        owner: arguments.owner,
        reading: if arguments.full {
            Reading::All
        } else {
            Reading::Changed
        },
    };
    let before = if arguments.watch {
        Some(watch::state(&job.folder).await?)
    } else {
        None
    };
    let target = Target::open(&arguments.target, MissingFolder::Make).await?;
    let places = Places {
        index_dir: arguments.index_dir,
        published: arguments.publish,
        account: AccountChoice {
            profile: arguments.target.profile.clone(),
            region: arguments.target.region.clone(),
        },
    };
    let result = index_into(&target, places, &job, before).await;
    target.close().await?;
    result
}

fn report_result(job: &IndexJob, task: &Task, report: &IndexReport) -> Outcome {
    say(text!(
        "{kb_id}: {documents} documents ({unchanged} unchanged), {chunks} passages, {size_bytes} bytes, task {id}",
        kb_id = job.kb_id,
        documents = report.documents,
        unchanged = report.unchanged,
        chunks = report.chunks,
        size_bytes = report.size_bytes,
        id = task.id
    ));
    if report.embedded > 0 {
        say(text!(
            "{embedded} passages were embedded; the others are known.",
            embedded = report.embedded
        ));
    }
    if report.skipped > 0 {
        say(text!(
            "{skipped} other files were passed over.",
            skipped = report.skipped
        ));
    }
    report_details(report);
    if report.failed.is_empty() {
        Outcome::Done
    } else {
        Outcome::Incomplete
    }
}

/// Names the documents that were left out, and those in which the guard marked something.
pub fn report_details(report: &IndexReport) {
    for failed in &report.failed {
        warn(text!(
            "left out: {filename}: {reason}",
            filename = failed.filename,
            reason = failed.reason
        ));
    }
    for marked in &report.marked {
        let rules: Vec<String> = marked
            .findings
            .iter()
            .map(|(rule, passages)| text!("{rule} in {passages}", rule, passages))
            .collect();
        warn(text!(
            "marked by the guard (passages): {filename}: {rules}",
            filename = marked.filename,
            rules = rules.join(", ")
        ));
    }
}

/// Where the arguments say that the index goes.
struct Places {
    index_dir: Option<PathBuf>,
    published: Option<IndexLocation>,
    account: AccountChoice,
}

async fn index_into(
    target: &Target,
    places: Places,
    job: &IndexJob,
    before: Option<WatchedState>,
) -> anyhow::Result<Outcome> {
    let index_dir = match &places.index_dir {
        Some(folder) => folder,
        None => target.index_dir()?,
    };
    let publisher = match (places.published, target.aws_config()) {
        (None, _) => None,
        (Some(location), Some(account)) => Some(Publisher::new(account, location)),
        // The bucket of a local system is not local.
        (Some(location), None) => {
            require_region(&places.account).await?;
            let account = places.account.load().await;
            Some(Publisher::new(&account, location))
        }
    };
    let destination = Destination {
        catalog: &target.catalog()?,
        index_dir,
        publisher: publisher.as_ref(),
        embedder: embedding::from_environment()?,
        clock: &SystemClock,
        random: &SystemRandom,
    };
    let (task, report) = index(job, &destination).await?;
    let outcome = report_result(job, &task, &report);
    if let Some(before) = before {
        watch::watch(job, before, &destination).await?;
    }
    Ok(outcome)
}

/// Indexes and writes down what came of it: a task that `get_task` shows, and the catalogue entry.
///
/// # Errors
/// One line; the earlier index answers on, and the task says that this one failed.
pub async fn index(job: &IndexJob, to: &Destination<'_>) -> anyhow::Result<(Task, IndexReport)> {
    let now = to.clock.now();
    let mut task = Task {
        id: format!("task-{}", ids::random_hex::<16>(to.random)?),
        kb_id: job.kb_id.clone(),
        document_id: None,
        status: TaskStatus::Running,
        retry_count: 0,
        error: None,
        created_at: now,
        updated_at: now,
    };
    let keep = |task: &Task| task.updated_at.plus_seconds(TASK_RETENTION_SECONDS);
    to.catalog.put_task(&task, keep(&task)).await?;

    let built = tokio::select! {
        built = build(job, to) => built,
        () = stop_signal() => {
            let message = text!("The run was interrupted. The index of before answers on.");
            end(&mut task, TaskStatus::Failed, "interrupted", message.to_owned(), to.clock);
            to.catalog.put_task(&task, keep(&task)).await?;
            warn(text!("interrupted: the index of before answers on"));
            // The reader's thread would go on to publish what nobody wants any more.
            std::process::exit(INTERRUPTED);
        }
    };
    let report = match built {
        Ok(report) => report,
        Err(error) => {
            let message = text!("No new index was built. The operator has the details.").to_owned();
            end(
                &mut task,
                TaskStatus::Failed,
                "not_indexed",
                message,
                to.clock,
            );
            to.catalog.put_task(&task, keep(&task)).await?;
            return Err(error);
        }
    };
    if let Some(publisher) = to.publisher
        && let Err(error) = publish(publisher, job, to, &report).await
    {
        let message = text!("The index was built and not published. The operator has the details.");
        let message = message.to_owned();
        end(
            &mut task,
            TaskStatus::Failed,
            "not_published",
            message,
            to.clock,
        );
        to.catalog.put_task(&task, keep(&task)).await?;
        return Err(error);
    }
    task.status = TaskStatus::Succeeded;
    task.updated_at = to.clock.now();
    if !report.failed.is_empty() {
        end(
            &mut task,
            TaskStatus::Partial,
            "unreadable_documents",
            left_out(&report),
            to.clock,
        );
    }
    let entry = catalogue_entry(job, to, &report).await?;
    to.catalog.put(&entry, PutMode::Replace).await?;
    to.catalog.put_task(&task, keep(&task)).await?;
    Ok((task, report))
}

async fn build(job: &IndexJob, to: &Destination<'_>) -> anyhow::Result<IndexReport> {
    let options = IndexOptions {
        source_dir: job.folder.clone(),
        index_root: to.index_dir.to_owned(),
        kb_id: job.kb_id.clone(),
        reading: job.reading,
    };
    let runtime = tokio::runtime::Handle::current();
    let embedder = to.embedder.clone();
    let embedding = embedder.map(|embedder| Embedding::new(embedder, runtime));
    let work = tokio::task::spawn_blocking(move || {
        let bar = ProgressBar::no_length();
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let mut show = |progress| match progress {
            Progress::Found { files } => bar.set_length(files as u64),
            Progress::Read { filename, done } => {
                bar.set_position(done as u64);
                bar.set_message(filename);
            }
        };
        let report = embed_folder(&options, embedding.as_ref(), &SystemClock, &mut show);
        bar.finish_and_clear();
        report
    });
    Ok(work
        .await
        .context(text!("the indexing thread ended unexpectedly"))??)
}

/// Puts the index that was just built into S3.
async fn publish(
    publisher: &Publisher,
    job: &IndexJob,
    to: &Destination<'_>,
    report: &IndexReport,
) -> anyhow::Result<()> {
    let directory = layout::knowledge_base_dir(to.index_dir, &job.kb_id);
    let generation = directory.join(&report.generation);
    let location = publisher.location();
    let publishing = publisher.publish(&job.kb_id, &generation, to.clock.now());
    let archive = publishing.await.with_context(|| {
        text!(
            "the index was built and not published in {location}",
            location
        )
    })?;
    say(text!(
        "published in {location}: {archive_bytes} bytes, SHA-256 {digest}",
        location,
        archive_bytes = archive.archive_bytes,
        digest = archive.archive_sha256
    ));
    Ok(())
}

fn end(task: &mut Task, status: TaskStatus, class: &str, message: String, clock: &dyn Clock) {
    task.status = status;
    task.error = Some(TaskError {
        class: class.to_owned(),
        message,
    });
    task.updated_at = clock.now();
}

fn left_out(report: &IndexReport) -> String {
    let names: Vec<&str> = report
        .failed
        .iter()
        .take(NAMED_FAILURES)
        .map(|file| file.filename.as_str())
        .collect();
    let more = report.failed.len().saturating_sub(NAMED_FAILURES);
    let names = names.join(", ");
    if more > 0 {
        text!(
            "Documents that could not be read were left out: {names} and {more} more.",
            names,
            more
        )
    } else {
        text!(
            "Documents that could not be read were left out: {names}.",
            names
        )
    }
}

/// The entry as it is, brought up to date, or a new one.
async fn catalogue_entry(
    job: &IndexJob,
    to: &Destination<'_>,
    report: &IndexReport,
) -> anyhow::Result<KnowledgeBase> {
    let now = to.clock.now();
    let known = to.catalog.get(&job.kb_id).await?;
    let mut entry = known.unwrap_or_else(|| KnowledgeBase {
        id: job.kb_id.clone(),
        name: job.kb_id.to_string(),
        description: text!(
            "Documents of the knowledge base {kb_id}.",
            kb_id = job.kb_id
        ),
        owner: None,
        backend: BackendReference {
            kind: BackendReference::EMBEDDED.to_owned(),
            id: job.kb_id.to_string(),
        },
        strategy: WORDS.to_owned(),
        document_count: None,
        chunk_count: None,
        created_at: now,
        updated_at: now,
    });
    if entry.backend.kind != BackendReference::EMBEDDED {
        bail!(text!(
            "{id} is answered by the backend {kind}, not by an embedded index: choose another --kb",
            id = entry.id,
            kind = format_args!("{:?}", entry.backend.kind)
        ));
    }
    if let Some(name) = &job.name {
        entry.name.clone_from(name);
    }
    if let Some(description) = &job.description {
        entry.description.clone_from(description);
    }
    if job.owner.is_some() {
        entry.owner.clone_from(&job.owner);
    }
    if entry.strategy == WORDS || entry.strategy == WORDS_AND_MEANING {
        let strategy = match to.embedder {
            Some(_) => WORDS_AND_MEANING,
            None => WORDS,
        };
        strategy.clone_into(&mut entry.strategy);
    }
    entry.document_count = Some(report.documents);
    entry.chunk_count = Some(report.chunks);
    entry.updated_at = now;
    Ok(entry)
}
