//! Search by meaning: when it decides, what it never lets through, and what happens without its model.

#![expect(clippy::unwrap_used, reason = "in a test a failure is a failed test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::Timestamp;
use raglan_rag::backend::{
    Backend as _, BackendError, Document, EngineCall, Filters, Note, Retrieval, RetrieveRequest,
};
use raglan_rag::embedded::EmbeddedBackend;
use raglan_rag::embedded::embedding::{Embedder, Purpose};
use raglan_rag::embedded::layout::{self, Generation};
use raglan_rag::embedded::open::Ranking;
use raglan_rag::embedded::vectors::{Row, TextKey};
use raglan_rag::embedded::writer::{IndexWriter, NewDocument, NewPassage};
use serde_json::Value;
use tempfile::TempDir;

/// A model of three meanings: leave, refunds, computers; in two languages.
#[derive(Default)]
struct Model {
    name: &'static str,
    extra_dimensions: usize,
    is_away: AtomicBool,
}

impl Model {
    fn vector(&self, text: &str) -> Vec<f32> {
        let meanings = [
            ["leave", "holiday", "年假"],
            ["refund", "money back", "退款"],
            ["laptop", "computer", "电脑"],
        ];
        let of = |words: [&str; 3]| {
            let found = words.iter().filter(|word| text.contains(*word)).count();
            f32::from(u8::try_from(found).unwrap()) + 0.01
        };
        let mut vector: Vec<f32> = meanings.into_iter().map(of).collect();
        vector.extend(vec![0.0; self.extra_dimensions]);
        vector
    }
}

impl Embedder for Model {
    fn model(&self) -> &str {
        self.name
    }

    fn prefix(&self, _: Purpose) -> &'static str {
        ""
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        _: Purpose,
        _: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, BackendError>> {
        let answer = if self.is_away.load(Ordering::SeqCst) {
            Err(BackendError::Refused("no such key".to_owned()))
        } else {
            Ok(texts.iter().map(|text| self.vector(text)).collect())
        };
        Box::pin(std::future::ready(answer))
    }
}

fn model(name: &'static str) -> Arc<Model> {
    Arc::new(Model {
        name,
        ..Model::default()
    })
}

fn document(number: usize, domain: &str, text: &str) -> NewDocument {
    let now = Timestamp::from_epoch_seconds(0);
    NewDocument {
        document: Document {
            id: format!("d{number}"),
            filename: format!("{number}.md"),
            title: String::new(),
            format: "markdown".to_owned(),
            size_bytes: 1,
            status: "indexed".to_owned(),
            chunk_count: 0,
            created_at: now,
            updated_at: now,
            guard_findings: BTreeMap::new(),
        },
        uri: None,
        metadata: BTreeMap::from([("domain".to_owned(), Value::from(domain))]),
        passages: vec![NewPassage {
            id: format!("d{number}-0"),
            content: text.to_owned(),
            section: None,
            page: None,
        }],
    }
}

/// An index of these documents (domain and text) with vectors of the model `m`.
fn index(documents: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let kb_id = KnowledgeBaseId::parse("kb").unwrap();
    let directory = layout::knowledge_base_dir(root.path(), &kb_id);
    let generation = Generation::parse("idx-01").unwrap();
    let folder = directory.join(generation.as_str());
    std::fs::create_dir_all(&folder).unwrap();
    let writer = IndexWriter::create(&folder).unwrap();
    let mut writer = writer.with_vectors("m").unwrap();
    for (number, (domain, text)) in documents.iter().enumerate() {
        let row = Row::of(&model("m").vector(text)).unwrap();
        let rows = [(TextKey::of("m", text), row)];
        writer
            .add_with_rows(document(number, domain, text), &rows)
            .unwrap();
    }
    let now = Timestamp::from_epoch_seconds(0);
    writer.finish(&kb_id, Vec::new(), now).unwrap();
    layout::publish(&directory, &generation).unwrap();
    root
}

const CHINESE: &[(&str, &str)] = &[
    ("hr", "员工每年有二十五天年假。"),
    ("sales", "客户可在三十天内申请退款。"),
    ("it", "新员工会收到一台电脑，型号 T14 laptop。"),
];
const ENGLISH: &[(&str, &str)] = &[
    ("hr", "Every employee has 25 days of holiday."),
    ("sales", "Customers get a refund within 30 days."),
    ("it", "Each employee gets a computer."),
];

fn request(query: &str) -> RetrieveRequest {
    RetrieveRequest {
        query: query.to_owned(),
        top_k: 3,
        min_score: None,
        filters: Filters::default(),
    }
}

async fn search(
    root: &Path,
    model: Arc<Model>,
    request: &RetrieveRequest,
) -> Result<Retrieval, BackendError> {
    let call = EngineCall::within(Duration::from_mins(1));
    let engine = EmbeddedBackend::new(root).with_embedder(model);
    engine.retrieve("kb", request, &call).await
}

fn ids(found: &Retrieval) -> Vec<&str> {
    found
        .passages
        .iter()
        .map(|passage| passage.document_id.as_str())
        .collect()
}

#[tokio::test]
async fn a_question_in_another_script_is_answered_by_meaning_alone() {
    let root = index(CHINESE);
    // "laptop" stands in a passage about something else than the question.
    let query = request("How much leave do I have, holiday on the laptop?");
    let found = search(root.path(), model("m"), &query).await.unwrap();
    assert_eq!(ids(&found)[0], "d0");
    assert_eq!(found.notes, []);
    let by_words = EmbeddedBackend::new(root.path());
    let call = EngineCall::within(Duration::from_mins(1));
    let by_words = by_words.retrieve("kb", &query, &call).await.unwrap();
    assert_eq!(ids(&by_words), ["d2"], "words find the wrong one only");
}

#[tokio::test]
async fn in_one_script_words_and_meaning_decide_together() {
    let root = index(ENGLISH);
    let found = search(root.path(), model("m"), &request("money back in 30 days")).await;
    let found = found.unwrap();
    assert_eq!(ids(&found)[0], "d1");
    let scores: Vec<f32> = found.passages.iter().map(|passage| passage.score).collect();
    assert!(
        scores.iter().all(|score| (0.0..=1.0).contains(score)),
        "{scores:?}"
    );
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
}

#[tokio::test]
async fn filters_hold_for_what_meaning_finds() {
    for (documents, query) in [(CHINESE, "leave"), (ENGLISH, "leave")] {
        let root = index(documents);
        let mut query = request(query);
        query.filters.domain = vec!["sales".to_owned(), "it".to_owned()];
        let found = search(root.path(), model("m"), &query).await.unwrap();
        let mut found_ids = ids(&found);
        found_ids.sort_unstable();
        assert_eq!(found_ids, ["d1", "d2"]);
        assert_eq!(found.matched, 2);
        query.filters.domain = vec!["nobody".to_owned()];
        let found = search(root.path(), model("m"), &query).await.unwrap();
        assert_eq!((found.passages.len(), found.matched), (0, 0));
    }
}

#[tokio::test]
async fn without_the_model_words_answer_and_the_result_says_so() {
    let root = index(ENGLISH);
    let away = model("m");
    away.is_away.store(true, Ordering::SeqCst);
    let found = search(root.path(), Arc::clone(&away), &request("holiday")).await;
    let found = found.unwrap();
    assert_eq!(ids(&found), ["d0"]);
    assert_eq!(found.notes, [Note::WordsOnly]);
}

#[tokio::test]
async fn without_the_model_nothing_found_is_an_error_that_is_worth_a_retry() {
    let root = index(CHINESE);
    let away = model("m");
    away.is_away.store(true, Ordering::SeqCst);
    let error = search(root.path(), away, &request("holiday")).await;
    let error = error.unwrap_err();
    assert!(error.retryable(), "{error}");
}

#[tokio::test]
async fn vectors_of_another_model_or_dimension_are_refused_with_the_command_that_mends_it() {
    let root = index(ENGLISH);
    let longer = Arc::new(Model {
        name: "m",
        extra_dimensions: 1,
        ..Model::default()
    });
    for other in [model("another"), longer] {
        let error = search(root.path(), other, &request("holiday")).await;
        let error = error.unwrap_err();
        assert!(matches!(error, BackendError::UnusableIndex(_)), "{error}");
        assert!(
            error.to_string().contains("raglan index DIR --kb kb"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn without_a_model_for_queries_vectors_are_not_used_and_not_told_of() {
    let root = index(ENGLISH);
    let call = EngineCall::within(Duration::from_mins(1));
    let engine = EmbeddedBackend::new(root.path());
    let query = request("time off work");
    assert!(
        engine
            .retrieve("kb", &query, &call)
            .await
            .unwrap()
            .passages
            .is_empty()
    );
    let described = engine.describe("kb", &call).await.unwrap();
    assert_eq!(described.embedding_model, None, "no model for queries");
    let engine = engine.with_embedder(model("m"));
    let described = engine.describe("kb", &call).await.unwrap();
    assert_eq!(described.embedding_model.as_deref(), Some("m"));
    assert_eq!(described.embedding_dimension, Some(3));
    let by_words = engine.retrieve_by(Ranking::Words, "kb", &query, &call);
    assert!(by_words.await.unwrap().passages.is_empty());
}

#[tokio::test]
async fn damaged_vectors_are_a_named_failure() {
    let root = index(ENGLISH);
    let folder = root.path().join("kb/idx-01");
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    for (what, with) in [
        (r#""dimension":3"#, r#""dimension":2"#),
        (r#""dimension":3"#, r#""dimension":0"#),
        (r#""quantisation":"int8""#, r#""quantisation":"int4""#),
    ] {
        assert!(manifest.contains(what), "{manifest}");
        std::fs::write(folder.join("manifest.json"), manifest.replace(what, with)).unwrap();
        let error = search(root.path(), model("m"), &request("holiday")).await;
        assert!(
            matches!(error, Err(BackendError::UnusableIndex(_))),
            "{with}: {error:?}"
        );
    }
}
