//! `raglan index --watch`: indexes again whenever the folder has changed and come to rest.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use raglan_ingest::source::{Stamp, scan};

use super::{Destination, IndexJob, index, report_details};
use crate::language::text;
use crate::terminal::{one_line, say, stop_signal, warn};

/// How often the folder is looked through.
const INTERVAL: Duration = Duration::from_secs(1);

/// The files of a folder, as far as they can be told apart without reading them.
pub type State = Vec<(String, Stamp)>;

/// Waits until a change is over before it is acted on: an editor or a copy writes many times.
#[derive(Debug, Default)]
struct Debounce {
    indexed: State,
    seen: State,
}

impl Debounce {
    fn new(indexed: State) -> Self {
        Self {
            seen: indexed.clone(),
            indexed,
        }
    }

    /// Whether to index now: something has changed, and nothing since the look before.
    fn observe(&mut self, now: State) -> bool {
        let at_rest = now == self.seen;
        self.seen = now;
        if !at_rest || self.seen == self.indexed {
            return false;
        }
        // A folder that cannot be indexed is tried again when it changes, not every second.
        self.indexed.clone_from(&self.seen);
        true
    }
}

/// Watches until the process is asked to stop. A failure is told, and the earlier index answers on.
///
/// # Errors
/// One line, when the folder cannot be looked at in the beginning.
pub async fn watch(job: &IndexJob, before: State, to: &Destination<'_>) -> anyhow::Result<()> {
    let mut debounce = Debounce::new(before);
    warn(text!(
        "watching {folder}; stop with Ctrl-C",
        folder = job.folder.display()
    ));
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = stop_signal() => return Ok(()),
        }
        // A folder that is away for a moment is no empty one.
        let Ok(now) = state(&job.folder).await else {
            continue;
        };
        if !debounce.observe(now) {
            continue;
        }
        match index(job, to).await {
            Ok((_, report)) => {
                say(format_args!(
                    "{}: {} documents ({} unchanged), {} passages",
                    job.kb_id, report.documents, report.unchanged, report.chunks
                ));
                report_details(&report);
            }
            Err(error) => warn(text!(
                "not indexed, the index of before answers on: {one_line}",
                one_line = one_line(&error)
            )),
        }
    }
}

/// What is in the folder now.
///
/// # Errors
/// One line, when it cannot be listed.
pub async fn state(folder: &Path) -> anyhow::Result<State> {
    let folder = folder.to_owned();
    let looked = tokio::task::spawn_blocking(move || scan(&folder)).await;
    let source = looked.context(text!("looking through the folder ended unexpectedly"))??;
    let files = source.files.into_iter();
    Ok(files.map(|file| (file.filename, file.stamp)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(stamp: i64) -> State {
        let stamp = Stamp {
            size_bytes: 1,
            modified_ns: stamp,
            changed_ns: stamp,
        };
        vec![("a.md".to_owned(), stamp)]
    }

    #[test]
    fn a_change_is_indexed_once_and_only_when_it_is_over() {
        let mut debounce = Debounce::new(state(1));
        let looks = [1, 1, 2, 3, 3, 3, 4, 3, 3, 5, 5];
        let acts = looks.map(|stamp| debounce.observe(state(stamp)));
        assert_eq!(
            acts,
            [
                false, false, false, false, true, false, false, false, false, false, true
            ]
        );
        debounce.observe(State::new());
        assert!(debounce.observe(State::new()), "deleted files are a change");
    }
}
