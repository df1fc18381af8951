//! A small handbook in an embedded index.

use std::path::Path;

use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::Timestamp;
use raglan_ingest::build::{IndexReport, index_documents};
use raglan_rag::backend::Document;
use raglan_rag::embedded::writer::{NewDocument, NewPassage};

/// File name, title, text.
const DOCUMENTS: [(&str, &str, &str); 3] = [
    (
        "hr/leave.md",
        "Leave",
        "A full-time employee has 30 working days of paid annual leave. Leave that is not taken \
         by 31 March lapses.",
    ),
    (
        "hr/travel.md",
        "Travel",
        "The hotel ceiling in Chengdu is 620 CNY per night. Flights are booked by the travel desk.",
    ),
    (
        "zh/hr/leave.md",
        "年假",
        "员工入职满一年后，每年有十五天带薪年假。未休的年假在次年三月底失效。",
    ),
];

/// Builds the index of the three documents.
pub fn index_handbook(index_root: &Path, kb_id: &KnowledgeBaseId, now: Timestamp) -> IndexReport {
    let documents = DOCUMENTS
        .iter()
        .enumerate()
        .map(|(number, (filename, title, text))| {
            let id = format!("doc-{number}");
            NewDocument {
                uri: Some(format!("https://handbook.example/{filename}")),
                metadata: [("domain".to_owned(), "hr".into())].into(),
                passages: vec![NewPassage {
                    id: format!("{id}-0"),
                    content: (*text).to_owned(),
                    section: None,
                    page: None,
                }],
                document: Document {
                    id,
                    filename: (*filename).to_owned(),
                    title: (*title).to_owned(),
                    format: "markdown".to_owned(),
                    size_bytes: text.len() as u64,
                    status: "indexed".to_owned(),
                    chunk_count: 0,
                    created_at: now,
                    updated_at: now,
                    guard_findings: std::collections::BTreeMap::new(),
                },
            }
        });
    let sources = vec!["handbook".to_owned()];
    index_documents(index_root, kb_id, sources, documents, now)
        .unwrap()
        .unwrap()
}
