//! `raglan stdio`: the same server for hosts that start a program and talk to its standard input and
//! output. Every line is handed to an MCP endpoint over HTTP: the local system's own, which is started
//! when none runs, or the one of `--url`. Standard output carries the protocol and nothing else.

mod bridge;

use std::io::BufRead as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::AsyncWriteExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc};

use self::bridge::Bridge;
use crate::Outcome;
use crate::arguments::StdioArguments;
use crate::dev::{self, Functions};
use crate::language::text;
use crate::local::emulators::EmulatorError;
use crate::system::LocalSystem;

/// Messages that may be under way at the same time.
const CONCURRENT_MESSAGES: usize = 16;
/// A host may start the next server while the one before still ends: TypeScript clients look at a first
/// one only to learn which revisions it has.
const FOLDER_TRIES: u32 = 50;
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
    let system = start_system(&arguments.state_dir).await.context(text!(
        "the local system cannot start; when `raglan dev` runs, name its endpoint with --url"
    ))?;
    if system.catalog().list_all().await?.is_empty() {
        dev::index_sample(&system).await?;
    }
    let functions = Functions::start(&system, 0).await?;
    let (key, minted) = if let Some(key) = key {
        (key, None)
    } else {
        let (key, record) = system.mint_key("raglan stdio").await?;
        (key.reveal().to_owned(), Some(record))
    };
    let carried = carry(Bridge::new(functions.url().to_owned(), key)).await;
    functions.stop().await;
    if let Some(mut record) = minted {
        record.revoked_at = Some(system.clock().now());
        system.keys().put(&record).await?;
    }
    system.emulators.shutdown().await;
    carried?;
    Ok(Outcome::Done)
}

/// Starts the local system, as soon as nobody else uses its folder.
async fn start_system(folder: &Path) -> anyhow::Result<LocalSystem> {
    for _ in 1..FOLDER_TRIES {
        match LocalSystem::start(folder).await {
            Err(error) if is_in_use(&error) => tokio::time::sleep(FOLDER_PAUSE).await,
            started => return started,
        }
    }
    LocalSystem::start(folder).await
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
