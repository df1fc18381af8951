//! The copy on the local disk: an index folder like any other, filled from archives.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use raglan_core::catalog::KnowledgeBaseId;
use raglan_rag::backend::BackendError;
use raglan_rag::embedded::layout::{self, Generation};
use raglan_rag::embedded::open::OpenIndex;
use raglan_store::StoreError;
use tempfile::TempDir;

use crate::archive;
use crate::location::IndexLocation;
use crate::pointer::{ArchiveDigest, Pointer};
use crate::reader::{ObjectError, Reader};

/// Lambda's `/tmp` is never larger.
const UNPACKED_MAX_BYTES: u64 = 10 << 30;

/// Why there is no new copy. What answered before answers on.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CopyError {
    /// Nothing has been published.
    #[error(
        "{knowledge_base} has not been published in {location}; publish it with `raglan index DIR --kb {knowledge_base} --publish {location}`"
    )]
    NotPublished {
        knowledge_base: KnowledgeBaseId,
        location: String,
    },
    /// S3 refuses or does not answer.
    #[error(transparent)]
    Aws(StoreError),
    /// What came is incomplete, or not what its name says.
    #[error("{0}")]
    Incomplete(String),
    /// There is not enough room for it.
    #[error("{unpacked_bytes} bytes are more than the function can hold ({UNPACKED_MAX_BYTES})")]
    TooLarge { unpacked_bytes: u64 },
    /// This version of raglan cannot use it, or the disk does not take it.
    #[error("{0}")]
    Unusable(String),
    /// A bug.
    #[error("the copy could not be made; the log says why")]
    Panicked,
}

impl From<ObjectError> for CopyError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Aws(error) => Self::Aws(error),
            // The pointer's absence is told apart before; an archive can be removed under our hands.
            ObjectError::NotFound(_)
            | ObjectError::BrokeOff { .. }
            | ObjectError::TooLarge { .. } => Self::Incomplete(error.to_string()),
            ObjectError::File { .. } => Self::Unusable(error.to_string()),
        }
    }
}

impl From<CopyError> for BackendError {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Aws(StoreError::Throttled { .. }) => Self::Throttled,
            CopyError::Aws(cause) if cause.is_transient() => Self::Unavailable(cause.to_string()),
            // S3 says "denied" where there is nothing and the reader may not list the bucket.
            CopyError::Aws(cause) => Self::Refused(format!(
                "{cause}; S3 answers so as well where nothing has been published"
            )),
            CopyError::Incomplete(text) => Self::UnreadableAnswer(text),
            CopyError::Panicked => Self::Unavailable(error.to_string()),
            CopyError::NotPublished { .. }
            | CopyError::TooLarge { .. }
            | CopyError::Unusable(_) => Self::UnusableIndex(error.to_string()),
        }
    }
}

/// The folder of all copies, for our eyes only: whoever could write into it could answer for us.
pub(crate) fn private_folder(path: &Path) -> Result<(), CopyError> {
    let refused = |cause: &dyn std::fmt::Display| {
        CopyError::Unusable(format!("{} cannot be used: {cause}", path.display()))
    };
    let mut builder = DirBuilder::new();
    if let Err(error) = builder.recursive(true).mode(0o700).create(path) {
        return Err(refused(&error));
    }
    let metadata = fs::symlink_metadata(path).map_err(|error| refused(&error))?;
    if !metadata.is_dir() || metadata.permissions().mode() & 0o077 != 0 {
        return Err(refused(&"others may write or read there"));
    }
    Ok(())
}

/// Makes the archive that `pointer` names the index that answers below `root`.
pub(crate) async fn install(
    objects: &Reader,
    location: &IndexLocation,
    knowledge_base: &KnowledgeBaseId,
    pointer: &Pointer,
    root: &Path,
) -> Result<(), CopyError> {
    let Pointer {
        archive_sha256,
        archive_bytes,
        unpacked_bytes,
        ..
    } = *pointer;
    if unpacked_bytes > UNPACKED_MAX_BYTES || archive_bytes > UNPACKED_MAX_BYTES {
        return Err(CopyError::TooLarge { unpacked_bytes });
    }
    private_folder(root)?;
    let place = Place::new(root, knowledge_base, &archive_sha256)?;
    // A process that was started again in the same environment finds its own copy.
    if place.is_usable() {
        return place.answer().map_err(|error| place.unusable(&error));
    }
    let building = place.building().map_err(|error| place.unusable(&error))?;
    let archive = building.path().join("archive");
    let key = location.archive_key(knowledge_base, &archive_sha256);
    let found = objects.download(&key, &archive, archive_bytes).await?;
    if found != archive_sha256 {
        return Err(CopyError::Incomplete(format!(
            "{location}: the archive {archive_sha256} has the SHA-256 {found}"
        )));
    }
    let work = tokio::task::spawn_blocking(move || {
        place.unpack(&building, &archive, unpacked_bytes)?;
        place.answer().map_err(|error| place.unusable(&error))
    });
    work.await.unwrap_or(Err(CopyError::Panicked))
}

/// Where one copy lies.
struct Place {
    knowledge_base: KnowledgeBaseId,
    directory: PathBuf,
    generation: Generation,
}

impl Place {
    fn new(
        root: &Path,
        knowledge_base: &KnowledgeBaseId,
        digest: &ArchiveDigest,
    ) -> Result<Self, CopyError> {
        let generation = Generation::parse(&format!("idx-{digest}"))
            .ok_or_else(|| CopyError::Unusable(format!("{digest} names no index")))?;
        Ok(Self {
            knowledge_base: knowledge_base.clone(),
            directory: layout::knowledge_base_dir(root, knowledge_base),
            generation,
        })
    }

    fn folder(&self) -> PathBuf {
        self.directory.join(self.generation.as_str())
    }

    fn is_usable(&self) -> bool {
        self.folder().is_dir() && OpenIndex::open(&self.folder()).is_ok()
    }

    fn building(&self) -> io::Result<TempDir> {
        fs::create_dir_all(&self.directory)?;
        // What an interrupted run left would take the place that the new one needs.
        self.remove(|name| {
            name.starts_with(layout::BUILDING_PREFIX) || name == self.generation.as_str()
        })?;
        tempfile::Builder::new()
            .prefix(layout::BUILDING_PREFIX)
            .tempdir_in(&self.directory)
    }

    fn unpack(
        &self,
        building: &TempDir,
        archive: &Path,
        unpacked_bytes: u64,
    ) -> Result<(), CopyError> {
        let index = building.path().join("index");
        let unpacked = fs::create_dir(&index)
            .and_then(|()| File::open(archive))
            .map_err(archive::ArchiveError::from)
            .and_then(|file| archive::unpack(file, &index, unpacked_bytes));
        unpacked.map_err(|error| self.unusable(&error))?;
        OpenIndex::open(&index).map_err(|error| self.unusable(&error))?;
        fs::rename(&index, self.folder()).map_err(|error| self.unusable(&error))
    }

    /// Makes this copy the one that answers, and removes all others. Files that are still being read
    /// stay readable until they are closed.
    fn answer(&self) -> io::Result<()> {
        layout::publish(&self.directory, &self.generation)?;
        self.remove(|name| name != self.generation.as_str())
    }

    fn remove(&self, unwanted: impl Fn(&str) -> bool) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type()?.is_dir() && unwanted(&name.to_string_lossy()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    fn unusable(&self, cause: &dyn std::fmt::Display) -> CopyError {
        let id = &self.knowledge_base;
        CopyError::Unusable(format!(
            "the published index of {id}: {cause}; build and publish it again with `raglan index DIR --kb {id} --full --publish S3-URI`"
        ))
    }
}
