use proptest::prelude::*;
use raglan_core::clock::Timestamp;
use raglan_rag::backend::{Backend as _, Comparison, Condition, Filters};
use raglan_rag::filter_check::drop_what_breaks;
use serde_json::{Value, json};

use super::*;
use crate::testing::{FakeBedrock, KB, Reply, call, request, result, results};

async fn fake(kind: &str) -> FakeBedrock {
    let fake = FakeBedrock::start().await;
    fake.is_of_type(kind);
    fake.on_retrieve([results(&[])]);
    fake
}

fn on(field: &str, comparison: Comparison) -> Filters {
    Filters {
        metadata: vec![Condition {
            field: field.to_owned(),
            comparison,
        }],
        ..Filters::default()
    }
}

fn with(filters: Filters) -> RetrieveRequest {
    RetrieveRequest {
        filters,
        ..request()
    }
}

/// Every operator and every filter, with what Bedrock is asked.
fn translations() -> Vec<(Filters, Value)> {
    use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual, NoneOf, OneOf};
    let at = |text: &str| Some(Timestamp::parse(text).unwrap());
    let filters = Filters::default;
    vec![
        (
            on("team", OneOf(vec![json!("blue")])),
            json!({ "equals": { "key": "team", "value": "blue" } }),
        ),
        (
            on("team", OneOf(vec![json!("blue"), json!(7), json!(true)])),
            json!({ "in": { "key": "team", "value": ["blue", 7, true] } }),
        ),
        (
            on("team", NoneOf(vec![json!("blue")])),
            json!({ "notEquals": { "key": "team", "value": "blue" } }),
        ),
        (
            on("team", NoneOf(vec![json!("blue"), json!("red")])),
            json!({ "andAll": [
                { "notEquals": { "key": "team", "value": "blue" } },
                { "notEquals": { "key": "team", "value": "red" } },
            ] }),
        ),
        (
            on("year", Greater(json!(2024))),
            json!({ "greaterThan": { "key": "year", "value": 2024 } }),
        ),
        (
            on("year", GreaterOrEqual(json!("2024"))),
            json!({ "greaterThanOrEquals": { "key": "year", "value": 2024 } }),
        ),
        (
            on("rate", Less(json!(0.5))),
            json!({ "lessThan": { "key": "rate", "value": 0.5 } }),
        ),
        (
            on("rate", LessOrEqual(json!(-3))),
            json!({ "lessThanOrEquals": { "key": "rate", "value": -3 } }),
        ),
        (
            Filters {
                domain: vec!["hr".to_owned()],
                document_type: vec!["policy".to_owned(), "faq".to_owned()],
                ..filters()
            },
            json!({ "andAll": [
                { "equals": { "key": "domain", "value": "hr" } },
                { "in": { "key": "doc_type", "value": ["policy", "faq"] } },
            ] }),
        ),
        (
            Filters {
                updated_after: at("2026-01-01"),
                ..filters()
            },
            json!({ "greaterThan": { "key": "updated_at", "value": 1_767_225_600 } }),
        ),
        (
            Filters {
                updated_after: at("2026-01-01"),
                updated_before: at("2026-02-01"),
                ..filters()
            },
            json!({ "andAll": [
                { "greaterThan": { "key": "updated_at", "value": 1_767_225_600 } },
                { "lessThan": { "key": "updated_at", "value": 1_769_904_000 } },
            ] }),
        ),
    ]
}

#[tokio::test]
async fn every_filter_is_asked_exactly_as_bedrock_takes_it_in_both_kinds() {
    for (kind, place) in [
        ("VECTOR", "vectorSearchConfiguration"),
        ("MANAGED", "managedSearchConfiguration"),
    ] {
        let fake = fake(kind).await;
        let backend = fake.backend(&json!({}));
        let translations = translations();
        for (filters, _) in &translations {
            let request = with(filters.clone());
            backend.retrieve(KB, &request, &call()).await.unwrap();
        }
        for (asked, (_, expected)) in fake.searches().iter().zip(&translations) {
            let expected = json!({
                "retrievalQuery": { "type": "TEXT", "text": "How many days of leave?" },
                "retrievalConfiguration": { place: { "numberOfResults": 5, "filter": expected } },
            });
            assert_eq!(asked, &expected, "{kind}");
        }
        assert_eq!(fake.searches().len(), translations.len());
        assert_eq!(fake.asked(KB).len(), 1, "the type is asked for once");
    }
}

#[tokio::test]
async fn a_search_without_settings_asks_for_nothing_else() {
    let fake = fake("VECTOR").await;
    let backend = fake.backend(&json!({}));
    backend.retrieve(KB, &request(), &call()).await.unwrap();
    assert_eq!(
        fake.searches(),
        [json!({
            "retrievalQuery": { "type": "TEXT", "text": "How many days of leave?" },
            "retrievalConfiguration": { "vectorSearchConfiguration": { "numberOfResults": 5 } },
        })]
    );
}

#[tokio::test]
async fn one_data_source_is_asked_for_under_the_key_of_its_kind() {
    for (kind, place, key) in [
        (
            "VECTOR",
            "vectorSearchConfiguration",
            "x-amz-bedrock-kb-data-source-id",
        ),
        ("MANAGED", "managedSearchConfiguration", "_data_source_id"),
    ] {
        let fake = fake(kind).await;
        let backend = fake.backend(&json!({}));
        let reference = format!("{KB}/DS12345678");
        let request = with(on("team", Comparison::OneOf(vec![json!("blue")])));
        backend
            .retrieve(&reference, &request, &call())
            .await
            .unwrap();
        assert_eq!(
            fake.searches()[0]["retrievalConfiguration"][place]["filter"],
            json!({ "andAll": [
                { "equals": { "key": key, "value": "DS12345678" } },
                { "equals": { "key": "team", "value": "blue" } },
            ] })
        );
    }
}

#[tokio::test]
async fn the_attributes_have_the_names_that_the_configuration_gives_them() {
    let fake = fake("VECTOR").await;
    let settings = json!({
        "fields": { "updated_at": "modified", "doc_type": "kind" }, "moments": "epoch_milliseconds"
    });
    let backend = fake.backend(&settings);
    let filters = Filters {
        updated_before: Some(Timestamp::parse("2026-01-01").unwrap()),
        ..on("document_type", Comparison::OneOf(vec![json!("faq")]))
    };
    backend.retrieve(KB, &with(filters), &call()).await.unwrap();
    assert_eq!(
        fake.searches()[0]["retrievalConfiguration"]["vectorSearchConfiguration"]["filter"],
        json!({ "andAll": [
            { "lessThan": { "key": "modified", "value": 1_767_225_600_000_i64 } },
            { "equals": { "key": "kind", "value": "faq" } },
        ] })
    );
}

#[tokio::test]
async fn what_bedrock_cannot_compare_is_an_error_and_no_search() {
    let fake = fake("VECTOR").await;
    let dated = Filters {
        updated_after: Some(Timestamp::parse("2026-01-01").unwrap()),
        ..Filters::default()
    };
    let texts = on("name", Comparison::Greater(json!("m")));
    for (settings, filters) in [(json!({ "moments": "rfc3339" }), dated), (json!({}), texts)] {
        let backend = fake.backend(&settings);
        let error = backend.retrieve(KB, &with(filters), &call()).await;
        let error = error.unwrap_err();
        assert!(
            matches!(error, BackendError::UnsupportedFilter(_)),
            "{error}"
        );
    }
    assert!(fake.searches().is_empty());
}

#[tokio::test]
async fn tables_are_searched_without_configuration_and_never_with_a_filter() {
    let fake = fake("SQL").await;
    let row = json!({
        "content": { "type": "ROW", "row": [
            { "columnName": "region", "columnValue": "EMEA", "type": "STRING" },
            { "columnName": "sales", "columnValue": "42", "type": "LONG" },
        ] },
        "location": { "type": "SQL", "sqlLocation": { "query": "SELECT region, sales FROM s" } },
    });
    fake.on_retrieve([results(&[row])]);
    let backend = fake.backend(&json!({}));
    let found = backend.retrieve(KB, &request(), &call()).await.unwrap();
    assert_eq!(found.passages[0].content, "region: EMEA\nsales: 42");
    assert!(fake.searches()[0].get("retrievalConfiguration").is_none());

    let filtered = with(on("team", Comparison::OneOf(vec![json!("blue")])));
    let error = backend.retrieve(KB, &filtered, &call()).await.unwrap_err();
    assert!(
        matches!(error, BackendError::UnsupportedFilter(_)),
        "{error}"
    );
    assert_eq!(fake.searches().len(), 1);
}

#[tokio::test]
async fn results_become_passages_with_score_place_and_metadata() {
    let fake = fake("VECTOR").await;
    let metadata = json!({
        "x-amz-bedrock-kb-chunk-id": "1%3A0%3Aabc",
        "x-amz-bedrock-kb-document-page-number": 3.0,
        "title": "Leave", "updated_at": 1_767_225_600, "domain": "hr", "year": 2026.0,
    });
    let image =
        json!({ "content": { "type": "IMAGE", "byteContent": "data:image/png;base64,AA==" } });
    let web = json!({
        "content": { "text": "Ask your manager." },
        "location": { "type": "WEB", "webLocation": { "url": "https://wiki.example/hr/leave?x=1" } },
        "score": 0.25,
    });
    let custom = json!({
        "content": { "text": "Half days count." }, "score": 0.125,
        "location": { "type": "CUSTOM", "customDocumentLocation": { "id": "doc-7" } },
    });
    let bare = json!({ "content": { "text": "No place." }, "documentId": "d-9" });
    fake.on_retrieve([results(&[
        result("Thirty days.", 0.5, &metadata),
        image,
        web,
        custom,
        bare,
    ])]);
    let backend = fake.backend(&json!({}));
    let found = backend.retrieve(KB, &request(), &call()).await.unwrap();
    let [leave, web, custom, bare] = found.passages.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(leave.id, "1%3A0%3Aabc");
    assert_eq!(leave.document_id, "s3://handbook/hr/leave.md");
    assert_eq!(leave.uri.as_deref(), Some("s3://handbook/hr/leave.md"));
    assert_eq!(
        (leave.title.as_str(), leave.filename.as_str(), leave.page),
        ("Leave", "hr/leave.md", Some(3))
    );
    assert_eq!(
        leave.updated_at.unwrap().to_string(),
        "2026-01-01T00:00:00.000Z"
    );
    assert_eq!(
        (leave.score, &leave.metadata["domain"]),
        (0.5, &json!("hr"))
    );
    assert_eq!(web.title, "leave");
    assert_eq!(
        web.uri.as_deref(),
        Some("https://wiki.example/hr/leave?x=1")
    );
    assert_eq!((custom.document_id.as_str(), &custom.uri), ("doc-7", &None));
    assert_eq!(bare.document_id, "d-9");
    assert_ne!(web.id, custom.id);
}

#[tokio::test]
async fn pages_are_followed_until_there_is_enough() {
    let fake = fake("VECTOR").await;
    let page = |texts: [&str; 2]| {
        let found = texts.map(|text| result(text, 0.5, &json!({})));
        Reply::Json(
            json!({ "retrievalResults": found, "nextToken": format!("after-{}", texts[1]) }),
        )
    };
    fake.on_retrieve([page(["a", "b"]), page(["c", "d"]), page(["e", "f"])]);
    let backend = fake.backend(&json!({}));
    let found = backend.retrieve(KB, &request(), &call()).await.unwrap();
    let texts: Vec<&str> = found.passages.iter().map(|p| p.content.as_str()).collect();
    assert_eq!(texts, ["a", "b", "c", "d", "e"]);
    let tokens: Vec<Value> = fake
        .searches()
        .iter()
        .map(|asked| asked["nextToken"].clone())
        .collect();
    assert_eq!(tokens, [json!(null), json!("after-b"), json!("after-d")]);
}

#[tokio::test]
async fn a_service_that_always_has_another_page_is_not_asked_for_ever() {
    let fake = fake("VECTOR").await;
    fake.on_retrieve([Reply::Json(
        json!({ "retrievalResults": [], "nextToken": "again" }),
    )]);
    let backend = fake.backend(&json!({}));
    let found = backend.retrieve(KB, &request(), &call()).await.unwrap();
    assert!(found.passages.is_empty());
    assert_eq!(fake.searches().len(), PAGES_MAX);
}

#[tokio::test]
async fn what_is_below_the_lowest_score_is_counted() {
    let fake = fake("VECTOR").await;
    fake.on_retrieve([results(&[
        result("Thirty days.", 0.75, &json!({})),
        result("Lunch is at noon.", 0.25, &json!({})),
    ])]);
    let backend = fake.backend(&json!({ "score_threshold": 0.5 }));
    let found = backend.retrieve(KB, &request(), &call()).await.unwrap();
    assert_eq!((found.passages.len(), found.below_threshold), (1, 1));
}

#[tokio::test]
async fn passages_that_break_the_filters_are_dropped_when_bedrock_lets_them_through() {
    let fake = fake("VECTOR").await;
    fake.on_retrieve([results(&[
        result("Blue.", 0.9, &json!({ "team": "blue" })),
        result("Red.", 0.8, &json!({ "team": "red" })),
        result("Nobody's.", 0.7, &json!({})),
    ])]);
    let backend = fake.backend(&json!({}));
    let request = with(on("team", Comparison::OneOf(vec![json!("blue")])));
    let mut found = backend.retrieve(KB, &request, &call()).await.unwrap();
    drop_what_breaks(
        &request.filters,
        backend.abilities().tells_metadata,
        &mut found,
    );
    assert_eq!(found.passages.len(), 1);
    assert_eq!(found.notes, [Note::FilteredAgain(2)]);
}

#[tokio::test]
async fn a_guardrail_that_intervenes_leaves_nothing_and_says_so() {
    let fake = fake("VECTOR").await;
    fake.on_retrieve([Reply::Json(json!({
        "retrievalResults": [result("Blocked.", 0.9, &json!({}))], "guardrailAction": "INTERVENED",
    }))]);
    let backend = fake.backend(&json!({ "guardrail": { "id": "gr1", "version": "2" } }));
    let found = backend.retrieve(KB, &request(), &call()).await.unwrap();
    assert!(found.passages.is_empty());
    assert_eq!(found.notes, [Note::Withheld]);
    assert_eq!(
        fake.searches()[0]["guardrailConfiguration"],
        json!({ "guardrailId": "gr1", "guardrailVersion": "2" })
    );
    fake.on_retrieve([Reply::Json(json!({
        "retrievalResults": [result("Fine.", 0.9, &json!({}))], "guardrailAction": "NONE",
    }))]);
    let found = backend.retrieve(KB, &request(), &call()).await.unwrap();
    assert_eq!(found.passages.len(), 1);
}

const RERANKER: &str = "arn:aws:bedrock:eu-central-1::foundation-model/cohere.rerank-v3-5:0";

#[tokio::test]
async fn configured_settings_are_asked_for_in_the_words_of_each_kind() {
    let settings = json!({ "rerank": RERANKER, "search_type": "hybrid" });
    let model = json!({ "modelConfiguration": { "modelArn": RERANKER } });
    let reranking =
        json!({ "type": "BEDROCK_RERANKING_MODEL", "bedrockRerankingConfiguration": model });
    for (kind, expected) in [
        (
            "VECTOR",
            json!({ "vectorSearchConfiguration": {
                "numberOfResults": 5, "overrideSearchType": "HYBRID",
                "rerankingConfiguration": reranking,
            } }),
        ),
        (
            "MANAGED",
            json!({ "managedSearchConfiguration": {
                "numberOfResults": 5, "rerankingModelType": "CUSTOM",
                "rerankingConfiguration": reranking,
            } }),
        ),
    ] {
        let fake = fake(kind).await;
        let backend = fake.backend(&settings);
        backend.retrieve(KB, &request(), &call()).await.unwrap();
        assert_eq!(fake.searches()[0]["retrievalConfiguration"], expected);
    }
}

#[tokio::test]
async fn a_setting_that_is_refused_is_left_out_and_callers_are_told() {
    let settings = json!({ "rerank": RERANKER, "search_type": "hybrid" });
    let validation = |message| Reply::Error(400, "ValidationException", message);
    let denied = Reply::Error(
        403,
        "AccessDeniedException",
        "not authorized to perform: bedrock:Rerank",
    );
    let good = || results(&[result("Thirty days.", 0.5, &json!({}))]);
    let (rerank, search_type) = (
        Note::WithoutSetting("rerank"),
        Note::WithoutSetting("search_type"),
    );
    for (replies, notes) in [
        (
            vec![validation("HYBRID search type is not supported"), good()],
            vec![search_type.clone()],
        ),
        (
            vec![
                validation("The provided reranking model is not supported"),
                good(),
            ],
            vec![rerank.clone()],
        ),
        (vec![denied, good()], vec![rerank.clone()]),
        (
            vec![validation("something"), validation("something"), good()],
            vec![rerank, search_type],
        ),
    ] {
        let fake = fake("VECTOR").await;
        fake.on_retrieve(replies);
        let backend = fake.backend(&settings);
        let found = backend.retrieve(KB, &request(), &call()).await.unwrap();
        assert_eq!((found.passages.len(), found.notes), (1, notes));
    }
}

#[tokio::test]
async fn a_refusal_that_no_setting_explains_is_an_error() {
    let fake = fake("VECTOR").await;
    fake.on_retrieve([Reply::Error(400, "ValidationException", "bad filter")]);
    let backend = fake.backend(&json!({ "rerank": RERANKER }));
    let error = backend.retrieve(KB, &request(), &call()).await.unwrap_err();
    assert!(matches!(error, BackendError::Refused(_)), "{error}");
    assert_eq!(fake.searches().len(), 2);
}

#[tokio::test]
async fn a_knowledge_base_that_became_another_kind_is_asked_for_once_more() {
    let fake = fake("VECTOR").await;
    let backend = fake.backend(&json!({}));
    backend.retrieve(KB, &request(), &call()).await.unwrap();
    fake.is_of_type("MANAGED");
    fake.on_retrieve([
        Reply::Error(
            400,
            "ValidationException",
            "vectorSearchConfiguration is not supported for managed knowledge bases",
        ),
        results(&[]),
    ]);
    backend.retrieve(KB, &request(), &call()).await.unwrap();
    let last = fake.searches().pop().unwrap();
    assert!(last["retrievalConfiguration"]["managedSearchConfiguration"].is_object());
    assert_eq!(fake.asked(KB).len(), 2);

    fake.on_retrieve([Reply::Error(400, "ValidationException", "bad filter")]);
    let error = backend.retrieve(KB, &request(), &call()).await.unwrap_err();
    assert!(matches!(error, BackendError::Refused(_)), "{error}");
    assert_eq!((fake.asked(KB).len(), fake.searches().len()), (3, 4));
}

#[tokio::test]
async fn a_configured_kind_needs_no_right_to_ask() {
    let fake = FakeBedrock::start().await;
    fake.on_retrieve([results(&[])]);
    let backend = fake.backend(&json!({ "knowledge_base_type": "managed" }));
    backend.retrieve(KB, &request(), &call()).await.unwrap();
    assert!(fake.asked(KB).is_empty());
}

#[tokio::test]
async fn an_identifier_that_bedrock_cannot_have_is_not_asked_for() {
    let fake = fake("VECTOR").await;
    let backend = fake.backend(&json!({}));
    for id in [
        "",
        "KB12345678X",
        "KB/",
        "/DS",
        "KB/DS/X",
        "../KB",
        "KB 1",
        "知识",
    ] {
        let error = backend.retrieve(id, &request(), &call()).await.unwrap_err();
        assert!(
            matches!(error, BackendError::UnknownKnowledgeBase(_)),
            "{id}: {error}"
        );
    }
    assert!(fake.asked("").is_empty());
}

#[tokio::test]
async fn a_long_query_is_cut_and_callers_are_told() {
    let fake = fake("VECTOR").await;
    let backend = fake.backend(&json!({}));
    let request = RetrieveRequest {
        query: "年".repeat(QUERY_MAX_CHARS + 1),
        ..request()
    };
    let found = backend.retrieve(KB, &request, &call()).await.unwrap();
    let max_chars = QUERY_MAX_CHARS;
    assert_eq!(found.notes, [Note::QueryCut { max_chars }]);
    let asked = fake.searches()[0]["retrievalQuery"]["text"].clone();
    assert_eq!(asked.as_str().unwrap().chars().count(), max_chars);
}

/// Comparisons that Bedrock can make.
fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual, NoneOf, OneOf};
    let values = proptest::collection::vec(any::<i32>().prop_map(Value::from), 1..4);
    let comparison = (0..6, values).prop_map(|(operator, mut values)| match operator {
        0 => OneOf(values),
        1 => NoneOf(values),
        2 => Greater(values.remove(0)),
        3 => GreaterOrEqual(values.remove(0)),
        4 => Less(values.remove(0)),
        _ => LessOrEqual(values.remove(0)),
    });
    let condition = ("[a-z]{1,8}", comparison);
    let condition = condition.prop_map(|(field, comparison)| Condition { field, comparison });
    proptest::collection::vec(condition, 0..5)
}

proptest! {
    #[test]
    fn a_list_of_filters_has_two_members_or_more_and_none_is_lost(metadata in conditions()) {
        use aws_sdk_bedrockagentruntime::types::RetrievalFilter;
        let count: usize = metadata.iter().map(|condition| match &condition.comparison {
            Comparison::NoneOf(values) => values.len(),
            _ => 1,
        }).sum();
        let filters = Filters { metadata, ..Filters::default() };
        let names = raglan_engines::configuration::AttributeNames::default();
        match filters::translate(&filters, &names, None).unwrap() {
            None => prop_assert_eq!(count, 0),
            Some(RetrievalFilter::AndAll(members)) => {
                prop_assert!(count >= 2);
                prop_assert_eq!(members.len(), count);
            }
            Some(_) => prop_assert_eq!(count, 1),
        }
    }
}
