//! Measures the embedded index on a retrieval set: quality, time per query, memory. For an index that
//! answers already there is `raglan eval`.
//!
//! Usage: `cargo run --release -p raglan-ingest --example evaluate -- SET.json`, where the set is
//! `{"docs": [{"id", "title", "text"}], "qs": [{"q", "rel": {"<id>": gain}}]}`. Documents are one
//! passage each. With `EMBEDDINGS_URL` and `EMBEDDINGS_MODEL` the index has vectors, and each ranking is
//! measured.

#![expect(
    clippy::print_stdout,
    reason = "the numbers are what this program is for"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::{Clock as _, SystemClock};
use raglan_core::random::SystemRandom;
use raglan_embeddings::OpenAiEmbedder;
use raglan_engines::call::Surroundings;
use raglan_ingest::build::embed_documents;
use raglan_ingest::embedding::Embedding;
use raglan_rag::backend::{Backend as _, Document, EngineCall, Filters, RetrieveRequest};
use raglan_rag::embedded::EmbeddedBackend;
use raglan_rag::embedded::embedding::Embedder;
use raglan_rag::embedded::open::Ranking;
use raglan_rag::embedded::writer::{NewDocument, NewPassage};
use raglan_rag::evaluation::{mean, score};
use raglan_telemetry::settings::Settings;
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
    let model = model()?;
    let embedder = model.clone();
    let runtime = tokio::runtime::Handle::current();
    let embedding = embedder.map(|embedder| Embedding::new(embedder, runtime));
    // Asking the model blocks; the other threads do the asking.
    let report = tokio::task::block_in_place(|| {
        embed_documents(
            root.path(),
            &kb_id,
            vec![],
            documents,
            embedding.as_ref(),
            now,
        )
    })?;
    let report = report.ok_or("the set has no documents")?;
    println!(
        "built {} documents, {} KiB, in {:?}",
        report.documents,
        report.size_bytes >> 10,
        started.elapsed()
    );

    let engine = EmbeddedBackend::new(root.path());
    let engine = match &model {
        Some(model) => engine.with_embedder(Arc::clone(model)),
        None => engine,
    };
    let call = EngineCall::within(Duration::from_mins(1));
    let started = Instant::now();
    engine.describe(kb_id.as_str(), &call).await?;
    println!("opened in {:?}", started.elapsed());

    let rankings: &[(&str, Ranking)] = match model {
        None => &[("words", Ranking::Words)],
        Some(_) => &[
            ("words", Ranking::Words),
            ("meaning", Ranking::Meaning),
            ("both", Ranking::Both),
            ("best", Ranking::Best),
        ],
    };
    for (name, ranking) in rankings {
        measure(name, *ranking, &engine, kb_id.as_str(), &set.qs).await?;
    }
    if let Some(mib) = peak_memory_mib() {
        println!("peak memory {mib} MiB, of it the set itself and the build");
    }
    Ok(())
}

async fn measure(
    name: &str,
    ranking: Ranking,
    engine: &EmbeddedBackend,
    knowledge_base: &str,
    queries: &[SetQuery],
) -> Result<(), AnyError> {
    let call = EngineCall::within(Duration::from_mins(1));
    let mut scores = Vec::new();
    let mut times = Vec::new();
    for query in queries {
        let request = RetrieveRequest {
            query: query.q.clone(),
            top_k: CUT,
            min_score: None,
            filters: Filters::default(),
        };
        let started = Instant::now();
        let retrieval = engine
            .retrieve_by(ranking, knowledge_base, &request, &call)
            .await?;
        times.push(started.elapsed());
        if !retrieval.notes.is_empty() {
            return Err(format!("{:?}", retrieval.notes).into());
        }
        let ranked = retrieval.passages.iter().map(|p| p.document_id.as_str());
        scores.push(score(ranked, &query.rel, CUT));
    }
    times.sort();
    let means = mean(&scores);
    println!(
        "{name}: {} queries: nDCG@10 {:.4}, Recall@10 {:.4}, MRR {:.4}; p50 {:?}, p99 {:?}",
        scores.len(),
        means.ndcg_at_10,
        means.recall_at_k,
        means.reciprocal_rank,
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
    Ok(())
}

/// The model that the environment names.
fn model() -> Result<Option<Arc<dyn Embedder>>, AnyError> {
    let mut settings = Settings::new(|name| std::env::var(name).ok());
    let configured = raglan_embeddings::configuration::from_settings(&mut settings);
    let Some(configured) = settings.finish(configured)? else {
        return Ok(None);
    };
    let surroundings =
        Surroundings::from_environment(Arc::new(SystemClock), Arc::new(SystemRandom));
    Ok(Some(Arc::new(OpenAiEmbedder::new(
        configured,
        surroundings,
    ))))
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
