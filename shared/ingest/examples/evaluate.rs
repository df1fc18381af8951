//! Measures the embedded index on a retrieval set: quality, time per query, memory. For an index that
//! answers already there is `raglan eval`.
//!
//! Usage: `cargo run --release -p raglan-ingest --example evaluate -- SET.json`, where the set is
//! `{"docs": [{"id", "title", "text"}], "qs": [{"q", "rel": {"<id>": gain}}]}`. Documents are one
//! passage each.

#![expect(
    clippy::print_stdout,
    reason = "the numbers are what this program is for"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::{Clock as _, SystemClock};
use raglan_ingest::build::index_documents;
use raglan_rag::backend::{Backend as _, Document, EngineCall, Filters, RetrieveRequest};
use raglan_rag::embedded::EmbeddedBackend;
use raglan_rag::embedded::writer::{NewDocument, NewPassage};
use raglan_rag::evaluation::{mean, score};
use serde::Deserialize;

const CUT: usize = 10;

#[derive(Deserialize)]
struct RetrievalSet {
    docs: Vec<SetDocument>,
    qs: Vec<SetQuery>,
}

#[derive(Deserialize)]
struct SetDocument {
    id: String,
    title: String,
    text: String,
}

#[derive(Deserialize)]
struct SetQuery {
    q: String,
    rel: BTreeMap<String, f64>,
}

type AnyError = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let path = std::env::args()
        .nth(1)
        .ok_or("name the file of the retrieval set")?;
    let set: RetrievalSet = serde_json::from_slice(&std::fs::read(path)?)?;
    let root = tempfile::tempdir()?;
    let kb_id = KnowledgeBaseId::parse("evaluation")?;
    let now = SystemClock.now();
    let documents = set.docs.iter().map(|document| new_document(document, now));
    let started = Instant::now();
    let report = index_documents(root.path(), &kb_id, vec![], documents, now)?
        .ok_or("the set has no documents")?;
    println!(
        "built {} documents, {} KiB, in {:?}",
        report.documents,
        report.size_bytes >> 10,
        started.elapsed()
    );

    let engine = EmbeddedBackend::new(root.path());
    let call = EngineCall::within(Duration::from_mins(1));
    let started = Instant::now();
    engine.describe(kb_id.as_str(), &call).await?;
    println!("opened in {:?}", started.elapsed());

    let mut scores = Vec::new();
    let mut times = Vec::new();
    for query in &set.qs {
        let request = RetrieveRequest {
            query: query.q.clone(),
            top_k: CUT,
            min_score: None,
            filters: Filters::default(),
        };
        let started = Instant::now();
        let retrieval = engine.retrieve(kb_id.as_str(), &request, &call).await?;
        times.push(started.elapsed());
        let ranking = retrieval.passages.iter().map(|p| p.document_id.as_str());
        scores.push(score(ranking, &query.rel, CUT));
    }
    times.sort();
    let means = mean(&scores);
    println!(
        "{} queries: nDCG@10 {:.4}, Recall@10 {:.4}, MRR {:.4}",
        scores.len(),
        means.ndcg_at_10,
        means.recall_at_k,
        means.reciprocal_rank
    );
    println!(
        "p50 {:?}, p99 {:?}",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
    if let Some(mib) = peak_memory_mib() {
        println!("peak memory {mib} MiB, of it the set itself and the build");
    }
    Ok(())
}

fn new_document(document: &SetDocument, now: raglan_core::clock::Timestamp) -> NewDocument {
    NewDocument {
        document: Document {
            id: document.id.clone(),
            filename: document.id.clone(),
            title: document.title.clone(),
            format: "text".to_owned(),
            size_bytes: document.text.len() as u64,
            status: "indexed".to_owned(),
            chunk_count: 0,
            created_at: now,
            updated_at: now,
            guard_findings: std::collections::BTreeMap::new(),
        },
        uri: None,
        metadata: BTreeMap::new(),
        passages: vec![NewPassage {
            id: document.id.clone(),
            content: document.text.clone(),
            section: None,
            page: None,
        }],
    }
}

/// The largest part of memory that the process had at once, in MiB; Linux only.
fn peak_memory_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib >> 10)
}
