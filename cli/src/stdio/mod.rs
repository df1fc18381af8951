//! `raglan stdio`: the same server for hosts that start a program and talk to its standard input and
//! output. Every line is handed to an MCP endpoint over HTTP: that of `--url`, that of the `raglan dev`
//! which runs in the same folder, or the local system's own, which is started then. Standard output carries the protocol and nothing else.

mod bridge;

use std::io::BufRead as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use raglan_core::clock::{Clock, SystemClock};
use raglan_core::key_record::KeyRecord;
use raglan_core::random::{Random, SystemRandom};
use raglan_store::KeyStore;
use tokio::io::AsyncWriteExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc};

use self::bridge::Bridge;
use crate::Outcome;
use crate::arguments::StdioArguments;
use crate::dev::{self, Functions};
use crate::language::text;
use crate::local::emulators::EmulatorError;
use crate::system::{LocalSystem, RUNNING_FILE, mint_key};
use crate::target::Target;

/// Messages that may be under way at the same time.
const CONCURRENT_MESSAGES: usize = 16;
/// A host may start the next server while the one before still ends: TypeScript clients look at a first
/// one only to learn which revisions it has.
const FOLDER_TRIES: u32 = 50;
/// Of these, as many are for a server that has not begun to end.
const NEIGHBOUR_TRIES: u32 = 15;
const FOLDER_PAUSE: Duration = Duration::from_millis(200);
/// The variable that holds the key.
const KEY_VARIABLE: &str = "RAGLAN_KEY";

/// Runs the command until standard input ends.
///
/// # Errors
/// One line, on standard error: no key, or the local system cannot start.
pub async fn run(arguments: StdioArguments) -> anyhow::Result<Outcome> {
    let key = std::env::var(KEY_VARIABLE)
        .ok()
        .filter(|key| !key.trim().is_empty());
    if let Some(url) = arguments.url {
        let key = key.with_context(|| {
            text!(
                "{variable} is not set: a key for {url} is needed",
                variable = KEY_VARIABLE,
                url
            )
        })?;
        carry(Bridge::new(url, key)).await?;
        return Ok(Outcome::Done);
    }
    match open_folder(&arguments.state_dir).await? {
        Folder::Running(running) => share(*running, key).await?,
        Folder::Free(system) => serve(*system, &arguments.state_dir, key).await?,
    }
    Ok(Outcome::Done)
}

/// Who works with the folder.
enum Folder {
    /// This program, from now on.
    Free(Box<LocalSystem>),
    /// A `raglan dev`, which has an endpoint.
    Running(Box<Target>),
}

/// Starts the local system, as soon as nobody else uses its folder, or finds the one that runs there.
async fn open_folder(folder: &Path) -> anyhow::Result<Folder> {
    let mut tries = 1;
    loop {
        let error = match LocalSystem::start(folder).await {
            Ok(system) => return Ok(Folder::Free(Box::new(system))),
            Err(error) => error,
        };
        if !is_in_use(&error) || tries == FOLDER_TRIES {
            return Err(error.context(text!("the local system cannot start")));
        }
        let running = Target::running_in(folder).await;
        if let Some(target) = running.filter(|target| target.endpoint().is_some()) {
            return Ok(Folder::Running(Box::new(target)));
        }
        // The file is the first thing that a program which ends takes away.
        if tries >= NEIGHBOUR_TRIES && folder.join(RUNNING_FILE).exists() {
            anyhow::bail!(text!(
                "another `raglan stdio` works with the folder {folder}: give this one a folder of its own with \
                 --state-dir, or run `raglan dev`, whose system any number of hosts can share",
                folder = folder.display()
            ));
        }
        tries += 1;
        tokio::time::sleep(FOLDER_PAUSE).await;
    }
}

/// Carries lines to the endpoint of a system that another process runs, with a key that lasts as long.
async fn share(target: Target, key: Option<String>) -> anyhow::Result<()> {
    let url = target.endpoint().unwrap_or_default().to_owned();
    let keys = target.keys()?;
    let (clock, random) = (&SystemClock, &SystemRandom);
    let (key, minted) = key_for(&keys, key, clock, random).await?;
    let carried = carry(Bridge::new(url, key)).await;
    revoke(&keys, minted, clock).await?;
    carried
}

/// Runs the local system for this host.
async fn serve(system: LocalSystem, folder: &Path, key: Option<String>) -> anyhow::Result<()> {
    if system.catalog().list_all().await?.is_empty() {
        dev::index_sample(&system).await?;
    }
    let running = folder.join(RUNNING_FILE);
    // Without the endpoint: nobody shall depend on a system that ends with its host.
    dev::write_variables(&running, &system, None)?;
    let functions = Functions::start(&system, 0).await?;
    let keys = system.keys();
    let (key, minted) = key_for(&keys, key, system.clock(), system.random()).await?;
    let carried = carry(Bridge::new(functions.url().to_owned(), key)).await;
    let _ = std::fs::remove_file(&running);
    functions.stop().await;
    revoke(&keys, minted, system.clock()).await?;
    system.emulators.shutdown().await;
    carried
}

/// The key that is there, or a new one and its record.
async fn key_for(
    keys: &KeyStore,
    given: Option<String>,
    clock: &dyn Clock,
    random: &dyn Random,
) -> anyhow::Result<(String, Option<KeyRecord>)> {
    if let Some(key) = given {
        return Ok((key, None));
    }
    let (key, record) = mint_key(keys, "raglan stdio", clock, random).await?;
    Ok((key.reveal().to_owned(), Some(record)))
}

/// Ends a key that nobody has any more.
async fn revoke(
    keys: &KeyStore,
    minted: Option<KeyRecord>,
    clock: &dyn Clock,
) -> anyhow::Result<()> {
    if let Some(mut record) = minted {
        record.revoked_at = Some(clock.now());
        keys.put(&record).await?;
    }
    Ok(())
}

fn is_in_use(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(EmulatorError::FolderInUse { .. })
    )
}

/// The lines of standard input, until it ends or the host asks the program to end. A thread of its own
/// reads, because a read cannot be cancelled and must not keep the program from ending.
fn input_lines() -> anyhow::Result<mpsc::Receiver<std::io::Result<Vec<u8>>>> {
    let (lines, received) = mpsc::channel(CONCURRENT_MESSAGES);
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            for line in std::io::stdin().lock().split(b'\n') {
                if lines.blocking_send(line).is_err() {
                    return;
                }
            }
        })
        .context(text!("standard input cannot be read"))?;
    Ok(received)
}

/// Carries lines both ways until the input ends or the program is asked to end, and everything is
/// answered.
async fn carry(bridge: Bridge) -> anyhow::Result<()> {
    let bridge = Arc::new(bridge);
    let places = Arc::new(Semaphore::new(CONCURRENT_MESSAGES));
    let (answers, mut to_write) = mpsc::channel::<String>(CONCURRENT_MESSAGES);
    let writing = tokio::spawn(async move {
        let mut output = tokio::io::stdout();
        while let Some(mut line) = to_write.recv().await {
            line.push('\n');
            output.write_all(line.as_bytes()).await?;
            output.flush().await?;
        }
        Ok::<_, std::io::Error>(())
    });
    let mut lines = input_lines()?;
    let mut terminated =
        signal(SignalKind::terminate()).context(text!("no signal can be awaited"))?;
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            _ = terminated.recv() => None,
            _ = tokio::signal::ctrl_c() => None,
        };
        let Some(line) = line else { break };
        let line = line.context(text!("standard input cannot be read"))?;
        // What is not UTF-8 is not JSON either and is answered as that.
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        if line.is_empty() {
            continue;
        }
        let place = Arc::clone(&places).acquire_owned().await?;
        let (bridge, answers) = (Arc::clone(&bridge), answers.clone());
        let opens_session = bridge::opens_session(&line);
        let work = async move {
            if let Some(answer) = bridge.answer(&line).await {
                // Whoever does not read the answers any more does not miss this one either.
                let _ = answers.send(answer).await;
            }
            drop(place);
        };
        if opens_session {
            // What follows needs the revision that this answer names.
            work.await;
        } else {
            tokio::spawn(work);
        }
    }
    drop(answers);
    writing
        .await
        .context(text!("the writer ended unexpectedly"))?
        .context(text!("standard output is closed"))
}
