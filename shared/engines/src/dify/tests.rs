use std::time::Duration;

use proptest::prelude::*;
use raglan_core::clock::Timestamp;
use raglan_core::task::TaskStatus;
use raglan_rag::backend::{Comparison, Condition, Filters};
use raglan_rag::filter_check::{drop_what_breaks, keeps};

use super::*;
use crate::configuration::Kind;
use crate::testing::{
    Behaviour, FakeEngine, any_json, client, clock, configuration, metadata_filter,
    retrieve_request, surroundings,
};

const DATASET: &str = "c42e2a6e-40b3-4330-96f8-f1e4d768e8c9";
const DOCUMENT: &str = "a8e0e5b5-78c6-4130-a5ce-25feb0e0b4ac";
const CALL: EngineCall = EngineCall::within(Duration::from_secs(5));

fn backend_at(url: &str, settings: &Value) -> DifyBackend {
    let configuration = configuration("dify", "https://dify.example/v1", settings);
    let Kind::Dify(kind) = configuration.kind else {
        panic!("another kind");
    };
    DifyBackend::new(
        client(url, surroundings(&clock())),
        kind,
        configuration.attributes,
        configuration.score_threshold,
    )
}

fn plain(engine: &FakeEngine) -> DifyBackend {
    backend_at(&format!("{}/v1", engine.url), &json!({}))
}

fn no_filters() -> RetrieveRequest {
    retrieve_request(Filters::default())
}

/// A record as in the example of the API definition, with the metadata as Dify's own code gives it.
fn record(content: &str, score: f64, metadata: &Value) -> Value {
    json!({
        "segment": {
            "id": format!("segment of {content}"), "position": 3, "document_id": DOCUMENT,
            "content": content, "sign_content": content, "answer": "", "word_count": 2,
            "tokens": 4, "keywords": [], "index_node_id": "n", "index_node_hash": "h",
            "hit_count": 1, "enabled": true, "status": "completed", "created_at": 1_741_267_200,
            "error": null,
            "document": {
                "id": DOCUMENT, "data_source_type": "upload_file", "name": "guide.txt",
                "doc_type": null, "doc_metadata": metadata
            }
        },
        "child_chunks": [], "score": score, "tsne_position": null, "files": [], "summary": null
    })
}

fn found(records: &[Value]) -> Behaviour {
    Behaviour::json(&json!({ "query": { "content": "q" }, "records": records }))
}

fn refused() -> Behaviour {
    Behaviour::status(
        400,
        &json!({
            "code": "provider_not_initialize", "status": 400,
            "message": "No Embedding Model or Reranking Model available.",
        }),
    )
}

#[tokio::test]
async fn a_search_is_one_request_and_its_records_become_passages() {
    let metadata = json!({ "domain": "hr", "last_update_date": 1_780_000_000.5, "page": 2 });
    let engine = FakeEngine::start([found(&[record("Thirty days.", 0.91, &metadata)])]).await;
    let settings = json!({ "fields": { "updated_at": "last_update_date" } });
    let backend = backend_at(&format!("{}/v1", engine.url), &settings);
    let found = backend.retrieve(DATASET, &no_filters(), &CALL).await;
    let found = found.unwrap();
    let received = engine.received();
    assert_eq!(received.len(), 1);
    assert_eq!(
        received[0].line,
        format!("POST /v1/datasets/{DATASET}/retrieve")
    );
    assert_eq!(
        received[0].body,
        json!({
            "query": "How long is parental leave?",
            "retrieval_model": {
                "search_method": "hybrid_search", "reranking_enable": false, "top_k": 5,
                "score_threshold_enabled": false,
            },
        })
    );
    assert!(found.notes.is_empty());
    let passage = &found.passages[0];
    assert_eq!(passage.id, "segment of Thirty days.");
    assert_eq!(
        (passage.document_id.as_str(), passage.chunk_index),
        (DOCUMENT, 2)
    );
    assert_eq!(
        (passage.title.as_str(), passage.page),
        ("guide.txt", Some(2))
    );
    let moment = passage.updated_at.unwrap();
    assert_eq!(moment.epoch_ms(), 1_780_000_000_500);
    assert_eq!(passage.metadata["domain"], "hr");
}

#[tokio::test]
async fn an_identifier_stays_one_segment_of_the_path() {
    let engine = FakeEngine::start([found(&[])]).await;
    let backend = plain(&engine);
    backend
        .retrieve("a/../b?c", &no_filters(), &CALL)
        .await
        .unwrap();
    assert_eq!(
        engine.last().line,
        "POST /v1/datasets/a%2F..%2Fb%3Fc/retrieve"
    );
}

#[tokio::test]
async fn a_long_query_is_cut_between_words_and_the_caller_is_told() {
    let engine = FakeEngine::start([found(&[])]).await;
    let request = RetrieveRequest {
        query: "leave ".repeat(60),
        ..no_filters()
    };
    let answer = plain(&engine).retrieve(DATASET, &request, &CALL).await;
    assert_eq!(answer.unwrap().notes, [Note::QueryCut { max_chars: 250 }]);
    let asked = engine.last().body["query"].as_str().unwrap().to_owned();
    assert!(asked.chars().count() <= 250 && asked.ends_with("leave"));
}

#[test]
fn every_filter_is_written_into_the_retrieval_model() {
    let settings = json!({ "fields": { "doc_type": "kind", "updated_at": "last_update_date" } });
    let backend = backend_at("https://dify.example/v1", &settings);
    let filters = Filters {
        domain: vec!["hr".to_owned(), "it".to_owned()],
        document_type: vec!["policy".to_owned()],
        updated_after: Some(Timestamp::from_epoch_seconds(1_780_000_000)),
        updated_before: Some(Timestamp::from_epoch_ms(1_790_000_000_001)),
        metadata: vec![
            Condition {
                field: "year".to_owned(),
                comparison: Comparison::LessOrEqual(json!("2024")),
            },
            Condition {
                field: "document_type".to_owned(),
                comparison: Comparison::NoneOf(vec![json!("draft"), json!("note")]),
            },
        ],
    };
    let model = backend.retrieval_model(&retrieve_request(filters)).unwrap();
    assert_eq!(
        model["metadata_filtering_conditions"],
        json!({
            "logical_operator": "and",
            "conditions": [
                { "name": "domain", "comparison_operator": "in", "value": ["hr", "it"] },
                { "name": "kind", "comparison_operator": "is", "value": "policy" },
                { "name": "last_update_date", "comparison_operator": ">", "value": 1_780_000_000 },
                { "name": "last_update_date", "comparison_operator": "<", "value": 1_790_000_001 },
                { "name": "year", "comparison_operator": "≤", "value": 2024 },
                { "name": "kind", "comparison_operator": "not in", "value": ["draft", "note"] },
            ],
        })
    );
}

#[tokio::test]
async fn a_filter_that_dify_cannot_apply_is_named_and_nothing_is_asked() {
    let engine = FakeEngine::start([found(&[])]).await;
    let dated = backend_at(&engine.url, &json!({ "moments": "rfc3339" }));
    assert!(!dated.filters().fields.contains(&"updated_after"));
    let after = Filters {
        updated_after: Some(Timestamp::from_epoch_seconds(1)),
        ..Filters::default()
    };
    let season = metadata_filter("season", Comparison::Less(json!("spring")));
    for (backend, filters, named) in [
        (dated, after, "updated_after"),
        (plain(&engine), season, "season lt"),
    ] {
        let request = retrieve_request(filters);
        let error = backend.retrieve(DATASET, &request, &CALL).await;
        assert!(matches!(error, Err(BackendError::UnsupportedFilter(filter)) if filter == named));
    }
    assert!(engine.received().is_empty());
}

#[tokio::test]
async fn a_version_that_leaves_filters_or_metadata_out_gives_nothing_that_breaks_them() {
    let metadata = json!({ "domain": "it" });
    let engine = FakeEngine::start([found(&[
        record("another domain", 0.9, &metadata),
        record("no metadata", 0.8, &Value::Null),
        record("fits", 0.7, &json!({ "domain": "hr" })),
        record(
            "fits as a list",
            0.6,
            &json!([
                { "id": "1", "name": "domain", "type": "string", "value": "hr" }
            ]),
        ),
    ])])
    .await;
    let filters = Filters {
        domain: vec!["hr".to_owned()],
        ..Filters::default()
    };
    let backend = plain(&engine);
    let request = retrieve_request(filters.clone());
    let mut answer = backend.retrieve(DATASET, &request, &CALL).await.unwrap();
    drop_what_breaks(&filters, backend.abilities().tells_metadata, &mut answer);
    let kept: Vec<&str> = answer.passages.iter().map(|p| p.content.as_str()).collect();
    assert_eq!(kept, ["fits", "fits as a list"]);
    assert_eq!(answer.notes, [Note::FilteredAgain(2)]);
}

#[tokio::test]
async fn a_reranking_model_that_is_refused_is_left_out_from_then_on() {
    let engine = FakeEngine::start([refused(), found(&[record("x", 0.5, &json!({}))])]).await;
    let settings = json!({ "rerank": { "provider": "cohere", "model": "rerank-v3" } });
    let backend = backend_at(&engine.url, &settings);
    for requests in [2, 3] {
        let answer = backend
            .retrieve(DATASET, &no_filters(), &CALL)
            .await
            .unwrap();
        assert_eq!(answer.passages.len(), 1);
        assert_eq!(answer.notes, [Note::WithoutSetting("rerank")]);
        assert_eq!(engine.received().len(), requests);
    }
    let models: Vec<Value> = engine
        .received()
        .into_iter()
        .map(|request| request.body["retrieval_model"].clone())
        .collect();
    assert_eq!(models[0]["reranking_enable"], true);
    assert_eq!(models[0]["reranking_mode"], "reranking_model");
    assert_eq!(
        models[0]["reranking_model"],
        json!({ "reranking_provider_name": "cohere", "reranking_model_name": "rerank-v3" })
    );
    assert_eq!(models[1]["reranking_enable"], false);
    assert_eq!(models[1].get("reranking_model"), None);
    assert_eq!(models[1], models[2]);
}

#[tokio::test]
async fn a_refusal_that_is_not_about_the_reranking_model_stays_a_refusal() {
    let engine = FakeEngine::start([refused()]).await;
    let settings = json!({ "rerank": { "provider": "cohere", "model": "rerank-v3" } });
    let backend = backend_at(&engine.url, &settings);
    let answer = backend.retrieve(DATASET, &no_filters(), &CALL).await;
    assert!(matches!(answer, Err(BackendError::Refused(_))));
    assert!(backend.rerank().is_some(), "the model was not to blame");
}

#[tokio::test]
async fn each_error_of_the_interface_means_what_it_says() {
    fn error(status: u16, code: &str) -> Behaviour {
        Behaviour::status(
            status,
            &json!({ "code": code, "message": "…", "status": status }),
        )
    }
    type Expected = fn(&BackendError) -> bool;
    let table: [(Behaviour, Expected); 6] = [
        (error(404, "not_found"), |e| {
            matches!(e, BackendError::UnknownKnowledgeBase(_))
        }),
        (error(401, "unauthorized"), |e| {
            matches!(e, BackendError::Refused(_))
        }),
        (error(403, "forbidden"), |e| {
            matches!(e, BackendError::Refused(_))
        }),
        (error(400, "dataset_not_initialized"), |e| {
            matches!(e, BackendError::Refused(_))
        }),
        (error(429, "rate_limit_error"), |e| {
            matches!(e, BackendError::Throttled)
        }),
        (error(500, "internal_server_error"), |e| {
            matches!(e, BackendError::Unavailable(_))
        }),
    ];
    for (behaviour, expected) in table {
        let engine = FakeEngine::start([behaviour.clone()]).await;
        let answer = plain(&engine).retrieve(DATASET, &no_filters(), &CALL).await;
        let error = answer.unwrap_err();
        assert!(expected(&error), "{behaviour:?}: {error}");
    }
}

#[tokio::test]
async fn odd_replies_are_read_as_far_as_they_go_and_no_list_is_no_answer() {
    let mut bare = record("bare", 0.5, &json!({}));
    bare.as_object_mut().unwrap().remove("score");
    bare["segment"].as_object_mut().unwrap().remove("document");
    let mut answered = record("Question?", 0.4, &json!({}));
    answered["segment"]["answer"] = "Answer.".into();
    let odd = [
        bare,
        answered,
        json!({ "segment": null, "score": 1 }),
        json!({ "score": 1 }),
        json!(null),
    ];
    let engine = FakeEngine::start([found(&odd)]).await;
    let backend = plain(&engine);
    let answer = backend
        .retrieve(DATASET, &no_filters(), &CALL)
        .await
        .unwrap();
    let texts: Vec<&str> = answer.passages.iter().map(|p| p.content.as_str()).collect();
    assert_eq!(texts, ["bare", "Question?\n\nAnswer."]);
    assert_eq!(answer.passages[0].document_id, DOCUMENT);

    for behaviour in [
        Behaviour::json(&json!({ "query": {} })),
        Behaviour::json(&json!({ "records": null })),
        Behaviour::json(&json!("records")),
        Behaviour::html(200),
    ] {
        engine.order(behaviour);
        let answer = backend.retrieve(DATASET, &no_filters(), &CALL).await;
        assert!(matches!(answer, Err(BackendError::UnreadableAnswer(_))));
    }
}

#[tokio::test]
async fn datasets_are_listed_page_by_page_and_described() {
    let dataset = json!({
        "id": DATASET, "name": "Product", "description": "All of it", "document_count": 7,
        "word_count": 900, "embedding_model": "text-embedding-3-small", "updated_at": 1_741_267_200,
    });
    let page = json!({
        "data": [dataset, { "id": "b" }], "has_more": true, "limit": 2, "total": 5, "page": 1
    });
    let engine = FakeEngine::start([Behaviour::json(&page)]).await;
    let backend = plain(&engine);
    let listed = backend.list_knowledge_bases(None, 2, &CALL).await.unwrap();
    assert_eq!(engine.last().line, "GET /v1/datasets?page=1&limit=2");
    assert_eq!(listed.next.as_deref(), Some("2"));
    assert_eq!(listed.knowledge_bases[0].name, "Product");
    assert_eq!(listed.knowledge_bases[0].document_count, Some(7));
    assert_eq!(listed.knowledge_bases[1].name, "b");

    engine.order(Behaviour::json(&dataset));
    let statistics = backend.describe(DATASET, &CALL).await.unwrap();
    assert_eq!(engine.last().line, format!("GET /v1/datasets/{DATASET}"));
    assert_eq!(statistics.document_count, Some(7));
    assert_eq!(statistics.chunk_count, None);
    assert_eq!(
        statistics.embedding_model.as_deref(),
        Some("text-embedding-3-small")
    );
    assert_eq!(
        statistics.indexed_at,
        Some(Timestamp::from_epoch_seconds(1_741_267_200))
    );
}

fn document(id: &str, status: &str, enabled: bool) -> Value {
    json!({
        "id": id, "position": 1, "data_source_type": "upload_file",
        "data_source_detail_dict": { "upload_file": {
            "id": "f", "name": "guide.txt", "size": 2048, "extension": "txt"
        } },
        "name": "guide.txt", "created_at": 1_741_267_200, "indexing_status": status,
        "error": null, "enabled": enabled, "archived": false, "doc_metadata": []
    })
}

#[tokio::test]
async fn documents_are_listed_with_their_state() {
    let page = json!({
        "data": [
            document("a", "completed", true),
            document("b", "error", true),
            document("c", "parsing", true),
            document("d", "completed", false),
            { "id": "e", "indexing_status": "waiting" },
            { "name": "no identifier" },
        ],
        "has_more": false, "total": 6, "page": 2, "limit": 20
    });
    let engine = FakeEngine::start([Behaviour::json(&page)]).await;
    let backend = plain(&engine);
    let listed = backend.list_documents(DATASET, Some("20"), 20, &CALL).await;
    let listed = listed.unwrap();
    assert_eq!(
        engine.last().line,
        format!("GET /v1/datasets/{DATASET}/documents?page=2&limit=20")
    );
    assert_eq!(listed.next, None);
    let states: Vec<&str> = listed.documents.iter().map(|d| d.status.as_str()).collect();
    assert_eq!(
        states,
        ["indexed", "failed", "indexing", "disabled", "indexing"]
    );
    let first = &listed.documents[0];
    assert_eq!((first.size_bytes, first.format.as_str()), (2048, "text"));
    assert_eq!(
        first.created_at,
        Timestamp::from_epoch_seconds(1_741_267_200)
    );

    backend
        .list_documents(DATASET, None, 1000, &CALL)
        .await
        .unwrap();
    assert!(engine.last().line.ends_with("?page=1&limit=100"));
}

fn segments(texts: &[(&str, bool)], has_more: bool) -> Behaviour {
    let data: Vec<Value> = texts
        .iter()
        .map(|(text, enabled)| {
            json!({ "content": text, "answer": "", "enabled": enabled, "status": "completed" })
        })
        .collect();
    Behaviour::json(&json!({ "data": data, "has_more": has_more, "doc_form": "text_model" }))
}

#[tokio::test]
async fn a_document_is_read_segment_by_segment_without_what_is_switched_off() {
    let engine = FakeEngine::start([
        Behaviour::json(&document(DOCUMENT, "completed", true)),
        segments(&[("One.", true), ("Hidden.", false)], true),
        segments(&[("Two.", true)], false),
    ])
    .await;
    let text = plain(&engine).read_document(DATASET, DOCUMENT, &CALL).await;
    let text = text.unwrap().unwrap();
    assert_eq!(
        (text.title.as_str(), text.text.as_str()),
        ("guide.txt", "One.\n\nTwo.")
    );
    let lines: Vec<String> = engine.received().into_iter().map(|r| r.line).collect();
    let path = format!("GET /v1/datasets/{DATASET}/documents/{DOCUMENT}");
    assert_eq!(
        lines,
        [
            format!("{path}?metadata=without"),
            format!("{path}/segments?page=1&limit=100"),
            format!("{path}/segments?page=2&limit=100"),
        ]
    );
}

#[tokio::test]
async fn a_document_that_is_gone_or_switched_off_is_not_there() {
    let gone = || Behaviour::status(404, &json!({ "code": "not_found", "message": "…" }));
    let engine = FakeEngine::start([gone()]).await;
    let backend = plain(&engine);
    assert_eq!(
        backend
            .read_document(DATASET, DOCUMENT, &CALL)
            .await
            .unwrap(),
        None
    );
    engine.order(Behaviour::json(&document(DOCUMENT, "completed", false)));
    assert_eq!(
        backend
            .read_document(DATASET, DOCUMENT, &CALL)
            .await
            .unwrap(),
        None
    );
    // A version without details of a document.
    engine.order_all([gone(), segments(&[("One.", true)], false)]);
    let text = backend.read_document(DATASET, DOCUMENT, &CALL).await;
    assert_eq!(text.unwrap().unwrap().title, DOCUMENT);
}

#[tokio::test]
async fn a_job_is_what_its_documents_are_together() {
    fn batch(states: &[&str]) -> Behaviour {
        let data: Vec<Value> = states
            .iter()
            .map(|state| {
                json!({
                    "id": state, "indexing_status": state, "error": (*state == "error").then_some("…"),
                    "processing_started_at": 1_741_267_200.0, "completed_at": null,
                    "parsing_completed_at": 1_741_267_300.0, "completed_segments": 1,
                    "total_segments": 2
                })
            })
            .collect();
        Behaviour::json(&json!({ "data": data }))
    }
    let engine = FakeEngine::start([batch(&[])]).await;
    let backend = plain(&engine);
    assert_eq!(backend.job(DATASET, "20250306", &CALL).await.unwrap(), None);
    assert_eq!(
        engine.last().line,
        format!("GET /v1/datasets/{DATASET}/documents/20250306/indexing-status")
    );
    for (states, expected) in [
        (&["waiting", "waiting"][..], TaskStatus::Pending),
        (&["paused"], TaskStatus::Pending),
        (&["waiting", "splitting"], TaskStatus::Running),
        (&["completed", "waiting"], TaskStatus::Running),
        (&["completed", "completed"], TaskStatus::Succeeded),
        (&["completed", "error"], TaskStatus::Partial),
        (&["error"], TaskStatus::Failed),
    ] {
        engine.order(batch(states));
        let job = backend
            .job(DATASET, "20250306", &CALL)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(job.status, expected, "{states:?}");
        assert_eq!(job.failed_because.is_some(), states.contains(&"error"));
        assert_eq!(job.document_id.is_some(), states.len() == 1);
        assert_eq!(job.created_at, Timestamp::from_epoch_seconds(1_741_267_200));
        assert_eq!(job.updated_at, Timestamp::from_epoch_seconds(1_741_267_300));
    }
    engine.order(Behaviour::status(404, &json!({ "code": "not_found" })));
    assert_eq!(backend.job(DATASET, "gone", &CALL).await.unwrap(), None);
}

#[tokio::test]
async fn a_document_that_is_being_indexed_is_a_job_that_can_be_asked_for() {
    let page = json!({ "data": [
        document("done", "completed", true), document(DOCUMENT, "indexing", true)
    ] });
    let engine = FakeEngine::start([
        Behaviour::json(&page),
        Behaviour::json(&document(DOCUMENT, "indexing", true)),
    ])
    .await;
    let backend = plain(&engine);
    let job_id = backend.running_job(DATASET, &CALL).await.unwrap().unwrap();
    let job = backend.job(DATASET, &job_id, &CALL).await.unwrap().unwrap();
    assert_eq!(job.status, TaskStatus::Running);
    assert_eq!(job.document_id.as_deref(), Some(DOCUMENT));
    assert_eq!(
        engine.last().line,
        format!("GET /v1/datasets/{DATASET}/documents/{DOCUMENT}?metadata=without")
    );
}

const NAMES: &[&str] = &[
    "records",
    "segment",
    "document",
    "doc_metadata",
    "content",
    "answer",
    "score",
    "id",
    "name",
    "value",
    "domain",
    "position",
    "data",
    "indexing_status",
];

proptest! {
    #[test]
    fn any_reply_gives_passages_that_keep_the_filters_or_none(
        reply in any_json(NAMES, &["hr", "it", "domain"]),
        metadata in proptest::collection::vec(any_json(NAMES, &["hr", "it", "domain"]), 0..4),
    ) {
        let backend = backend_at("https://dify.example/v1", &json!({}));
        let filters = Filters { domain: vec!["hr".to_owned()], ..Filters::default() };
        let records: Vec<Value> = metadata
            .iter()
            .map(|metadata| record("text", 0.5, metadata))
            .collect();
        for reply in [reply, json!({ "records": records })] {
            let Ok(passages) = backend.passages(&reply) else {
                continue;
            };
            let mut found = retrieval(passages, None, 50);
            drop_what_breaks(&filters, backend.abilities().tells_metadata, &mut found);
            for passage in &found.passages {
                prop_assert!(passage.score.is_finite() && !passage.content.is_empty());
                prop_assert!(keeps(&filters, true, passage));
                // Somebody said so: a document in the reply.
                let records = reply["records"].as_array().unwrap();
                let told = records.iter().any(|record| {
                    let metadata = record["segment"]["document"]["doc_metadata"].to_string();
                    metadata.contains("\"hr\"") && metadata.contains("\"domain\"")
                });
                prop_assert!(told);
            }
        }
    }
}
