//! Builds an index from a folder and publishes it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::{Clock, Timestamp};
use raglan_rag::backend::BackendError;
use raglan_rag::embedded::layout;
use raglan_rag::embedded::writer::{IndexWriter, NewDocument, WriteError};
use raglan_texts::{process_language, text};
use sha2::{Digest as _, Sha256};

use crate::document::{DocumentReader, short_hex};
use crate::embedding::{Batches, Embedding};
use crate::known::{Known, Records, file_system_time_ns};
use crate::publication::{Publication, StartError};
use crate::source::{FailedFile, Source, scan};

/// What to index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexOptions {
    /// The folder with the documents.
    pub source_dir: PathBuf,
    /// Where indexes lie; created when it does not exist.
    pub index_root: PathBuf,
    /// The knowledge base.
    pub kb_id: KnowledgeBaseId,
    /// Which files are read.
    pub reading: Reading,
}

/// Which files are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reading {
    /// Those that have changed since the index that answers now was built; the passages of the others
    /// are taken over from it. A file has changed when its size or one of its times has, and then when
    /// its bytes have.
    #[default]
    Changed,
    /// All of them.
    All,
}

/// How far the work has come. After the last document the index is written and published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The folder was looked through.
    Found {
        /// Number of documents.
        files: usize,
    },
    /// A document was taken in or given up.
    Read {
        /// Which one.
        filename: String,
        /// How many of them so far.
        done: usize,
    },
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexReport {
    /// Number of documents that were taken in.
    pub documents: u64,
    /// Number of passages.
    pub chunks: u64,
    /// Number of documents whose passages were taken over, because the file has not changed.
    pub unchanged: u64,
    /// Number of passages that the embedding model was asked for; 0 without a model.
    pub embedded: u64,
    /// Number of files that were passed over: hidden, of an unknown kind, or links out of the folder.
    pub skipped: u64,
    /// Documents that could not be taken in, ordered by file name.
    pub failed: Vec<FailedFile>,
    /// Documents in which the guard marked something, ordered by file name.
    pub marked: Vec<MarkedFile>,
    /// The name of the index that answers now.
    pub generation: String,
    /// Its size on disk.
    pub size_bytes: u64,
}

/// A document in which the guard marked something. It is indexed all the same: callers get it marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedFile {
    /// The file, relative to the folder.
    pub filename: String,
    /// How many passages were marked, by rule.
    pub findings: BTreeMap<String, u64>,
}

/// Why there is no new index. What answered before answers on.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The folder does not exist or cannot be listed.
    #[error(
        "{}",
        text!(
            process_language(),
            "the folder {path} cannot be read: {source}",
            path = path.display(),
            source = .source
        )
    )]
    Source {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There are no documents in the folder.
    #[error(
        "{}",
        text!(
            process_language(),
            "there are no documents in {path} (Markdown, text, HTML or PDF; other files: {skipped})",
            path = path.display(),
            skipped = .skipped
        )
    )]
    NoDocuments {
        /// The folder.
        path: PathBuf,
        /// Number of files that were passed over.
        skipped: u64,
    },
    /// There are documents, and none of them can be read.
    #[error(
        "{}",
        text!(
            process_language(),
            "none of the {count} documents in {path} can be read; the first: {first}",
            count = failed.len(),
            path = path.display(),
            first = first(failed)
        )
    )]
    NothingReadable {
        /// The folder.
        path: PathBuf,
        /// The documents with the reasons.
        failed: Vec<FailedFile>,
    },
    /// Another process builds the index of this knowledge base.
    #[error(
        "{}",
        text!(
            process_language(),
            "another process is building the index of {kb_id}; try again when it has ended",
            kb_id = .0
        )
    )]
    Busy(KnowledgeBaseId),
    /// The embedding model did not give vectors for all passages.
    #[error(
        "{}",
        text!(
            process_language(),
            "the embedding model gave no vectors: {cause}",
            cause = .0
        )
    )]
    Embedding(BackendError),
    /// The index could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The finished index could not be put in its place, or the folder not be prepared.
    #[error(
        "{}",
        text!(
            process_language(),
            "cannot write in {path}: {source}",
            path = path.display(),
            source = .source
        )
    )]
    Publish {
        /// The knowledge base's folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn first(failed: &[FailedFile]) -> String {
    failed
        .first()
        .map(|file| format!("{}: {}", file.filename, file.reason))
        .unwrap_or_default()
}

/// Builds an index of every document below a folder and makes it the one that answers. Whether files
/// were read or their passages taken over makes no difference to the result.
///
/// A document that cannot be read is reported and left out. The new index is complete before it
/// takes the old one's place in one step; when the work is interrupted, the old one answers on. The
/// index that was just replaced is kept until the next build, because a running process may still
/// read it.
///
/// # Errors
/// [`IndexError`]; nothing has changed for readers then.
pub fn index_folder(
    options: &IndexOptions,
    clock: &dyn Clock,
    progress: &mut dyn FnMut(Progress),
) -> Result<IndexReport, IndexError> {
    embed_folder(options, None, clock, progress)
}

/// The same, with vectors of a model where there is one. Passages whose text has not changed keep theirs.
///
/// # Errors
/// [`IndexError`]; nothing has changed for readers then.
pub fn embed_folder(
    options: &IndexOptions,
    embedding: Option<&Embedding>,
    clock: &dyn Clock,
    progress: &mut dyn FnMut(Progress),
) -> Result<IndexReport, IndexError> {
    let path = &options.source_dir;
    let source = scan(path).map_err(|source| IndexError::Source {
        path: path.clone(),
        source,
    })?;
    let now = clock.now();
    index_source(
        source,
        options,
        embedding,
        now,
        &file_system_time_ns,
        progress,
    )
}

/// `time_ns` tells the file system's time from a folder that was just made.
fn index_source(
    source: Source,
    options: &IndexOptions,
    embedding: Option<&Embedding>,
    now: Timestamp,
    time_ns: &dyn Fn(&Path) -> i64,
    progress: &mut dyn FnMut(Progress),
) -> Result<IndexReport, IndexError> {
    let path = &options.source_dir;
    if source.files.is_empty() && source.failed.is_empty() {
        return Err(IndexError::NoDocuments {
            path: path.clone(),
            skipped: source.skipped,
        });
    }
    progress(Progress::Found {
        files: source.files.len(),
    });

    let directory = layout::knowledge_base_dir(&options.index_root, &options.kb_id);
    let known = match options.reading {
        Reading::Changed => Known::open(&directory),
        Reading::All => Known::open(&directory).without_passages(),
    };
    let mut generation = NewGeneration::start(directory, &options.kb_id, embedding)?;
    let mut reader = DocumentReader::new(&known, time_ns(generation.folder()), now);
    let mut failed = source.failed;
    for (done, file) in (1..).zip(&source.files) {
        let (document, reason) = reader.document(file);
        generation.add(document)?;
        failed.extend(reason.map(|reason| FailedFile {
            filename: file.filename.clone(),
            reason,
        }));
        progress(Progress::Read {
            filename: file.filename.clone(),
            done,
        });
    }
    failed.sort_by(|a, b| a.filename.cmp(&b.filename));
    generation.keep(&reader.records)?;
    // The folder's name only: callers are told where documents come from, not how a disk is laid out.
    let name = fs::canonicalize(path)
        .ok()
        .and_then(|path| path.file_name().map(OsStr::to_owned));
    let sources = name
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    match generation.publish(sources, now)? {
        Some(report) => Ok(IndexReport {
            skipped: source.skipped,
            unchanged: reader.unchanged,
            failed,
            ..report
        }),
        None => Err(IndexError::NothingReadable {
            path: path.clone(),
            failed,
        }),
    }
}

/// Builds an index of `documents` and makes it the one that answers; `None`, and nothing has changed,
/// when there is not a single passage. `sources` is what the index says of where they come from.
///
/// # Errors
/// [`IndexError`]; nothing has changed for readers then.
pub fn index_documents(
    index_root: &Path,
    kb_id: &KnowledgeBaseId,
    sources: Vec<String>,
    documents: impl IntoIterator<Item = NewDocument>,
    now: Timestamp,
) -> Result<Option<IndexReport>, IndexError> {
    embed_documents(index_root, kb_id, sources, documents, None, now)
}

/// The same, with vectors of a model where there is one.
///
/// # Errors
/// [`IndexError`]; nothing has changed for readers then.
pub fn embed_documents(
    index_root: &Path,
    kb_id: &KnowledgeBaseId,
    sources: Vec<String>,
    documents: impl IntoIterator<Item = NewDocument>,
    embedding: Option<&Embedding>,
    now: Timestamp,
) -> Result<Option<IndexReport>, IndexError> {
    let directory = layout::knowledge_base_dir(index_root, kb_id);
    let mut generation = NewGeneration::start(directory, kb_id, embedding)?;
    for document in documents {
        generation.add(document)?;
    }
    generation.publish(sources, now)
}

/// A generation that is being written beside the one that answers.
struct NewGeneration<'a> {
    directory: PathBuf,
    kb_id: &'a KnowledgeBaseId,
    publication: Publication,
    writer: IndexWriter,
    batches: Option<Batches<'a>>,
    content: Sha256,
    marked: Vec<MarkedFile>,
}

impl<'a> NewGeneration<'a> {
    fn start(
        directory: PathBuf,
        kb_id: &'a KnowledgeBaseId,
        embedding: Option<&'a Embedding>,
    ) -> Result<Self, IndexError> {
        let publication = Publication::start(&directory).map_err(|error| match error {
            StartError::Busy => IndexError::Busy(kb_id.clone()),
            StartError::Io(source) => IndexError::Publish {
                path: directory.clone(),
                source,
            },
        })?;
        let batches = embedding.map(|embedding| Batches::start(embedding, &directory));
        let writer = IndexWriter::create(publication.folder())?;
        let writer = match &batches {
            Some(batches) => writer.with_vectors(batches.model())?,
            None => writer,
        };
        Ok(Self {
            writer,
            batches,
            directory,
            kb_id,
            publication,
            content: Sha256::new(),
            marked: Vec::new(),
        })
    }

    fn folder(&self) -> &Path {
        self.publication.folder()
    }

    fn add(&mut self, new: NewDocument) -> Result<(), IndexError> {
        let document = &new.document;
        if !document.guard_findings.is_empty() {
            self.marked.push(MarkedFile {
                filename: document.filename.clone(),
                findings: document.guard_findings.clone(),
            });
        }
        self.content.update(&document.id);
        for passage in &new.passages {
            self.content.update(&passage.id);
        }
        match &mut self.batches {
            Some(batches) => batches.add(new, &mut self.writer),
            None => Ok(self.writer.add(new)?),
        }
    }

    fn keep(&self, records: &Records) -> Result<(), IndexError> {
        records
            .write(self.folder())
            .map_err(|source| IndexError::Publish {
                path: self.directory.clone(),
                source,
            })
    }

    /// `None`, and nothing has changed, when there is not a single passage.
    fn publish(
        mut self,
        sources: Vec<String>,
        now: Timestamp,
    ) -> Result<Option<IndexReport>, IndexError> {
        let mut embedded = 0;
        if let Some(batches) = &mut self.batches {
            batches.write(&mut self.writer)?;
            embedded = batches.embedded;
        }
        if self.writer.is_empty() {
            return Ok(None);
        }
        let manifest = self.writer.finish(self.kb_id, sources, now)?;
        let digest = self.content.chain_update(now.epoch_ms().to_be_bytes());
        let generation = self
            .publication
            .publish(&short_hex(digest))
            .map_err(|source| IndexError::Publish {
                path: self.directory,
                source,
            })?;
        Ok(Some(IndexReport {
            documents: manifest.document_count,
            chunks: manifest.chunk_count,
            unchanged: 0,
            embedded,
            skipped: 0,
            failed: Vec::new(),
            marked: self.marked,
            generation: generation.as_str().to_owned(),
            size_bytes: manifest.files.values().sum(),
        }))
    }
}

#[cfg(test)]
mod incremental_tests;
#[cfg(test)]
mod tests;
