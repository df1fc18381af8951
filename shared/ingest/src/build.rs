//! Builds an index from a folder and publishes it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::{Clock, Timestamp};
use raglan_core::ids::to_hex;
use raglan_guard::Guard;
use raglan_rag::backend::Document;
use raglan_rag::embedded::layout;
use raglan_rag::embedded::writer::{IndexWriter, NewDocument, NewPassage, WriteError};
use sha2::{Digest as _, Sha256};

use crate::publication::{Publication, StartError};
use crate::readers::{self, Content};
use crate::source::{FailedFile, SourceFile, scan};
use crate::split::split;

/// Larger files are reported and left out.
const FILE_MAX_BYTES: u64 = 50 << 20;

/// What to index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexOptions {
    /// The folder with the documents.
    pub source_dir: PathBuf,
    /// Where indexes lie; created when it does not exist.
    pub index_root: PathBuf,
    /// The knowledge base.
    pub kb_id: KnowledgeBaseId,
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
    #[error("the folder {path} cannot be read: {source}")]
    Source {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There are no documents in the folder.
    #[error(
        "there are no documents in {path} (Markdown, text, HTML or PDF; other files: {skipped})"
    )]
    NoDocuments {
        /// The folder.
        path: PathBuf,
        /// Number of files that were passed over.
        skipped: u64,
    },
    /// There are documents, and none of them can be read.
    #[error("none of the {} documents in {path} can be read; the first: {}", failed.len(), first(failed))]
    NothingReadable {
        /// The folder.
        path: PathBuf,
        /// The documents with the reasons.
        failed: Vec<FailedFile>,
    },
    /// Another process builds the index of this knowledge base.
    #[error("another process is building the index of {0}; try again when it has ended")]
    Busy(KnowledgeBaseId),
    /// The index could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The finished index could not be put in its place, or the folder not be prepared.
    #[error("cannot write in {path}: {source}")]
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

/// Reads every document below a folder, builds an index of them and makes it the one that answers.
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
    let path = &options.source_dir;
    let source = scan(path).map_err(|source| IndexError::Source {
        path: path.clone(),
        source,
    })?;
    if source.files.is_empty() && source.failed.is_empty() {
        return Err(IndexError::NoDocuments {
            path: path.clone(),
            skipped: source.skipped,
        });
    }
    progress(Progress::Found {
        files: source.files.len(),
    });

    let now = clock.now();
    let known = known_since(&layout::knowledge_base_dir(
        &options.index_root,
        &options.kb_id,
    ));
    let mut failed = source.failed;
    let documents = (1..).zip(&source.files).map(|(done, file)| {
        let content = read_file(file);
        progress(Progress::Read {
            filename: file.filename.clone(),
            done,
        });
        let document = new_document(file, content.as_ref().ok(), &known, now);
        if let Err(reason) = content {
            failed.push(FailedFile {
                filename: file.filename.clone(),
                reason,
            });
        }
        document
    });
    // The folder's name only: callers are told where documents come from, not how a disk is laid out.
    let name = fs::canonicalize(path)
        .ok()
        .and_then(|path| path.file_name().map(OsStr::to_owned));
    let sources = name
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let report = index_documents(&options.index_root, &options.kb_id, sources, documents, now)?;
    failed.sort_by(|a, b| a.filename.cmp(&b.filename));
    match report {
        Some(report) => Ok(IndexReport {
            skipped: source.skipped,
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
    let directory = layout::knowledge_base_dir(index_root, kb_id);
    let failed = |source| IndexError::Publish {
        path: directory.clone(),
        source,
    };
    let publication = Publication::start(&directory).map_err(|error| match error {
        StartError::Busy => IndexError::Busy(kb_id.clone()),
        StartError::Io(source) => failed(source),
    })?;
    let mut digest = Sha256::new();
    digest.update(now.epoch_ms().to_be_bytes());
    let mut writer = IndexWriter::create(publication.folder())?;
    let mut marked = Vec::new();
    for document in documents {
        if !document.document.guard_findings.is_empty() {
            marked.push(MarkedFile {
                filename: document.document.filename.clone(),
                findings: document.document.guard_findings.clone(),
            });
        }
        digest.update(&document.document.id);
        for passage in &document.passages {
            digest.update(&passage.id);
        }
        writer.add(document)?;
    }
    if writer.is_empty() {
        return Ok(None);
    }
    let manifest = writer.finish(kb_id, sources, now)?;
    let generation = publication.publish(&short_hex(digest)).map_err(failed)?;
    Ok(Some(IndexReport {
        documents: manifest.document_count,
        chunks: manifest.chunk_count,
        skipped: 0,
        failed: Vec::new(),
        marked,
        generation: generation.as_str().to_owned(),
        size_bytes: manifest.files.values().sum(),
    }))
}

/// Reads a file; the error is a sentence for whoever builds the index.
fn read_file(file: &SourceFile) -> Result<Content, String> {
    if file.size_bytes > FILE_MAX_BYTES {
        return Err(format!(
            "it is {} MiB large, the limit is {} MiB; split it",
            file.size_bytes >> 20,
            FILE_MAX_BYTES >> 20
        ));
    }
    let bytes = fs::read(&file.path).map_err(|error| error.to_string())?;
    readers::read(file.format, &bytes).map_err(|error| error.to_string())
}

/// The document as it goes into the index; without passages when it could not be read.
fn new_document(
    file: &SourceFile,
    content: Option<&Content>,
    known: &HashMap<String, Timestamp>,
    now: Timestamp,
) -> NewDocument {
    let id = short_hex(Sha256::new_with_prefix(&file.filename));
    let title = content
        .and_then(|content| content.title.clone())
        .filter(|title| !title.is_empty());
    let passages = content
        .map(|content| passages(&id, content))
        .unwrap_or_default();
    let document = Document {
        filename: file.filename.clone(),
        title: title.unwrap_or_else(|| stem(&file.filename)),
        format: file.format.name().to_owned(),
        size_bytes: file.size_bytes,
        status: if content.is_some() {
            "indexed"
        } else {
            "failed"
        }
        .to_owned(),
        chunk_count: 0,
        created_at: known.get(&id).copied().unwrap_or(now),
        updated_at: content
            .and_then(|content| content.updated_at)
            .unwrap_or(file.modified_at),
        guard_findings: guard_findings(&passages),
        id,
    };
    NewDocument {
        passages,
        uri: content.and_then(|content| content.uri.clone()),
        metadata: content
            .map(|content| content.metadata.clone())
            .unwrap_or_default(),
        document,
    }
}

/// What the guard marks in the passages, counted by rule.
fn guard_findings(passages: &[NewPassage]) -> BTreeMap<String, u64> {
    let guard = Guard::default();
    let mut counts = BTreeMap::new();
    for passage in passages {
        for finding in guard.sanitize(&passage.content).findings {
            *counts.entry(finding.rule.id().to_owned()).or_default() += 1;
        }
    }
    counts
}

/// The passages of a document. Their identifiers come from their text, so that an edit elsewhere in
/// the document does not change them; a text that stands there twice is told apart by its count.
fn passages(document_id: &str, content: &Content) -> Vec<NewPassage> {
    let mut seen: HashMap<String, u32> = HashMap::new();
    split(&content.blocks)
        .into_iter()
        .map(|chunk| {
            let count = seen.entry(chunk.content.clone()).or_default();
            let digest = Sha256::new()
                .chain_update(count.to_be_bytes())
                .chain_update(&chunk.content);
            *count += 1;
            NewPassage {
                id: format!("{document_id}-{}", short_hex(digest)),
                content: chunk.content,
                section: chunk.section,
                page: chunk.page,
            }
        })
        .collect()
}

/// The first 8 bytes of a digest in hexadecimal: no collision is to be expected below a billion
/// documents.
fn short_hex(digest: Sha256) -> String {
    to_hex(&digest.finalize()[..8])
}

/// The file name without folders and extension.
fn stem(filename: &str) -> String {
    let name = filename.rsplit('/').next().unwrap_or(filename);
    name.rsplit_once('.')
        .map_or(name, |(stem, _)| stem)
        .to_owned()
}

/// When each document that answers now was first taken in. An index that cannot be read knows none.
fn known_since(directory: &Path) -> HashMap<String, Timestamp> {
    let Ok(Some(generation)) = layout::current(directory) else {
        return HashMap::new();
    };
    let list = directory.join(generation.as_str()).join(layout::DOCUMENTS);
    let documents: Vec<Document> = fs::read(list)
        .ok()
        .and_then(|json| serde_json::from_slice(&json).ok())
        .unwrap_or_default();
    documents
        .into_iter()
        .map(|document| (document.id, document.created_at))
        .collect()
}

#[cfg(test)]
mod tests;
