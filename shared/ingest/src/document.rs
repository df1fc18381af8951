//! From a file to the document that goes into the index.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use raglan_core::clock::Timestamp;
use raglan_core::ids::to_hex;
use raglan_guard::Guard;
use raglan_rag::backend::Document;
use raglan_rag::embedded::writer::{NewDocument, NewPassage};
use sha2::{Digest as _, Sha256};

use crate::known::{Known, Record, Records, settled};
use crate::readers::{self, Content};
use crate::source::SourceFile;
use crate::split::split;

/// Larger files are reported and left out.
pub const FILE_MAX_BYTES: u64 = 50 << 20;

/// Makes documents of files, of what is known of them where that is enough.
pub struct DocumentReader<'a> {
    /// The index that answers now.
    pub known: &'a Known,
    /// When the build began, by the clock of the file system.
    pub build_started_ns: i64,
    /// When the build began.
    pub now: Timestamp,
    /// What was seen of the files that were taken in so far.
    pub records: Records,
    /// How many of them were not parsed, because they had not changed.
    pub unchanged: u64,
    guard: Guard,
}

impl<'a> DocumentReader<'a> {
    /// A reader that has seen nothing yet.
    #[must_use]
    pub fn new(known: &'a Known, build_started_ns: i64, now: Timestamp) -> Self {
        Self {
            known,
            build_started_ns,
            now,
            records: Records::default(),
            unchanged: 0,
            guard: Guard::default(),
        }
    }

    /// The document that `file` is. One that cannot be read has no passages; the second value is then
    /// the reason, for whoever builds the index.
    pub fn document(&mut self, file: &SourceFile) -> (NewDocument, Option<String>) {
        let id = short_hex(Sha256::new_with_prefix(&file.filename));
        let record = self.known.record(&file.filename);
        if let Some(record) = record.filter(|record| record.stamp == Some(file.stamp))
            && let Some(document) = self.taken_over(&id, file, record)
        {
            return (document, None);
        }
        let bytes = match read_bytes(file) {
            Ok(bytes) => bytes,
            Err(reason) => return (self.new_document(id, file, None), Some(reason)),
        };
        let sha256 = to_hex(&Sha256::digest(&bytes));
        if let Some(record) = record.filter(|record| record.sha256 == sha256) {
            let record = Record {
                stamp: settled(file.stamp, self.build_started_ns),
                ..record.clone()
            };
            if let Some(document) = self.taken_over(&id, file, &record) {
                return (document, None);
            }
        }
        match readers::read(file.format, &bytes) {
            Ok(content) => {
                let record = Record {
                    stamp: settled(file.stamp, self.build_started_ns),
                    sha256,
                    says_updated_at: content.updated_at.is_some(),
                };
                self.records.insert(&file.filename, record);
                (self.new_document(id, file, Some(&content)), None)
            }
            Err(error) => (self.new_document(id, file, None), Some(error.to_string())),
        }
    }

    fn taken_over(&mut self, id: &str, file: &SourceFile, record: &Record) -> Option<NewDocument> {
        let mut document = self.known.document(id, file, record)?;
        document.document.guard_findings = self.guard_findings(&document.passages);
        self.records.insert(&file.filename, record.clone());
        self.unchanged += 1;
        Some(document)
    }

    fn new_document(
        &self,
        id: String,
        file: &SourceFile,
        content: Option<&Content>,
    ) -> NewDocument {
        let title = content
            .and_then(|content| content.title.clone())
            .filter(|title| !title.is_empty());
        let passages = content
            .map(|content| passages(&id, content))
            .unwrap_or_default();
        let status = if content.is_some() {
            "indexed"
        } else {
            "failed"
        };
        let document = Document {
            filename: file.filename.clone(),
            title: title.unwrap_or_else(|| stem(&file.filename)),
            format: file.format.name().to_owned(),
            size_bytes: file.stamp.size_bytes,
            status: status.to_owned(),
            chunk_count: 0,
            created_at: self.known.created_at(&id).unwrap_or(self.now),
            updated_at: content
                .and_then(|content| content.updated_at)
                .unwrap_or(file.modified_at),
            guard_findings: self.guard_findings(&passages),
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
    fn guard_findings(&self, passages: &[NewPassage]) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for passage in passages {
            for finding in self.guard.sanitize(&passage.content).findings {
                *counts.entry(finding.rule.id().to_owned()).or_default() += 1;
            }
        }
        counts
    }
}

/// Reads a file; the error is a sentence for whoever builds the index.
fn read_bytes(file: &SourceFile) -> Result<Vec<u8>, String> {
    let size_bytes = file.stamp.size_bytes;
    if size_bytes > FILE_MAX_BYTES {
        return Err(format!(
            "it is {} MiB large, the limit is {} MiB; split it",
            size_bytes >> 20,
            FILE_MAX_BYTES >> 20
        ));
    }
    fs::read(&file.path).map_err(|error| error.to_string())
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
pub fn short_hex(digest: Sha256) -> String {
    to_hex(&digest.finalize()[..8])
}

/// The file name without folders and extension.
fn stem(filename: &str) -> String {
    let name = filename.rsplit('/').next().unwrap_or(filename);
    name.rsplit_once('.')
        .map_or(name, |(stem, _)| stem)
        .to_owned()
}
