//! What the tests of this crate stand on: small indexes, and an S3 that fails on demand.

mod s3;

use std::collections::BTreeMap;
use std::path::Path;

use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::Timestamp;
use raglan_rag::backend::Document;
use raglan_rag::embedded::writer::{IndexWriter, NewDocument, NewPassage};

pub(crate) use self::s3::{BUCKET, FakeS3, Trouble};

pub(crate) fn id(text: &str) -> KnowledgeBaseId {
    KnowledgeBaseId::parse(text).unwrap()
}

/// An index of one document with this text in an empty folder.
pub(crate) fn write_index(directory: &Path, text: &str) {
    let now = Timestamp::from_epoch_seconds(1_700_000_000);
    let mut writer = IndexWriter::create(directory).unwrap();
    let new = NewDocument {
        document: Document {
            id: "doc-1".to_owned(),
            filename: "leave.md".to_owned(),
            title: "Leave".to_owned(),
            format: "markdown".to_owned(),
            size_bytes: text.len() as u64,
            status: "indexed".to_owned(),
            chunk_count: 0,
            created_at: now,
            updated_at: now,
            guard_findings: BTreeMap::new(),
        },
        uri: None,
        metadata: BTreeMap::new(),
        passages: vec![NewPassage {
            id: "doc-1#0".to_owned(),
            content: text.to_owned(),
            section: None,
            page: None,
        }],
    };
    writer.add(new).unwrap();
    let sources = vec!["handbook".to_owned()];
    writer.finish(&id("handbook"), sources, now).unwrap();
}
