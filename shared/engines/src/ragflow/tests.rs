use std::time::Duration;

use proptest::prelude::*;
use raglan_core::clock::Timestamp;
use raglan_core::task::TaskStatus;
use raglan_rag::backend::{Comparison, Condition, Filters};
use raglan_rag::filter_check::{drop_what_breaks, keeps};

use super::*;
use crate::configuration::Kind;
use crate::testing::{
    Behaviour, FakeEngine, SECRET, any_json, client, clock, configuration, metadata_filter,
    retrieve_request, surroundings,
};

const DATASET: &str = "c7ee74067a2c11efb21c0242ac120006";
const DOCUMENT: &str = "5c5999ec7be811ef9cab0242ac120005";
const CALL: EngineCall = EngineCall::within(Duration::from_secs(5));

fn backend_at(url: &str, settings: &Value) -> RagFlowBackend {
    let configuration = configuration("ragflow", "https://ragflow.example", settings);
    let Kind::RagFlow(kind) = configuration.kind else {
        panic!("another kind");
    };
    RagFlowBackend::new(
        client(url, surroundings(&clock())),
        kind,
        configuration.attributes,
        configuration.score_threshold,
    )
}

fn plain(engine: &FakeEngine) -> RagFlowBackend {
    backend_at(&engine.url, &json!({}))
}

fn no_filters() -> RetrieveRequest {
    retrieve_request(Filters::default())
}

fn of_domain(domain: &str) -> Filters {
    Filters {
        domain: vec![domain.to_owned()],
        ..Filters::default()
    }
}

/// A chunk as in the example of the API reference.
fn chunk(content: &str, document_id: &str, similarity: f64) -> Value {
    json!({
        "content": content, "content_ltks": content, "document_id": document_id,
        "document_keyword": "handbook.pdf", "highlight": content,
        "id": format!("chunk of {content}"), "image_id": "", "important_keywords": [""],
        "kb_id": DATASET, "positions": [[3, 86, 497, 127, 151]], "similarity": similarity,
        "term_similarity": 1.0, "vector_similarity": 0.88
    })
}

/// The same from a version that sends metadata along.
fn told_chunk(content: &str, metadata: &Value) -> Value {
    let mut chunk = chunk(content, content, 0.9);
    chunk["document_metadata"] = metadata.clone();
    chunk
}

fn found(chunks: &[Value]) -> Behaviour {
    Behaviour::json(&json!({
        "code": 0,
        "data": { "chunks": chunks, "doc_aggs": [], "total": chunks.len() }
    }))
}

fn code(code: i64, message: &str) -> Behaviour {
    Behaviour::json(&json!({ "code": code, "data": false, "message": message }))
}

fn document(id: &str, run: &str, meta_fields: &Value) -> Value {
    json!({
        "chunk_count": 4, "create_time": 1_728_897_061_948_i64, "id": id, "name": "handbook.pdf",
        "progress": 0.5, "progress_msg": "…", "run": run, "size": 7, "status": "1",
        "type": "pdf", "update_time": 1_728_897_071_948_i64, "meta_fields": meta_fields
    })
}

fn documents(entries: &[Value], total: usize) -> Behaviour {
    Behaviour::json(&json!({ "code": 0, "data": { "docs": entries, "total": total } }))
}

fn contents(found: &Retrieval) -> Vec<&str> {
    found.passages.iter().map(|p| p.content.as_str()).collect()
}

#[tokio::test]
async fn a_search_is_one_request_and_its_chunks_become_passages() {
    let engine = FakeEngine::start([found(&[chunk("Thirty days.", DOCUMENT, 0.96)])]).await;
    let answer = plain(&engine).retrieve(DATASET, &no_filters(), &CALL).await;
    let answer = answer.unwrap();
    let received = engine.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].line, "POST /api/v1/retrieval");
    assert_eq!(
        received[0].body,
        json!({
            "question": "How long is parental leave?", "dataset_ids": [DATASET], "page": 1,
            "page_size": 5, "similarity_threshold": 0.0,
            "reference_metadata": { "include": true },
        })
    );
    assert_eq!((answer.matched, answer.notes.len()), (1, 0));
    let passage = &answer.passages[0];
    assert_eq!(passage.id, "chunk of Thirty days.");
    assert_eq!(passage.document_id, DOCUMENT);
    assert_eq!(
        (passage.title.as_str(), passage.page),
        ("handbook.pdf", Some(3))
    );
    assert!((passage.score - 0.96).abs() < 1e-6);
}

#[test]
fn the_settings_are_sent_and_one_passage_is_asked_for_as_two() {
    let settings = json!({ "vector_weight": 0.7, "keyword": true });
    let backend = backend_at("https://ragflow.example", &settings);
    let request = RetrieveRequest {
        top_k: 1,
        ..no_filters()
    };
    let body = backend.body(DATASET, &request).unwrap();
    assert_eq!(body["vector_similarity_weight"], json!(0.7));
    assert_eq!(body["keyword"], true);
    assert_eq!(body["page_size"], 2);
    assert_eq!(body.get("top_k"), None);
}

#[test]
fn every_filter_is_written_into_the_metadata_condition() {
    let settings = json!({ "fields": { "doc_type": "kind" }, "moments": "date" });
    let backend = backend_at("https://ragflow.example", &settings);
    let filters = Filters {
        document_type: vec!["policy".to_owned()],
        updated_after: Some(Timestamp::parse("2026-01-02").unwrap()),
        updated_before: Some(Timestamp::parse("2026-11-30").unwrap()),
        metadata: vec![Condition {
            field: "year".to_owned(),
            comparison: Comparison::NoneOf(vec![json!(2023), json!("2024")]),
        }],
        ..of_domain("hr")
    };
    let body = backend.body(DATASET, &retrieve_request(filters)).unwrap();
    assert_eq!(
        body["metadata_condition"],
        json!({
            "logic": "and",
            "conditions": [
                { "name": "domain", "comparison_operator": "=", "value": "hr" },
                { "name": "kind", "comparison_operator": "=", "value": "policy" },
                { "name": "updated_at", "comparison_operator": ">", "value": "2026-01-02" },
                { "name": "updated_at", "comparison_operator": "<", "value": "2026-11-30" },
                { "name": "year", "comparison_operator": "≠", "value": "2023" },
                { "name": "year", "comparison_operator": "≠", "value": "2024" },
            ],
        })
    );
    let either = Filters {
        domain: vec!["hr".to_owned(), "it".to_owned()],
        ..Filters::default()
    };
    let body = backend.body(DATASET, &retrieve_request(either)).unwrap();
    assert_eq!(body["metadata_condition"]["logic"], "or");
}

#[tokio::test]
async fn several_values_beside_other_filters_are_refused_and_nothing_is_asked() {
    let engine = FakeEngine::start([found(&[])]).await;
    let filters = Filters {
        domain: vec!["hr".to_owned(), "it".to_owned()],
        ..metadata_filter("year", Comparison::Greater(json!(2024)))
    };
    let answer = plain(&engine)
        .retrieve(DATASET, &retrieve_request(filters), &CALL)
        .await;
    assert!(
        matches!(answer, Err(BackendError::UnsupportedFilter(filter))
        if filter == "domain in beside other filters")
    );
    assert!(engine.received().is_empty());
}

#[tokio::test]
async fn a_version_that_gives_everything_where_nothing_matches_gives_nothing() {
    // infiniflow/ragflow#10926, in a version that sends no metadata along.
    let engine = FakeEngine::start([
        found(&[
            chunk("One.", "a", 0.9),
            chunk("Two.", "a", 0.8),
            chunk("Three.", "b", 0.7),
        ]),
        documents(
            &[
                document("a", "DONE", &json!({ "domain": "it" })),
                document("b", "DONE", &json!({})),
            ],
            2,
        ),
    ])
    .await;
    let backend = plain(&engine);
    let filters = of_domain("hr");
    let request = retrieve_request(filters.clone());
    let mut answer = backend.retrieve(DATASET, &request, &CALL).await.unwrap();
    assert_eq!(engine.received().len(), 3, "one search, two documents");
    drop_what_breaks(&filters, backend.abilities().tells_metadata, &mut answer);
    assert!(answer.passages.is_empty());
    assert_eq!(answer.notes, [Note::FilteredAgain(3)]);
}

#[tokio::test]
async fn what_a_search_with_filters_finds_is_checked_document_by_document() {
    let engine = FakeEngine::start([
        found(&[
            chunk("One.", "a", 0.9),
            chunk("Two.", "b", 0.8),
            chunk("Three.", "gone", 0.7),
            json!({ "content": "Of no document.", "similarity": 0.6 }),
            told_chunk("Told.", &json!({ "domain": "hr" })),
        ]),
        documents(
            &[
                document("a", "DONE", &json!({ "domain": "HR" })),
                document("b", "DONE", &json!("{\"domain\": \"hr\"}")),
            ],
            2,
        ),
    ])
    .await;
    let backend = plain(&engine);
    let filters = of_domain("hr");
    let request = retrieve_request(filters.clone());
    let mut answer = backend.retrieve(DATASET, &request, &CALL).await.unwrap();
    assert_eq!(answer.notes, [Note::FilteredAgain(2)], "not to be found");
    drop_what_breaks(&filters, backend.abilities().tells_metadata, &mut answer);
    assert_eq!(contents(&answer), ["Two.", "Told."]);
    let mut lines: Vec<String> = engine.received().into_iter().map(|r| r.line).collect();
    lines.sort();
    let path = format!("GET /api/v1/datasets/{DATASET}/documents?page=1&page_size=1&id=");
    assert_eq!(
        lines,
        [
            format!("{path}a"),
            format!("{path}b"),
            format!("{path}gone"),
            "POST /api/v1/retrieval".to_owned(),
        ]
    );
}

#[tokio::test]
async fn an_engine_that_gives_more_than_it_was_asked_for_is_not_asked_about_all_of_it() {
    let chunks: Vec<Value> = (0..40)
        .map(|n| chunk("Text.", &format!("d{n}"), 0.9))
        .collect();
    let engine = FakeEngine::start([found(&chunks), documents(&[], 0)]).await;
    let request = retrieve_request(of_domain("hr"));
    let answer = plain(&engine).retrieve(DATASET, &request, &CALL).await;
    assert!(answer.unwrap().passages.is_empty());
    assert_eq!(engine.received().len(), 1 + request.top_k);
}

#[tokio::test]
async fn documents_that_cannot_be_checked_end_the_search() {
    let engine = FakeEngine::start([
        found(&[chunk("One.", "a", 0.9)]),
        code(101, "Something is not as it must be."),
    ])
    .await;
    let request = retrieve_request(of_domain("hr"));
    let answer = plain(&engine).retrieve(DATASET, &request, &CALL).await;
    assert!(matches!(answer, Err(BackendError::Refused(_))));
}

#[tokio::test]
async fn chunks_of_another_dataset_are_left_out() {
    let mut other = chunk("Of another dataset.", DOCUMENT, 0.9);
    other["kb_id"] = "another".into();
    let mut renamed = chunk("Of another one too.", DOCUMENT, 0.9);
    renamed["dataset_id"] = "another".into();
    let engine = FakeEngine::start([found(&[other, renamed, chunk("Ours.", DOCUMENT, 0.8)])]).await;
    let answer = plain(&engine).retrieve(DATASET, &no_filters(), &CALL).await;
    assert_eq!(contents(&answer.unwrap()), ["Ours."]);
}

#[tokio::test]
async fn ragflows_own_threshold_is_applied_here_unless_another_is_configured() {
    let chunks = [chunk("Near.", DOCUMENT, 0.5), chunk("Far.", DOCUMENT, 0.1)];
    let engine = FakeEngine::start([found(&chunks)]).await;
    let answer = plain(&engine)
        .retrieve(DATASET, &no_filters(), &CALL)
        .await
        .unwrap();
    assert_eq!(contents(&answer), ["Near."]);
    assert_eq!((answer.matched, answer.below_threshold), (2, 1));

    let lenient = backend_at(&engine.url, &json!({ "score_threshold": 0.05 }));
    let answer = lenient
        .retrieve(DATASET, &no_filters(), &CALL)
        .await
        .unwrap();
    assert_eq!(answer.passages.len(), 2);
}

#[tokio::test]
async fn a_reranking_model_that_is_refused_is_left_out_from_then_on() {
    let refused = code(100, "LookupError('Model(bge-reranker@x) not authorized')");
    let engine = FakeEngine::start([refused, found(&[chunk("x", DOCUMENT, 0.5)])]).await;
    let backend = backend_at(&engine.url, &json!({ "rerank": "bge-reranker@x" }));
    for requests in [2, 3] {
        let answer = backend
            .retrieve(DATASET, &no_filters(), &CALL)
            .await
            .unwrap();
        assert_eq!(answer.notes, [Note::WithoutSetting("rerank")]);
        assert_eq!(engine.received().len(), requests);
    }
    let received = engine.received();
    assert_eq!(received[0].body["rerank_id"], "bge-reranker@x");
    assert_eq!(received[1].body.get("rerank_id"), None);
    assert_eq!(received[2].body.get("rerank_id"), None);
}

#[tokio::test]
async fn a_moment_of_weakness_does_not_switch_reranking_off() {
    let engine = FakeEngine::start([
        code(100, "ConnectionTimeout()"),
        found(&[chunk("x", DOCUMENT, 0.5)]),
    ])
    .await;
    let backend = backend_at(&engine.url, &json!({ "rerank": "bge-reranker@x" }));
    backend
        .retrieve(DATASET, &no_filters(), &CALL)
        .await
        .unwrap();
    let answer = backend
        .retrieve(DATASET, &no_filters(), &CALL)
        .await
        .unwrap();
    assert!(answer.notes.is_empty());
    assert_eq!(engine.last().body["rerank_id"], "bge-reranker@x");
}

#[tokio::test]
async fn each_code_means_what_it_says_although_the_status_is_200() {
    type Expected = fn(&BackendError) -> bool;
    let unknown: Expected = |e| matches!(e, BackendError::UnknownKnowledgeBase(_));
    let refused: Expected = |e| matches!(e, BackendError::Refused(_));
    let unreadable: Expected = |e| matches!(e, BackendError::UnreadableAnswer(_));
    let table: [(Behaviour, Expected); 14] = [
        (
            code(102, &format!("You don't own the dataset {DATASET}.")),
            unknown,
        ),
        (
            code(108, "User 'u' lacks permission for dataset 'd'"),
            unknown,
        ),
        (code(102, "The dataset doesn't exist"), unknown),
        (code(404, "…"), unknown),
        (
            code(101, "Field: <id> - Message: <Invalid UUID1 format>"),
            unknown,
        ),
        (
            code(109, "Authentication error: API key is invalid!"),
            refused,
        ),
        (code(401, "Unauthorized"), refused),
        (code(101, "`question` is required."), refused),
        (
            code(102, "Datasets use different embedding models."),
            refused,
        ),
        (code(100, "KeyError('text')"), |e| {
            matches!(e, BackendError::Unavailable(_))
        }),
        (code(0, "success"), unreadable),
        (
            Behaviour::json(&json!({ "code": 0, "data": null })),
            unreadable,
        ),
        (
            Behaviour::json(&json!({ "data": { "chunks": [] } })),
            unreadable,
        ),
        (Behaviour::html(200), unreadable),
    ];
    for (behaviour, expected) in table {
        let engine = FakeEngine::start([behaviour.clone()]).await;
        let answer = plain(&engine).retrieve(DATASET, &no_filters(), &CALL).await;
        let error = answer.unwrap_err();
        assert!(expected(&error), "{behaviour:?}: {error}");
    }
}

#[tokio::test]
async fn a_refusal_that_repeats_the_credential_does_not_spread_it() {
    let engine = FakeEngine::start([code(101, &format!("Invalid key {SECRET}!"))]).await;
    let answer = plain(&engine).retrieve(DATASET, &no_filters(), &CALL).await;
    let error = answer.unwrap_err().to_string();
    assert!(
        error.contains("Invalid key") && !error.contains(SECRET),
        "{error}"
    );
}

#[tokio::test]
async fn an_empty_answer_and_a_dataset_without_index_are_empty_and_no_error() {
    let empty = json!({ "code": 0, "data": { "total": 0, "chunks": [], "doc_aggs": {} } });
    for behaviour in [
        Behaviour::json(&empty),
        code(102, "No chunk found! Check the chunk status please!"),
    ] {
        let engine = FakeEngine::start([behaviour]).await;
        let answer = plain(&engine).retrieve(DATASET, &no_filters(), &CALL).await;
        assert_eq!(answer.unwrap(), Retrieval::default());
    }
}

#[tokio::test]
async fn odd_chunks_are_taken_for_what_they_tell() {
    let odd = [
        json!({ "content": "bare", "similarity": 0.9 }),
        json!({ "content": "text", "docnm_kwd": "a.md", "similarity": "0.8", "positions": [[7]] }),
        json!({ "content": "a page of nothing", "document_keyword": "b.pdf", "similarity": 0.7,
            "positions": [""], "document_metadata": null }),
        json!({ "content": "no score" }),
        json!({ "similarity": 0.9 }),
        json!(null),
    ];
    let engine = FakeEngine::start([found(&odd)]).await;
    let answer = plain(&engine)
        .retrieve(DATASET, &no_filters(), &CALL)
        .await
        .unwrap();
    assert_eq!(contents(&answer), ["bare", "text", "a page of nothing"]);
    assert!(answer.passages.iter().all(|passage| passage.page.is_none()));
    assert_eq!(answer.passages[1].filename, "a.md");
}

#[tokio::test]
async fn datasets_are_listed_page_by_page_and_described() {
    let dataset = json!({
        "id": DATASET, "name": "mysql", "description": null, "document_count": 3,
        "chunk_count": 59, "embedding_model": "BAAI/bge-large-zh-v1.5",
        "update_time": 1_728_533_243_536_i64, "similarity_threshold": 0.2
    });
    let listing = json!({ "code": 0, "data": [dataset], "total_datasets": 1 });
    let engine = FakeEngine::start([Behaviour::json(&listing)]).await;
    let backend = plain(&engine);
    let listed = backend.list_knowledge_bases(None, 1, &CALL).await.unwrap();
    assert_eq!(
        engine.last().line,
        "GET /api/v1/datasets?page=1&page_size=1"
    );
    assert_eq!(listed.knowledge_bases[0].name, "mysql");
    assert_eq!(listed.knowledge_bases[0].description, None);
    assert_eq!(listed.next.as_deref(), Some("1"));

    let statistics = backend.describe(DATASET, &CALL).await.unwrap();
    assert_eq!(
        engine.last().line,
        format!("GET /api/v1/datasets?page=1&page_size=1&id={DATASET}")
    );
    assert_eq!(
        (statistics.document_count, statistics.chunk_count),
        (Some(3), Some(59))
    );
    assert_eq!(statistics.similarity_threshold, Some(0.2));
    assert_eq!(
        statistics.embedding_model.as_deref(),
        Some("BAAI/bge-large-zh-v1.5")
    );
    let moment = statistics.indexed_at.unwrap();
    assert_eq!(moment.epoch_ms(), 1_728_533_243_536);
    // Another dataset than the one that was asked for is none.
    let other = backend.describe("another", &CALL).await;
    assert!(matches!(other, Err(BackendError::UnknownKnowledgeBase(_))));
}

#[tokio::test]
async fn documents_are_listed_with_their_state_in_either_spelling() {
    let none = json!({});
    let mut hidden = document("g", "3", &none);
    hidden["status"] = "0".into();
    let entries = [
        document("a", "DONE", &none),
        document("b", "4", &none),
        document("c", "RUNNING", &none),
        document("d", "UNSTART", &none),
        document("e", "2", &none),
        hidden,
        json!({ "name": "no identifier" }),
    ];
    let engine = FakeEngine::start([documents(&entries, 40)]).await;
    let backend = plain(&engine);
    let listed = backend
        .list_documents(DATASET, Some("14"), 7, &CALL)
        .await
        .unwrap();
    assert_eq!(
        engine.last().line,
        format!(
            "GET /api/v1/datasets/{DATASET}/documents?page=3&page_size=7&orderby=create_time&desc=False"
        )
    );
    assert_eq!(listed.next.as_deref(), Some("21"));
    let states: Vec<&str> = listed.documents.iter().map(|d| d.status.as_str()).collect();
    assert_eq!(
        states,
        [
            "indexed",
            "failed",
            "indexing",
            "indexing",
            "cancelled",
            "disabled"
        ]
    );
    let first = &listed.documents[0];
    assert_eq!((first.format.as_str(), first.size_bytes), ("pdf", 7));
    assert_eq!(first.chunk_count, 4);
    assert_eq!(first.created_at.epoch_ms(), 1_728_897_061_948);

    backend
        .list_documents(DATASET, None, 1000, &CALL)
        .await
        .unwrap();
    assert!(engine.last().line.contains("page=1&page_size=100&"));
}

fn chunks_of(status: &str, texts: &[(&str, bool)], total: usize) -> Behaviour {
    let chunks: Vec<Value> = texts
        .iter()
        .map(|(text, available)| json!({ "content": text, "available": available }))
        .collect();
    Behaviour::json(&json!({ "code": 0, "data": {
        "chunks": chunks, "total": total,
        "doc": { "id": DOCUMENT, "name": "handbook.pdf", "run": "3", "status": status }
    } }))
}

#[tokio::test]
async fn a_document_is_read_chunk_by_chunk_without_what_is_switched_off() {
    let engine = FakeEngine::start([
        chunks_of("1", &[("One.", true), ("Hidden.", false)], 101),
        chunks_of("1", &[("Two.", true)], 101),
    ])
    .await;
    let backend = plain(&engine);
    let text = backend.read_document(DATASET, DOCUMENT, &CALL).await;
    let text = text.unwrap().unwrap();
    assert_eq!(
        (text.title.as_str(), text.text.as_str()),
        ("handbook.pdf", "One.\n\nTwo.")
    );
    assert_eq!(
        engine.last().line,
        format!("GET /api/v1/datasets/{DATASET}/documents/{DOCUMENT}/chunks?page=2&page_size=100")
    );
    for behaviour in [
        chunks_of("0", &[("Hidden.", true)], 1),
        code(102, &format!("You don't own the document {DOCUMENT}.")),
    ] {
        engine.order(behaviour);
        let text = backend.read_document(DATASET, DOCUMENT, &CALL).await;
        assert_eq!(text.unwrap(), None);
    }
}

#[tokio::test]
async fn a_job_is_a_document_that_is_parsed() {
    let none = json!({});
    let running = document(DOCUMENT, "RUNNING", &none);
    let engine = FakeEngine::start([documents(&[document("a", "DONE", &none), running], 2)]).await;
    let backend = plain(&engine);
    let job_id = backend.running_job(DATASET, &CALL).await.unwrap().unwrap();
    assert_eq!(job_id, DOCUMENT);
    for (run, expected) in [
        ("UNSTART", TaskStatus::Pending),
        ("1", TaskStatus::Running),
        ("DONE", TaskStatus::Succeeded),
        ("FAIL", TaskStatus::Failed),
        ("2", TaskStatus::Failed),
    ] {
        engine.order(documents(&[document(DOCUMENT, run, &none)], 1));
        let job = backend.job(DATASET, &job_id, &CALL).await.unwrap().unwrap();
        assert_eq!(job.status, expected, "{run}");
        assert_eq!(job.failed_because.is_some(), expected == TaskStatus::Failed);
        assert_eq!(job.updated_at.epoch_ms(), 1_728_897_071_948);
    }
    assert_eq!(backend.job(DATASET, "another", &CALL).await.unwrap(), None);
    assert_eq!(backend.running_job(DATASET, &CALL).await.unwrap(), None);
}

const NAMES: &[&str] = &[
    "code",
    "data",
    "chunks",
    "content",
    "similarity",
    "document_id",
    "document_metadata",
    "domain",
    "positions",
    "id",
    "kb_id",
    "document_keyword",
    "message",
];

proptest! {
    #[test]
    fn any_reply_gives_passages_that_keep_the_filters_or_none(
        reply in any_json(NAMES, &["hr", "it", DATASET]),
        chunks in proptest::collection::vec(any_json(NAMES, &["hr", "it", DATASET]), 0..4),
        metadata in proptest::collection::vec(any_json(NAMES, &["hr", "it"]), 0..4),
        asked in any_json(&["domain"], &["hr", "it"]),
    ) {
        let backend = backend_at("https://ragflow.example", &json!({}));
        let filters = of_domain("hr");
        let _ = meant_status(StatusCode::OK, &reply);
        let mut chunks = chunks;
        chunks.extend(metadata.iter().map(|metadata| told_chunk("text", metadata)));
        chunks.push(chunk("text", DOCUMENT, 0.5));
        let asked = documents::metadata(&json!({ "meta_fields": asked }));
        let asked = BTreeMap::from([(DOCUMENT.to_owned(), asked)]);
        let chunks: Vec<&Value> = chunks.iter().filter(|chunk| is_of(chunk, DATASET)).collect();
        let (passages, _) = backend.checkable(&chunks, &asked);
        let mut found = retrieval(passages, None, 50);
        drop_what_breaks(&filters, backend.abilities().tells_metadata, &mut found);
        for passage in &found.passages {
            prop_assert!(passage.score.is_finite() && !passage.content.is_empty());
            prop_assert!(keeps(&filters, true, passage));
            // Somebody said so: the chunk, or its document.
            let told = chunks.iter().map(|chunk| &chunk["document_metadata"]);
            let mut told = told.chain(asked.values());
            prop_assert!(told.any(|metadata| metadata["domain"].to_string().contains("\"hr\"")));
        }
    }
}
