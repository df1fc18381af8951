//! What the index that answers now knows of the files, so that a file that has not changed is not read
//! again.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::UNIX_EPOCH;

use raglan_core::clock::Timestamp;
use raglan_rag::backend::Document;
use raglan_rag::embedded::layout;
use raglan_rag::embedded::open::OpenIndex;
use raglan_rag::embedded::writer::{NewDocument, NewPassage};
use serde::{Deserialize, Serialize};

use crate::source::{SourceFile, Stamp};

/// Version of what [`crate::readers`] and [`crate::split`] make of a file. It goes up with every change
/// that gives other passages or other metadata: passages of another version are not taken over. A test
/// notices when it was forgotten.
pub const READER_VERSION: u32 = 1;

/// Name of [`Records`] in a generation.
const RECORDS: &str = "sources.json";

/// A file that was written this shortly before a build may be written again without another time: file
/// systems count in steps of up to two seconds (FAT).
const SETTLING_NS: i64 = 2_000_000_000;

/// What was seen of a file when it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Size and times; `None` when it had changed so shortly before that they prove nothing.
    pub stamp: Option<Stamp>,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// Whether the file itself says when it was updated.
    pub says_updated_at: bool,
}

/// What was seen of every file that was taken in, by file name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    reader_version: u32,
    files: BTreeMap<String, Record>,
}

impl Default for Records {
    fn default() -> Self {
        Self {
            reader_version: READER_VERSION,
            files: BTreeMap::new(),
        }
    }
}

impl Records {
    /// Takes a file in.
    pub fn insert(&mut self, filename: &str, record: Record) {
        self.files.insert(filename.to_owned(), record);
    }

    /// Writes them into the folder of a generation.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, generation: &Path) -> io::Result<()> {
        let file = fs::File::create(generation.join(RECORDS))?;
        let mut file = io::BufWriter::new(file);
        serde_json::to_writer(&mut file, self)?;
        file.into_inner()?.sync_all()
    }

    fn read(generation: &Path) -> Option<Self> {
        let json = fs::read(generation.join(RECORDS)).ok()?;
        let records: Self = serde_json::from_slice(&json).ok()?;
        (records.reader_version == READER_VERSION).then_some(records)
    }
}

/// The time of the file system on which `folder` was just made, in nanoseconds since 1970; 1970 where it
/// keeps no times, so that nothing is taken for settled.
#[must_use]
pub fn file_system_time_ns(folder: &Path) -> i64 {
    let modified = fs::metadata(folder).and_then(|metadata| metadata.modified());
    let since_1970 = modified
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since_1970
        .and_then(|age| i64::try_from(age.as_nanos()).ok())
        .unwrap_or(0)
}

/// The stamp, if the file cannot have changed after it without the stamp changing as well.
#[must_use]
pub fn settled(stamp: Stamp, build_started_ns: i64) -> Option<Stamp> {
    let latest = stamp.modified_ns.max(stamp.changed_ns);
    (latest < build_started_ns.saturating_sub(SETTLING_NS)).then_some(stamp)
}

/// The index that answers now, as far as it is of use.
#[derive(Default)]
pub struct Known {
    created_at: HashMap<String, Timestamp>,
    passages: Option<Passages>,
}

struct Passages {
    index: OpenIndex,
    records: Records,
    documents: HashMap<String, Document>,
}

impl Known {
    /// Looks at the index in `directory`, the knowledge base's folder. One that cannot be read, or whose
    /// passages are from another version, knows less or nothing.
    #[must_use]
    pub fn open(directory: &Path) -> Self {
        let Ok(Some(generation)) = layout::current(directory) else {
            return Self::default();
        };
        let generation = directory.join(generation.as_str());
        let documents: Vec<Document> = fs::read(generation.join(layout::DOCUMENTS))
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok())
            .unwrap_or_default();
        let created_at = documents
            .iter()
            .map(|document| (document.id.clone(), document.created_at))
            .collect();
        let by_id = documents
            .into_iter()
            .map(|document| (document.id.clone(), document));
        let passages = Records::read(&generation).and_then(|records| {
            Some(Passages {
                index: OpenIndex::open(&generation).ok()?,
                records,
                documents: by_id.collect(),
            })
        });
        Self {
            created_at,
            passages,
        }
    }

    /// The same, when every file is to be read.
    #[must_use]
    pub fn without_passages(self) -> Self {
        Self {
            passages: None,
            ..self
        }
    }

    /// When a document was first taken in.
    #[must_use]
    pub fn created_at(&self, document_id: &str) -> Option<Timestamp> {
        self.created_at.get(document_id).copied()
    }

    /// What was seen of the file when it was read.
    #[must_use]
    pub fn record(&self, filename: &str) -> Option<&Record> {
        self.passages.as_ref()?.records.files.get(filename)
    }

    /// The document as it would be made of the file `file`, which has not changed since `record`;
    /// `None` when the index does not hold all of it. What the guard found is not taken over: its rules
    /// may have changed.
    #[must_use]
    pub fn document(
        &self,
        document_id: &str,
        file: &SourceFile,
        record: &Record,
    ) -> Option<NewDocument> {
        let known = self.passages.as_ref()?;
        let mut document = known.documents.get(document_id)?.clone();
        // The library panics on some damaged files; reading the documents again mends the index.
        let passages = catch_unwind(AssertUnwindSafe(|| known.index.passages_of(document_id)));
        let passages = passages.ok()?.ok()?;
        if passages.len() as u64 != document.chunk_count {
            return None;
        }
        // Every passage carries what the document says of itself; without one it is not known.
        let first = passages.first()?;
        let (uri, metadata) = (first.uri.clone(), first.metadata.clone());
        if !record.says_updated_at {
            document.updated_at = file.modified_at;
        }
        document.guard_findings.clear();
        let passages = passages.into_iter().map(|passage| NewPassage {
            id: passage.id,
            content: passage.content,
            section: passage.section,
            page: passage.page,
        });
        Some(NewDocument {
            document,
            uri,
            metadata,
            passages: passages.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changed_shortly_before_the_build_is_not_settled() {
        let stamp = |modified_ns, changed_ns| Stamp {
            size_bytes: 1,
            modified_ns,
            changed_ns,
        };
        let started = 10_000_000_000;
        let old = stamp(1, 7_999_999_999);
        assert_eq!(settled(old, started), Some(old));
        for young in [stamp(8_000_000_000, 1), stamp(1, 9_000_000_000)] {
            assert_eq!(settled(young, started), None);
        }
        assert_eq!(settled(stamp(1, 1), 0), None, "a file system without times");
    }
}
