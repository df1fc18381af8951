//! Where indexes lie on disk.
//!
//! ```text
//! <index root>/<knowledge base id>/CURRENT         names the generation that answers
//! <index root>/<knowledge base id>/idx-<hex>/      a generation, never changed once it is complete
//!                                     manifest.json, documents.json, tantivy's files
//! ```

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use raglan_core::catalog::KnowledgeBaseId;

/// Name of the file that names the generation.
pub const CURRENT: &str = "CURRENT";
/// Name of [`super::manifest::Manifest`] in a generation.
pub const MANIFEST: &str = "manifest.json";
/// Name of the list of [`crate::backend::Document`] in a generation, ordered by id.
pub const DOCUMENTS: &str = "documents.json";
/// First part of the name of a folder in which a generation is being built.
pub const BUILDING_PREFIX: &str = ".building-";

/// The name of a generation: `idx-` and lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Generation(String);

impl Generation {
    /// The generation of that name; `None` when no generation can have it.
    ///
    /// What is written in `CURRENT` becomes part of a path, so nothing else is let through.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let digits = name.strip_prefix("idx-")?;
        let valid = !digits.is_empty()
            && digits.len() <= 64
            && digits
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        valid.then(|| Self(name.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The folder of a knowledge base.
#[must_use]
pub fn knowledge_base_dir(index_root: &Path, knowledge_base: &KnowledgeBaseId) -> PathBuf {
    index_root.join(knowledge_base.as_str())
}

/// Which generation answers for the knowledge base in `directory`; `None` when there is none yet.
///
/// # Errors
/// When `CURRENT` cannot be read, or holds something else than the name of a generation
/// ([`io::ErrorKind::InvalidData`]).
pub fn current(directory: &Path) -> io::Result<Option<Generation>> {
    match fs::read_to_string(directory.join(CURRENT)) {
        Ok(text) => Generation::parse(text.trim_end()).map(Some).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "CURRENT does not name a generation",
            )
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Tells one `CURRENT` from the next without reading it: every publication is a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publication {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

/// The last publication in `directory`; `None` when there is none yet.
///
/// # Errors
/// When the folder cannot be looked at.
pub fn last_publication(directory: &Path) -> io::Result<Option<Publication>> {
    match fs::metadata(directory.join(CURRENT)) {
        Ok(file) => Ok(Some(Publication {
            device: file.dev(),
            inode: file.ino(),
            changed: (file.ctime(), file.ctime_nsec()),
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes `generation` the one that answers, in one step: a reader sees the old one or the new one.
///
/// # Errors
/// When the folder cannot be written; the old generation answers on.
pub fn publish(directory: &Path, generation: &Generation) -> io::Result<()> {
    let next = directory.join(".CURRENT.next");
    let mut file = File::create(&next)?;
    writeln!(file, "{}", generation.as_str())?;
    file.sync_all()?;
    fs::rename(&next, directory.join(CURRENT))?;
    sync_directory(directory)
}

/// Makes renames in `directory` last through a power cut.
///
/// # Errors
/// When the folder cannot be opened or synchronised.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_published_last_is_current() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(current(folder.path()).unwrap(), None);
        assert_eq!(last_publication(folder.path()).unwrap(), None);
        for name in ["idx-01", "idx-0f"] {
            let generation = Generation::parse(name).unwrap();
            publish(folder.path(), &generation).unwrap();
            assert_eq!(current(folder.path()).unwrap(), Some(generation));
        }
        let last = last_publication(folder.path()).unwrap();
        assert!(last.is_some() && last == last_publication(folder.path()).unwrap());
        publish(folder.path(), &Generation::parse("idx-ff").unwrap()).unwrap();
        assert_ne!(last, last_publication(folder.path()).unwrap());
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }

    proptest! {
        #[test]
        fn no_text_in_current_leads_out_of_the_folder(text in ".*|(idx-)?[./a-f0-9]{0,10}") {
            if let Some(generation) = Generation::parse(&text) {
                prop_assert!(!generation.as_str().contains(['/', '.', '\\', '\0']));
            }
        }
    }
}
