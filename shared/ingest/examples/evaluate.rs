//! Measures the embedded index on a retrieval set: nDCG@10, Recall@10, time per query.
//!
//! Usage: `cargo run --release -p raglan-ingest --example evaluate -- SET.json`, where the set is
//! `{"docs": [{"id", "title", "text"}], "qs": [{"q", "rel": {"<id>": gain}}]}`. Documents are one
//! passage each.

#![expect(
    clippy::print_stdout,
    reason = "the numbers are what this program is for"
)]

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::{Clock as _, SystemClock};
use raglan_ingest::build::index_documents;
use raglan_rag::backend::{Backend as _, Document, EngineCall, Filters, RetrieveRequest};
use raglan_rag::embedded::EmbeddedBackend;
use raglan_rag::embedded::writer::{NewDocument, NewPassage};
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
    rel: HashMap<String, f64>,
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

    let (mut asked, mut gain, mut found) = (0.0, 0.0, 0.0);
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
        let ids: Vec<String> = retrieval
            .passages
            .into_iter()
            .map(|p| p.document_id)
            .collect();
        asked += 1.0;
        gain += ndcg(&ids, &query.rel);
        found += recall(&ids, &query.rel);
    }
    times.sort();
    println!(
        "{asked} queries: nDCG@10 {:.4}, Recall@10 {:.4}",
        gain / asked,
        found / asked
    );
    println!(
        "p50 {:?}, p99 {:?}",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
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

/// Normalised discounted cumulative gain (Järvelin and Kekäläinen 2002) of the first ten.
fn ndcg(ids: &[String], relevant: &HashMap<String, f64>) -> f64 {
    let dcg = |gains: &mut dyn Iterator<Item = f64>| -> f64 {
        gains
            .take(CUT)
            .zip(2_u32..)
            .map(|(gain, rank)| gain / f64::from(rank).log2())
            .sum()
    };
    let mut best: Vec<f64> = relevant.values().copied().collect();
    best.sort_by(|a, b| b.total_cmp(a));
    let ideal = dcg(&mut best.into_iter());
    let found = dcg(&mut ids
        .iter()
        .map(|id| relevant.get(id).copied().unwrap_or(0.0)));
    if ideal > 0.0 { found / ideal } else { 0.0 }
}

/// The share of the relevant documents that are among the first ten.
fn recall(ids: &[String], relevant: &HashMap<String, f64>) -> f64 {
    let share = 1.0 / relevant.values().map(|_| 1.0).sum::<f64>().max(1.0);
    ids.iter()
        .take(CUT)
        .filter(|id| relevant.contains_key(*id))
        .map(|_| share)
        .sum()
}
