//! Puts an index into S3.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use aws_config::SdkConfig;
use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::Timestamp;
use raglan_store::StoreError;
use sha2::{Digest as _, Sha256};

use crate::archive::{self, ArchiveError};
use crate::location::{ARCHIVE_SUFFIX, IndexLocation};
use crate::objects::{Objects, Written};
use crate::pointer::{ArchiveDigest, Pointer};
use crate::reader::{ObjectError, Reader, Small};

/// Archives that stay, the one that answers included: a function that has read the pointer a moment
/// ago must still find what it names.
pub const KEPT_ARCHIVES: usize = 3;

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishReport {
    /// The archive that answers now.
    pub archive_sha256: ArchiveDigest,
    /// Its size.
    pub archive_bytes: u64,
    /// Whether it is another one than before.
    pub is_new: bool,
    /// How many old archives were removed.
    pub removed: usize,
}

/// Why nothing was published. What answered before answers on.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The index cannot be packed.
    #[error("the index cannot be packed: {0}")]
    Archive(#[from] ArchiveError),
    /// S3 refuses or does not answer.
    #[error(transparent)]
    Aws(#[from] StoreError),
    /// An object broke off on the way, or is none of ours.
    #[error("{0}")]
    Transfer(String),
    /// Another process has published this knowledge base at the same time.
    #[error("another process has published this knowledge base meanwhile")]
    Overtaken,
}

impl From<ObjectError> for PublishError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Aws(error) => Self::Aws(error),
            other => Self::Transfer(other.to_string()),
        }
    }
}

impl From<io::Error> for PublishError {
    fn from(error: io::Error) -> Self {
        Self::Archive(error.into())
    }
}

/// Publishes indexes at one location.
#[derive(Debug, Clone)]
pub struct Publisher {
    objects: Objects,
    reader: Arc<Reader>,
    location: IndexLocation,
}

impl Publisher {
    /// Publishes with this account.
    #[must_use]
    pub fn new(config: &SdkConfig, location: IndexLocation) -> Self {
        Self {
            objects: Objects::new(config, location.bucket()),
            reader: Arc::new(Reader::new(config, location.bucket())),
            location,
        }
    }

    /// Where it publishes.
    #[must_use]
    pub const fn location(&self) -> &IndexLocation {
        &self.location
    }

    /// Makes the index in the folder `generation` the one that answers for the knowledge base, and
    /// removes archives that are older than the last [`KEPT_ARCHIVES`].
    ///
    /// # Errors
    /// [`PublishError`]
    pub async fn publish(
        &self,
        knowledge_base: &KnowledgeBaseId,
        generation: &Path,
        now: Timestamp,
    ) -> Result<PublishReport, PublishError> {
        let packed = Packed::of(generation).await?;
        let digest = packed.digest;
        let pointer_key = self.location.pointer_key(knowledge_base);
        let current = self.current(&pointer_key).await?;
        let mut report = PublishReport {
            archive_sha256: digest,
            archive_bytes: packed.archive_bytes,
            is_new: false,
            removed: 0,
        };
        let is_current = |current: &Current| {
            let pointer = current.pointer.as_ref();
            pointer.is_some_and(|pointer| pointer.archive_sha256 == digest)
        };
        if current.as_ref().is_some_and(is_current) {
            return Ok(report);
        }
        // Also when it was published before: what is newest is not removed by somebody else.
        let archive_key = self.location.archive_key(knowledge_base, &digest);
        let archive = packed.file.path();
        self.objects.upload(&archive_key, archive, &digest).await?;
        let pointer = Pointer::new(digest, packed.archive_bytes, packed.unpacked_bytes, now);
        let json = pointer.to_json().map_err(io::Error::from)?;
        let etag = current.as_ref().and_then(|current| current.etag.as_deref());
        if self.objects.replace(&pointer_key, json, etag).await? == Written::Overtaken {
            // Or the SDK has tried twice, and overtook itself.
            let current = self.current(&pointer_key).await?;
            if !current.as_ref().is_some_and(is_current) {
                return Err(PublishError::Overtaken);
            }
        }
        report.is_new = true;
        report.removed = self.remove_old(knowledge_base, &archive_key).await?;
        Ok(report)
    }

    async fn current(&self, pointer_key: &str) -> Result<Option<Current>, PublishError> {
        match self.reader.read_small(pointer_key, None).await {
            Ok(Small::Changed { etag, body }) => Ok(Some(Current {
                etag,
                // Another version of raglan has written it: replaced all the same.
                pointer: Pointer::read(&body).ok(),
            })),
            Ok(Small::Unchanged) | Err(ObjectError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn remove_old(
        &self,
        knowledge_base: &KnowledgeBaseId,
        current_key: &str,
    ) -> Result<usize, ObjectError> {
        let folder = self.location.folder(knowledge_base);
        let mut archives = self.objects.list(&folder).await?;
        archives.retain(|object| object.key != current_key && is_archive(&object.key, &folder));
        archives.sort_by_key(|object| std::cmp::Reverse(object.written_at_seconds));
        let old = archives.iter().skip(KEPT_ARCHIVES - 1);
        let mut removed = 0;
        for object in old {
            self.objects.delete(&object.key).await?;
            removed += 1;
        }
        Ok(removed)
    }
}

/// The pointer that is there.
struct Current {
    etag: Option<String>,
    pointer: Option<Pointer>,
}

/// Only what this module has named is ever removed.
fn is_archive(key: &str, folder: &str) -> bool {
    key.strip_prefix(folder)
        .and_then(|name| name.strip_suffix(ARCHIVE_SUFFIX))
        .is_some_and(|digest| ArchiveDigest::parse(digest).is_ok())
}

/// An archive on the local disk.
struct Packed {
    file: tempfile::NamedTempFile,
    digest: ArchiveDigest,
    archive_bytes: u64,
    unpacked_bytes: u64,
}

impl Packed {
    async fn of(generation: &Path) -> Result<Self, PublishError> {
        let generation = generation.to_owned();
        let packing = tokio::task::spawn_blocking(move || Self::pack(&generation));
        packing.await.map_err(io::Error::other)?
    }

    fn pack(generation: &Path) -> Result<Self, PublishError> {
        let file = tempfile::NamedTempFile::new()?;
        let mut writer = HashingWriter {
            to: BufWriter::new(file.reopen()?),
            hasher: Sha256::new(),
            written_bytes: 0,
        };
        let unpacked_bytes = archive::pack(generation, &mut writer)?;
        Ok(Self {
            file,
            digest: ArchiveDigest::of(writer.hasher),
            archive_bytes: writer.written_bytes,
            unpacked_bytes,
        })
    }
}

struct HashingWriter {
    to: BufWriter<File>,
    hasher: Sha256,
    written_bytes: u64,
}

impl Write for HashingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.written_bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests;
