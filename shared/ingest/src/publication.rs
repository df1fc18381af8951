//! Puts a finished index in its place.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use raglan_rag::embedded::layout::{self, Generation};
use tempfile::TempDir;

/// Held while a process builds, so that two of them do not clear away each other's work.
const LOCK: &str = ".lock";

/// A place to build an index in, next to the one that answers.
#[derive(Debug)]
pub struct Publication {
    directory: PathBuf,
    building: TempDir,
    // Released by the operating system when the process ends, however it ends.
    lock: File,
}

/// Why nothing can be built.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process is building.
    #[error("another process is building")]
    Busy,
    /// The folder cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Publication {
    /// Makes an empty folder inside of `directory`, the knowledge base's folder, and clears away what
    /// earlier builds left behind when they were interrupted.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(directory: &Path) -> Result<Self, StartError> {
        fs::create_dir_all(directory)?;
        let lock = File::create(directory.join(LOCK))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StartError::Busy,
            TryLockError::Error(error) => StartError::Io(error),
        })?;
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with(layout::BUILDING_PREFIX)
            {
                fs::remove_dir_all(entry.path())?;
            }
        }
        let building = tempfile::Builder::new()
            .prefix(layout::BUILDING_PREFIX)
            .tempdir_in(directory)?;
        Ok(Self {
            directory: directory.to_owned(),
            building,
            lock,
        })
    }

    /// The folder to build in.
    pub fn folder(&self) -> &Path {
        self.building.path()
    }

    /// Makes the finished index the one that answers, under a name that begins with `digest`
    /// (hexadecimal digits), and removes all others but the one that answered before.
    ///
    /// # Errors
    /// When the folder cannot be written. Whatever answered before answers on, unless the error came
    /// from removing old indexes.
    pub fn publish(self, digest: &str) -> io::Result<Generation> {
        let previous = layout::current(&self.directory).ok().flatten();
        let generation = self.free_name(digest)?;
        let built = self.building.keep();
        fs::rename(built, self.directory.join(generation.as_str()))?;
        layout::sync_directory(&self.directory)?;
        layout::publish(&self.directory, &generation)?;
        remove_others(&self.directory, &[Some(&generation), previous.as_ref()])?;
        self.lock.unlock()?;
        Ok(generation)
    }

    /// The same documents built twice at one moment have one digest; the second gets a longer name.
    fn free_name(&self, digest: &str) -> io::Result<Generation> {
        (0..=u8::MAX)
            .map(|n| {
                if n == 0 {
                    format!("idx-{digest}")
                } else {
                    format!("idx-{digest}{n:02x}")
                }
            })
            .find(|name| !self.directory.join(name).exists())
            .and_then(|name| Generation::parse(&name))
            .ok_or_else(|| io::ErrorKind::AlreadyExists.into())
    }
}

fn remove_others(directory: &Path, kept: &[Option<&Generation>]) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if let Some(generation) = Generation::parse(&entry.file_name().to_string_lossy())
            && !kept.contains(&Some(&generation))
        {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| name != LOCK)
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_replaced_index_is_kept_and_older_ones_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for digest in ["01", "02", "03"] {
            Publication::start(folder.path())
                .unwrap()
                .publish(digest)
                .unwrap();
        }
        assert_eq!(names(folder.path()), ["CURRENT", "idx-02", "idx-03"]);
        let again = Publication::start(folder.path())
            .unwrap()
            .publish("03")
            .unwrap();
        assert_eq!(again.as_str(), "idx-0301");
    }

    #[test]
    fn what_an_interrupted_build_left_is_cleared_away_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let left = Publication::start(folder.path()).unwrap();
        fs::write(left.folder().join("half"), "x").unwrap();
        // A killed process does not clean up, but its lock is released.
        let _ = left.building.keep();
        drop(left.lock);
        assert_eq!(names(folder.path()).len(), 1);
        Publication::start(folder.path())
            .unwrap()
            .publish("0a")
            .unwrap();
        assert_eq!(names(folder.path()), ["CURRENT", "idx-0a"]);
    }

    #[test]
    fn two_builds_of_one_knowledge_base_do_not_run_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let first = Publication::start(folder.path()).unwrap();
        assert!(matches!(
            Publication::start(folder.path()),
            Err(StartError::Busy)
        ));
        drop(first);
        assert!(Publication::start(folder.path()).is_ok());
    }
}
