//! `raglan stdio`: the same server for hosts that start a program and talk to its standard input and
//! output. Every line is handed to an MCP endpoint over HTTP: the local system's own, which is started
//! when none runs, or the one of `--url`. Standard output carries the protocol and nothing else.

mod bridge;

use std::sync::Arc;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{Semaphore, mpsc};

use self::bridge::Bridge;
use crate::Outcome;
use crate::arguments::StdioArguments;
use crate::dev::{self, Functions};
use crate::system::LocalSystem;

/// Messages that may be under way at the same time.
const CONCURRENT_MESSAGES: usize = 16;
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
        let key =
            key.with_context(|| format!("{KEY_VARIABLE} is not set: a key for {url} is needed"))?;
        carry(Bridge::new(url, key)).await?;
        return Ok(Outcome::Done);
    }
    let system = LocalSystem::start(&arguments.state_dir).await.context(
        "the local system cannot start; when `raglan dev` runs, name its endpoint with --url",
    )?;
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

/// Carries lines both ways until the input ends and everything is answered.
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
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines
        .next_line()
        .await
        .context("standard input cannot be read")?
    {
        if line.trim().is_empty() {
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
        .context("the writer ended unexpectedly")?
        .context("standard output is closed")
}
