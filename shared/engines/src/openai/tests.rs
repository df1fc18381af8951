use std::time::Duration;

use raglan_rag::backend::{Comparison, Condition, Filters};
use serde_json::json;

use super::*;
use crate::configuration::{Kind, parse};
use crate::testing::{Behaviour, FakeEngine, client, clock, surroundings};

const CALL: EngineCall = EngineCall::within(Duration::from_secs(5));

/// An engine at the server's address with these further settings.
fn backend(engine: &FakeEngine, settings: &Value) -> OpenAiBackend {
    let mut configuration = json!({ "type": "openai", "url": engine.url });
    for (name, value) in settings.as_object().unwrap() {
        configuration[name] = value.clone();
    }
    let mut parsed = parse(&json!({ "e": configuration }).to_string()).unwrap();
    let configuration = parsed.remove("e").unwrap();
    let Kind::OpenAi(settings) = configuration.kind else {
        panic!("{configuration:?}");
    };
    OpenAiBackend::new(
        client(&engine.url, surroundings(&clock())),
        settings,
        configuration.attributes,
        configuration.score_threshold,
    )
}

async fn plain(behaviour: Behaviour) -> (FakeEngine, OpenAiBackend) {
    let engine = FakeEngine::start([behaviour]).await;
    let backend = backend(&engine, &json!({}));
    (engine, backend)
}

fn request(filters: Filters) -> RetrieveRequest {
    RetrieveRequest {
        query: "annual leave".to_owned(),
        top_k: 80,
        min_score: None,
        filters,
    }
}

fn on(field: &str, comparison: Comparison) -> Condition {
    Condition {
        field: field.to_owned(),
        comparison,
    }
}

fn found() -> Value {
    json!({
        "object": "vector_store.search_results.page",
        "search_query": ["annual leave"],
        "data": [
            { "file_id": "file-1", "filename": "leave.md", "score": 0.75,
              "attributes": { "title": "Leave", "page": 2, "updated_at": 1_796_026_500,
                              "uri": "https://wiki.example/leave", "domain": "hr" },
              "content": [{ "type": "text", "text": "Thirty days." },
                          { "type": "text", "text": "More after ten years." }] },
            { "file_id": null, "filename": "sick.md", "score": 0.25, "attributes": null,
              "content": [{ "type": "text", "text": "Call in." }] },
            { "file_id": "file-3", "filename": "empty.md", "score": 0.1, "content": [] }
        ],
        "has_more": false, "next_page": null
    })
}

#[tokio::test]
async fn a_search_is_asked_and_read_as_the_interface_defines_it() {
    let (engine, backend) = plain(Behaviour::json(&found())).await;
    let found = backend
        .retrieve("vs 1", &request(Filters::default()), &CALL)
        .await
        .unwrap();
    let asked = engine.last();
    assert_eq!(asked.line, "POST /vector_stores/vs%201/search");
    assert_eq!(asked.headers["openai-beta"], "assistants=v2");
    assert_eq!(
        asked.body,
        json!({ "query": "annual leave", "max_num_results": 50 })
    );
    let [leave, sick] = found.passages.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(leave.document_id, "file-1");
    assert_eq!(leave.content, "Thirty days.\n\nMore after ten years.");
    assert_eq!((leave.title.as_str(), leave.page), ("Leave", Some(2)));
    assert_eq!(leave.updated_at.unwrap().epoch_seconds(), 1_796_026_500);
    assert_eq!(leave.metadata["domain"], "hr");
    assert_eq!((sick.document_id.as_str(), sick.score), ("sick.md", 0.25));
}

/// As OGX 1.5.0 answers (`tests/engines/run` asks it).
#[tokio::test]
async fn a_document_is_known_by_the_identifier_that_the_other_routes_know() {
    let (engine, backend) = plain(Behaviour::json(&json!({ "data": [
        { "file_id": "60badf96", "filename": "leave.txt", "score": 1.000_000_1,
          "attributes": { "file_id": "file-9be1", "chunk_id": "6b79ec43", "title": "Leave" },
          "content": [{ "type": "text", "text": "Thirty days.", "embedding": null }] }
    ] })))
    .await;
    let request = request(Filters::default());
    let found = backend.retrieve("vs", &request, &CALL).await.unwrap();
    let passage = &found.passages[0];
    assert_eq!(
        (passage.id.as_str(), passage.document_id.as_str()),
        ("6b79ec43", "file-9be1")
    );
    engine.order(Behaviour::status(
        400,
        &json!({ "error": { "message": "File nope not found in vector store vs" } }),
    ));
    assert_eq!(
        backend.read_document("vs", "nope", &CALL).await.unwrap(),
        None
    );
    assert_eq!(backend.job("vs", "file/nope", &CALL).await.unwrap(), None);
    engine.order_all([
        Behaviour::json(&json!({ "data": [], "has_more": false })),
        Behaviour::status(400, &json!({ "detail": "File nope not found" })),
    ]);
    assert_eq!(
        backend.read_document("vs", "nope", &CALL).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn the_lowest_score_is_applied_here_and_not_by_the_engine() {
    let engine = FakeEngine::start([Behaviour::json(&found())]).await;
    let backend = backend(&engine, &json!({ "score_threshold": 0.5 }));
    let request = request(Filters::default());
    let found = backend.retrieve("vs", &request, &CALL).await.unwrap();
    assert_eq!((found.passages.len(), found.below_threshold), (1, 1));
    assert_eq!(engine.last().body.get("ranking_options"), None);
}

#[tokio::test]
async fn every_filter_is_translated() {
    let engine = FakeEngine::start([Behaviour::json(&json!({ "data": [] }))]).await;
    let backend = backend(&engine, &json!({ "fields": { "doc_type": "kind" } }));
    let moment = |text| Some(Timestamp::parse(text).unwrap());
    let filters = Filters {
        domain: vec!["hr".to_owned()],
        document_type: vec!["faq".to_owned(), "policy".to_owned()],
        updated_after: moment("2026-01-01"),
        updated_before: moment("2026-02-01"),
        metadata: vec![
            on("year", Comparison::GreaterOrEqual(json!(2024))),
            on("year", Comparison::LessOrEqual(json!(2026))),
            on("team", Comparison::NoneOf(vec![json!("a"), json!("b")])),
            on("draft", Comparison::NoneOf(vec![json!(true)])),
            on("open", Comparison::OneOf(vec![json!(true), json!("yes")])),
        ],
    };
    backend
        .retrieve("vs", &request(filters), &CALL)
        .await
        .unwrap();
    let one = |operator, key, value| json!({ "type": operator, "key": key, "value": value });
    assert_eq!(
        engine.last().body["filters"],
        json!({ "type": "and", "filters": [
            one("eq", "domain", json!("hr")),
            one("in", "kind", json!(["faq", "policy"])),
            one("gt", "updated_at", json!(1_767_225_600)),
            one("lt", "updated_at", json!(1_769_904_000)),
            one("gte", "year", json!(2024)),
            one("lte", "year", json!(2026)),
            one("nin", "team", json!(["a", "b"])),
            one("ne", "draft", json!(true)),
            { "type": "or", "filters": [
                one("eq", "open", json!(true)), one("eq", "open", json!("yes"))
            ] },
        ] })
    );
}

#[tokio::test]
async fn one_condition_stands_alone() {
    let (engine, backend) = plain(Behaviour::json(&json!({ "data": [] }))).await;
    let filters = Filters {
        domain: vec!["hr".to_owned()],
        ..Filters::default()
    };
    backend
        .retrieve("vs", &request(filters), &CALL)
        .await
        .unwrap();
    assert_eq!(
        engine.last().body["filters"],
        json!({ "type": "eq", "key": "domain", "value": "hr" })
    );
}

#[tokio::test]
async fn a_filter_that_the_engine_refuses_is_an_error_and_never_left_out() {
    let refusal = |text| Behaviour::status(400, &json!({ "error": { "message": text } }));
    let (engine, backend) = plain(refusal("filters are not supported")).await;
    let filters = Filters {
        domain: vec!["hr".to_owned()],
        metadata: vec![on("year", Comparison::OneOf(vec![json!(2024)]))],
        ..Filters::default()
    };
    let request = request(filters);
    let error = backend.retrieve("vs", &request, &CALL).await.unwrap_err();
    assert!(
        matches!(&error, BackendError::UnsupportedFilter(f) if f == "domain, year"),
        "{error}"
    );
    engine.order(refusal("unknown key 'year'"));
    let error = backend.retrieve("vs", &request, &CALL).await.unwrap_err();
    assert!(
        matches!(&error, BackendError::UnsupportedFilter(f) if f == "year"),
        "{error}"
    );
    engine.order(refusal("the query is too long"));
    let error = backend.retrieve("vs", &request, &CALL).await.unwrap_err();
    assert!(matches!(error, BackendError::Refused(_)), "{error}");
    let all_had_it = engine
        .received()
        .iter()
        .all(|asked| asked.body["filters"]["type"] == "and");
    assert!(all_had_it && engine.received().len() == 3);
}

#[tokio::test]
async fn a_ranker_that_the_engine_refuses_is_left_out_and_told_each_time() {
    let engine = FakeEngine::start([
        Behaviour::status(400, &json!({ "error": { "message": "no such ranker" } })),
        Behaviour::json(&found()),
    ])
    .await;
    let backend = backend(&engine, &json!({ "ranker": "auto" }));
    let request = request(Filters::default());
    for _ in 0..2 {
        let found = backend.retrieve("vs", &request, &CALL).await.unwrap();
        assert_eq!(found.notes, [Note::WithoutSetting("ranker")]);
    }
    let rankers: Vec<Value> = engine
        .received()
        .iter()
        .map(|asked| asked.body["ranking_options"]["ranker"].clone())
        .collect();
    assert_eq!(rankers, [json!("auto"), Value::Null, Value::Null]);
}

#[tokio::test]
async fn a_store_that_the_engine_does_not_have_is_unknown_everywhere() {
    let missing = Behaviour::status(404, &json!({ "error": { "message": "no such store" } }));
    let (_engine, backend) = plain(missing).await;
    let request = request(Filters::default());
    let errors = [
        backend.retrieve("vs", &request, &CALL).await.map(|_| ()),
        backend
            .list_documents("vs", None, 10, &CALL)
            .await
            .map(|_| ()),
        backend.describe("vs", &CALL).await.map(|_| ()),
        backend.running_job("vs", &CALL).await.map(|_| ()),
    ];
    for error in errors {
        assert!(
            matches!(error, Err(BackendError::UnknownKnowledgeBase(_))),
            "{error:?}"
        );
    }
    assert_eq!(
        backend.read_document("vs", "file-1", &CALL).await.unwrap(),
        None
    );
    assert_eq!(
        backend.job("vs", "file_batch/b", &CALL).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn files_are_listed_page_by_page() {
    let (engine, backend) = plain(Behaviour::json(&json!({
        "object": "list", "has_more": true, "first_id": "file-1", "last_id": "file-2",
        "data": [
            { "id": "file-1", "object": "vector_store.file", "created_at": 1_796_026_500,
              "usage_bytes": 1234, "status": "completed",
              "attributes": { "title": "leave.md", "updated_at": 1_796_026_600 } },
            { "id": "file-2", "object": "vector_store.file", "created_at": 1_796_026_500,
              "usage_bytes": 0, "status": "failed", "attributes": {} }
        ]
    })))
    .await;
    let page = backend
        .list_documents("vs", Some("file 0"), 500, &CALL)
        .await
        .unwrap();
    assert_eq!(
        engine.last().line,
        "GET /vector_stores/vs/files?limit=100&order=asc&after=file%200"
    );
    assert_eq!(page.next.as_deref(), Some("file-2"));
    let [leave, failed] = page.documents.as_slice() else {
        panic!("{page:?}");
    };
    assert_eq!(
        (leave.format.as_str(), leave.size_bytes),
        ("markdown", 1234)
    );
    assert!(leave.updated_at > leave.created_at);
    assert_eq!(
        (failed.title.as_str(), failed.status.as_str()),
        ("file-2", "failed")
    );
}

#[tokio::test]
async fn a_document_is_read_whole_with_its_title() {
    let content = json!({ "object": "vector_store.file_content.page", "has_more": false,
        "data": [{ "type": "text", "text": "One." }, { "type": "text", "text": "Two." }] });
    let file = json!({ "id": "file-1", "attributes": { "title": "Leave" } });
    let engine = FakeEngine::start([Behaviour::json(&content), Behaviour::json(&file)]).await;
    let backend = backend(&engine, &json!({}));
    let document = backend.read_document("vs", "file-1", &CALL).await.unwrap();
    let document = document.unwrap();
    assert_eq!(
        (document.title.as_str(), document.text.as_str()),
        ("Leave", "One.\n\nTwo.")
    );
    let lines: Vec<String> = engine.received().into_iter().map(|r| r.line).collect();
    assert_eq!(
        lines,
        [
            "GET /vector_stores/vs/files/file-1/content",
            "GET /vector_stores/vs/files/file-1"
        ]
    );
}

#[tokio::test]
async fn an_engine_without_contents_says_so_where_the_file_is_there() {
    let missing = Behaviour::status(404, &json!({}));
    let file = json!({ "id": "file-1", "attributes": {} });
    let engine = FakeEngine::start([missing, Behaviour::json(&file)]).await;
    let backend = backend(&engine, &json!({}));
    let error = backend.read_document("vs", "file-1", &CALL).await;
    assert!(
        matches!(error, Err(BackendError::Unsupported(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn half_a_document_is_not_given_as_a_whole_one() {
    let (_engine, backend) = plain(Behaviour::json(&json!({
        "data": [{ "type": "text", "text": "One." }], "has_more": true, "next_page": "2"
    })))
    .await;
    let error = backend.read_document("vs", "file-1", &CALL).await;
    assert!(
        matches!(error, Err(BackendError::UnreadableAnswer(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn jobs_are_batches_and_files_that_are_taken_in() {
    let batch = |status: &str, failed: u64| {
        Behaviour::json(
            &json!({ "id": "b", "status": status, "created_at": 1_796_026_500,
            "file_counts": { "completed": 3, "failed": failed, "cancelled": 0, "total": 5 } }),
        )
    };
    let (engine, backend) = plain(batch("in_progress", 0)).await;
    let job = async |id: &str| backend.job("vs", id, &CALL).await.unwrap();
    assert_eq!(
        job("file_batch/b").await.unwrap().status,
        TaskStatus::Running
    );
    assert_eq!(engine.last().line, "GET /vector_stores/vs/file_batches/b");
    engine.order(batch("completed", 0));
    assert_eq!(
        job("file_batch/b").await.unwrap().status,
        TaskStatus::Succeeded
    );
    engine.order(batch("completed", 2));
    let partial = job("file_batch/b").await.unwrap();
    assert_eq!(partial.status, TaskStatus::Partial);
    assert_eq!(partial.failed_because.unwrap(), "2 of 5 files");
    engine.order(Behaviour::json(&json!({ "id": "f", "status": "failed",
        "last_error": { "code": "invalid_file", "message": "no text" } })));
    let failed = job("file/f").await.unwrap();
    assert_eq!(
        (failed.status, failed.document_id.as_deref()),
        (TaskStatus::Failed, Some("f"))
    );
    assert_eq!(job("something").await, None);
}

#[tokio::test]
async fn the_running_job_is_the_file_that_is_taken_in() {
    let (engine, backend) = plain(Behaviour::json(&json!({ "data": [
        { "id": "f1", "status": "completed" }, { "id": "f2", "status": "in_progress" }
    ] })))
    .await;
    assert_eq!(
        backend.running_job("vs", &CALL).await.unwrap().as_deref(),
        Some("file/f2")
    );
    assert!(engine.last().line.ends_with("&filter=in_progress"));
    engine.order(Behaviour::json(&json!({ "data": [] })));
    assert_eq!(backend.running_job("vs", &CALL).await.unwrap(), None);
}

#[tokio::test]
async fn stores_are_described_and_listed() {
    let store = json!({ "id": "vs_1", "name": "Handbook", "object": "vector_store",
        "file_counts": { "completed": 7, "failed": 1, "total": 8 },
        "metadata": { "embedding_model": "bge-m3", "embedding_dimension": "1024" } });
    let (engine, backend) = plain(Behaviour::json(&store)).await;
    let statistics = backend.describe("vs_1", &CALL).await.unwrap();
    assert_eq!(statistics.document_count, Some(7));
    assert_eq!(statistics.embedding_dimension, Some(1024));
    engine.order(Behaviour::json(
        &json!({ "data": [store], "has_more": true }),
    ));
    let page = backend.list_knowledge_bases(None, 20, &CALL).await.unwrap();
    assert_eq!(
        page.knowledge_bases,
        [EngineKnowledgeBase {
            id: "vs_1".to_owned(),
            name: "Handbook".to_owned(),
            description: None,
            document_count: Some(7),
        }]
    );
    assert_eq!(page.next.as_deref(), Some("vs_1"));
    assert_eq!(engine.last().line, "GET /vector_stores?limit=20&order=asc");
}

#[tokio::test]
async fn answers_that_break_the_interface_are_unreadable() {
    let (engine, backend) = plain(Behaviour::json(&json!({ "data": "nothing" }))).await;
    let request = request(Filters::default());
    for answer in [
        Behaviour::json(&json!({})),
        Behaviour::json(&json!({ "data": "nothing" })),
        Behaviour::json(&json!([])),
        Behaviour::html(200),
        Behaviour::HalfABody,
    ] {
        engine.order(answer);
        let error = backend.retrieve("vs", &request, &CALL).await.unwrap_err();
        assert!(error.retryable(), "{error}");
    }
}
