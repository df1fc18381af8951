use std::time::Duration;

use proptest::prelude::*;
use raglan_core::clock::Timestamp;
use raglan_rag::backend::{Comparison, Condition, Filters};
use raglan_rag::filter_check::{drop_what_breaks, keeps};

use super::*;
use crate::configuration::Kind;
use crate::testing::{
    Behaviour, FakeEngine, any_json, client, clock, configuration, metadata_filter,
    retrieve_request, surroundings,
};

const PATIENCE: Duration = Duration::from_secs(5);

fn backend_at(url: &str, settings: &Value) -> DifyExternalBackend {
    let configuration = configuration("dify_external", "https://rag.example", settings);
    let Kind::DifyExternal(kind) = configuration.kind else {
        panic!("another kind");
    };
    DifyExternalBackend::new(
        client(url, surroundings(&clock())),
        kind,
        configuration.attributes,
        configuration.score_threshold,
    )
}

async fn ask_with(
    engine: &FakeEngine,
    settings: &Value,
    request: &RetrieveRequest,
) -> Result<Retrieval, BackendError> {
    let backend = backend_at(&engine.url, settings);
    let call = EngineCall::within(PATIENCE);
    backend.retrieve("kb-1", request, &call).await
}

async fn ask(answer: Behaviour) -> Result<Retrieval, BackendError> {
    let engine = FakeEngine::start([answer]).await;
    let found = ask_with(&engine, &json!({}), &retrieve_request(Filters::default())).await;
    assert_eq!(engine.received().len(), 1, "asked once");
    found
}

/// The reply of the page on the external knowledge API.
fn records() -> Value {
    json!({ "records": [
        {
            "metadata": {
                "path": "s3://hr/leave.txt", "description": "Leave", "document_id": "d-7",
                "domain": "hr", "updated_at": 1_780_000_000,
            },
            "score": 0.98, "title": "leave.txt", "content": "Thirty days."
        },
        { "metadata": {}, "score": 0.66, "title": "other.txt", "content": "Twenty days." }
    ] })
}

#[tokio::test]
async fn a_search_is_one_request_and_its_records_become_passages() {
    let engine = FakeEngine::start([Behaviour::json(&records())]).await;
    let settings = json!({ "fields": { "uri": "path" } });
    let request = retrieve_request(Filters::default());
    let found = ask_with(&engine, &settings, &request).await.unwrap();
    let received = engine.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].line, "POST /retrieval");
    assert_eq!(
        received[0].body,
        json!({
            "knowledge_id": "kb-1",
            "query": "How long is parental leave?",
            "retrieval_setting": { "top_k": 5, "score_threshold": 0.0 },
        })
    );
    assert_eq!((found.matched, found.notes.len()), (2, 0));
    let passage = &found.passages[0];
    assert_eq!(passage.document_id, "d-7");
    assert_eq!(passage.title, "leave.txt");
    assert_eq!(passage.uri.as_deref(), Some("s3://hr/leave.txt"));
    assert_eq!(passage.content, "Thirty days.");
    assert!((passage.score - 0.98).abs() < 1e-6);
    assert_eq!(
        passage.updated_at,
        Some(Timestamp::from_epoch_seconds(1_780_000_000))
    );
    assert_eq!(passage.metadata["domain"], "hr");
    assert_eq!(found.passages[1].document_id, "other.txt");
}

#[tokio::test]
async fn every_filter_is_written_under_both_names_of_the_logic() {
    let engine = FakeEngine::start([Behaviour::json(&json!({ "records": [] }))]).await;
    let settings = json!({ "fields": { "doc_type": "kind", "updated_at": "changed" } });
    let filters = Filters {
        domain: vec!["hr".to_owned()],
        document_type: vec!["policy".to_owned(), "faq".to_owned()],
        updated_after: Some(Timestamp::from_epoch_seconds(1_780_000_000)),
        updated_before: Some(Timestamp::from_epoch_seconds(1_790_000_000)),
        metadata: vec![Condition {
            field: "year".to_owned(),
            comparison: Comparison::GreaterOrEqual(json!(2024)),
        }],
    };
    let found = ask_with(&engine, &settings, &retrieve_request(filters)).await;
    assert_eq!(found.unwrap(), Retrieval::default());
    assert_eq!(
        engine.last().body["metadata_condition"],
        json!({
            "logical_operator": "and",
            "logic": "and",
            "conditions": [
                { "name": "domain", "comparison_operator": "is", "value": "hr" },
                { "name": "kind", "comparison_operator": "in", "value": ["policy", "faq"] },
                { "name": "changed", "comparison_operator": ">", "value": 1_780_000_000 },
                { "name": "changed", "comparison_operator": "<", "value": 1_790_000_000 },
                { "name": "year", "comparison_operator": "≥", "value": 2024 },
            ],
        })
    );
}

#[tokio::test]
async fn moments_are_dates_where_the_engine_keeps_them_as_text() {
    let backend = backend_at("https://rag.example", &json!({ "moments": "date" }));
    let filters = Filters {
        updated_after: Some(Timestamp::parse("2026-11-30").unwrap()),
        ..Filters::default()
    };
    let body = backend.body("kb", &retrieve_request(filters)).unwrap();
    assert_eq!(
        body["metadata_condition"]["conditions"],
        json!([{ "name": "updated_at", "comparison_operator": "after", "value": "2026-11-30" }])
    );
}

#[tokio::test]
async fn a_filter_that_cannot_be_written_is_named_and_nothing_is_asked() {
    let engine = FakeEngine::start([Behaviour::json(&records())]).await;
    let filters = metadata_filter("season", Comparison::Greater(json!("spring")));
    let error = ask_with(&engine, &json!({}), &retrieve_request(filters)).await;
    assert!(matches!(error, Err(BackendError::UnsupportedFilter(filter))
        if filter == "season gt"));
    assert!(engine.received().is_empty());
}

#[tokio::test]
async fn the_lowest_score_is_applied_here_and_what_it_leaves_out_is_counted() {
    let engine = FakeEngine::start([Behaviour::json(&records())]).await;
    let request = retrieve_request(Filters::default());
    let settings = json!({ "score_threshold": 0.7 });
    let found = ask_with(&engine, &settings, &request).await.unwrap();
    assert_eq!(found.passages.len(), 1);
    assert_eq!((found.matched, found.below_threshold), (2, 1));
}

#[tokio::test]
async fn odd_records_are_taken_for_what_they_tell() {
    let found = ask(Behaviour::json(&json!({ "records": [
        { "content": "no metadata", "score": 0.9, "title": "a", "metadata": null },
        { "content": "no score", "title": "b" },
        { "content": "nothing else" },
        { "score": 1.0, "title": "no content" },
        { "content": ["no text"], "score": 1.0 },
        "no record",
    ] })));
    let found = found.await.unwrap();
    let told: Vec<(&str, &str)> = found
        .passages
        .iter()
        .map(|passage| (passage.content.as_str(), passage.title.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("no metadata", "a"),
            ("no score", "b"),
            ("nothing else", "")
        ]
    );
    assert!(found.passages[1].score.abs() < f32::EPSILON);
    assert!(found.passages[0].metadata.is_empty());
}

#[tokio::test]
async fn a_missing_score_never_passes_a_threshold() {
    let answer = json!({ "records": [{ "content": "no score", "title": "b" }] });
    let engine = FakeEngine::start([Behaviour::json(&answer)]).await;
    let request = RetrieveRequest {
        min_score: Some(0.1),
        ..retrieve_request(Filters::default())
    };
    let found = ask_with(&engine, &json!({}), &request).await.unwrap();
    assert_eq!((found.passages.len(), found.below_threshold), (0, 1));
}

#[tokio::test]
async fn the_error_codes_of_the_interface_are_understood_with_any_status() {
    fn error(code: u32) -> Value {
        json!({ "error_code": code, "error_msg": "…" })
    }
    for status in [200, 400, 403] {
        for code in [1001, 1002] {
            let answer = ask(Behaviour::status(status, &error(code))).await;
            assert!(matches!(answer, Err(BackendError::Refused(_))), "{status}");
        }
        let answer = ask(Behaviour::status(status, &error(2001))).await;
        assert!(
            matches!(answer, Err(BackendError::UnknownKnowledgeBase(kb)) if kb == "kb-1"),
            "{status}"
        );
    }
    let answer = ask(Behaviour::json(&error(4711))).await;
    assert!(matches!(answer, Err(BackendError::Refused(_))));
    // As RAGFlow writes it.
    let body = json!({ "code": 404, "message": "Knowledgebase not found!" });
    let answer = ask(Behaviour::json(&body)).await;
    assert!(matches!(answer, Err(BackendError::UnknownKnowledgeBase(_))));
    let answer = ask(Behaviour::status(404, &json!({ "detail": "Not Found" }))).await;
    assert!(matches!(answer, Err(BackendError::UnknownKnowledgeBase(_))));
}

#[tokio::test]
async fn what_is_no_list_of_records_is_unreadable_and_never_empty() {
    for body in [
        json!({}),
        json!({ "records": null }),
        json!({ "records": {} }),
        json!([]),
        json!(null),
        json!({ "code": 0, "data": [] }),
    ] {
        let answer = ask(Behaviour::json(&body)).await;
        assert!(
            matches!(answer, Err(BackendError::UnreadableAnswer(_))),
            "{body}"
        );
    }
    let answer = ask(Behaviour::html(200)).await;
    assert!(matches!(answer, Err(BackendError::UnreadableAnswer(_))));
}

#[tokio::test]
async fn there_are_no_documents_and_the_knowledge_bases_are_the_configured_ones() {
    let settings = json!({
        "tells_metadata": false, "score_threshold": 0.3,
        "knowledge_bases": [{ "id": "a", "name": "A", "description": "All of it" }, { "id": "b" }],
    });
    let backend = backend_at("https://rag.example", &settings);
    let call = EngineCall::within(PATIENCE);
    let abilities = backend.abilities();
    assert!(!abilities.tells_metadata && !abilities.lists_documents && !abilities.reads_documents);
    assert_eq!(abilities.query_max_chars, None);
    let documents = backend.list_documents("a", None, 10, &call).await;
    assert!(matches!(documents, Err(BackendError::Unsupported(_))));

    let first = backend.list_knowledge_bases(None, 1, &call).await.unwrap();
    assert_eq!(first.knowledge_bases[0].name, "A");
    let next = first.next.as_deref();
    let second = backend.list_knowledge_bases(next, 1, &call).await.unwrap();
    assert_eq!(
        (second.knowledge_bases[0].name.as_str(), second.next),
        ("b", None)
    );

    let statistics = backend.describe("a", &call).await.unwrap();
    assert_eq!(statistics.similarity_threshold, Some(0.3));
    assert_eq!(statistics.document_count, None);
}

const NAMES: &[&str] = &[
    "records",
    "content",
    "score",
    "title",
    "metadata",
    "domain",
    "document_id",
    "updated_at",
    "error_code",
    "code",
];

proptest! {
    #[test]
    fn any_reply_gives_passages_that_keep_the_filters_or_none(
        reply in any_json(NAMES, &["hr", "it"]),
        records in proptest::collection::vec(any_json(NAMES, &["hr", "it"]), 0..6),
    ) {
        let backend = backend_at("https://rag.example", &json!({}));
        let filters = Filters { domain: vec!["hr".to_owned()], ..Filters::default() };
        for reply in [reply, json!({ "records": records })] {
            let _ = meant_status(StatusCode::OK, &reply);
            let Ok(passages) = backend.passages(&reply) else {
                continue;
            };
            let mut found = retrieval(passages, None, 50);
            drop_what_breaks(&filters, backend.abilities().tells_metadata, &mut found);
            for passage in &found.passages {
                prop_assert!(passage.score.is_finite() && !passage.content.is_empty());
                prop_assert!(keeps(&filters, true, passage));
                // Somebody said so: the record itself.
                let records = reply["records"].as_array().unwrap();
                let told = records.iter().any(|record| {
                    let domain = &record["metadata"]["domain"];
                    domain == "hr" || domain.as_array().is_some_and(|all| all.contains(&json!("hr")))
                });
                prop_assert!(told);
            }
        }
    }
}
