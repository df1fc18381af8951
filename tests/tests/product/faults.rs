//! What fails behind the function, and what its callers notice of it.

use raglan_core::clock::Clock as _;
use serde_json::{Value, json};
use tracing::Level;

use crate::support::message::REQUEST_ID;
use crate::support::{Behaviour, World, call, capture_log, passage, rpc};

#[tokio::test]
async fn a_store_that_comes_back_answers_the_next_request() {
    let world = World::start().await;
    let key = world.full_key().await;
    let list = || call("list_knowledge_bases", json!({})).key(&key);
    assert_eq!(list().send(&world).await.status, 200);
    world.dynamodb.close();
    let answer = list().send(&world).await;
    assert_eq!(answer.status, 503);
    assert!(answer.headers.contains_key("retry-after"));
    world.dynamodb.open();
    list().send(&world).await.structured();
}

#[tokio::test]
async fn an_event_that_the_queue_does_not_take_is_in_the_log_in_full_and_the_caller_is_answered() {
    let world = World::start().await;
    let key = world.full_key().await;
    world.sqs.close();
    let log = capture_log(Level::INFO);
    call("retrieve", json!({ "query": "leave", "kb_id": "script" }))
        .key(&key)
        .send(&world)
        .await
        .structured();
    let lines: Vec<Value> = log
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let marked: Vec<_> = lines
        .iter()
        .filter(|line| line["marker"] == "AUDIT_NOT_SENT")
        .collect();
    assert_eq!(marked.len(), 1);
    let event: Value = serde_json::from_str(marked[0]["event"].as_str().unwrap()).unwrap();
    assert_eq!(event["tool"], "retrieve");
    assert_eq!(event["key_id"], "key-full");
    assert_eq!(event["request_id"], REQUEST_ID);
    assert_eq!(event["parameters"], r#"{"query":"leave","kb_id":"script"}"#);
    assert_eq!(event["decision"], "allowed");

    world.sqs.open();
    drop(log);
    call("retrieve", json!({ "query": "leave" }))
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(
        world.audit_events().await.len(),
        1,
        "the next event goes its usual way"
    );
}

#[tokio::test]
async fn an_engine_that_hangs_is_a_tool_error_before_the_platform_ends_the_call() {
    let world = World::start().await;
    let key = world.full_key().await;
    world.engine.order("script", Behaviour::Hangs);
    let deadline = world.clock.now().epoch_ms() + 1_000;
    for (tool, arguments) in [
        ("retrieve", json!({ "query": "leave", "kb_id": "script" })),
        ("ask", json!({ "question": "leave?", "kb_id": "script" })),
        ("list_documents", json!({ "kb_id": "script" })),
    ] {
        let request = call(tool, arguments).key(&key).deadline_epoch_ms(deadline);
        let (text, meta) = request.send(&world).await.tool_error();
        assert_eq!(meta["code"], "backend_timeout", "{tool}");
        assert_eq!(meta["retryable"], true, "{tool}");
        assert!(text.contains(REQUEST_ID), "{text}");
    }
    let events = world.audit_events().await;
    assert_eq!(events.len(), 3);
    assert!(
        events
            .iter()
            .all(|event| event.error_class.as_deref() == Some("backend_timeout"))
    );
}

#[tokio::test]
async fn one_hanging_engine_does_not_cost_the_answer_of_the_others() {
    let world = World::start().await;
    let key = world.full_key().await;
    world.engine.order("bo-notes", Behaviour::Hangs);
    let deadline = world.clock.now().epoch_ms() + 1_200;
    let arguments = json!({ "query": "leave", "kb_id": ["script", "bo-notes"] });
    let request = call("retrieve", arguments)
        .key(&key)
        .deadline_epoch_ms(deadline);
    let found = request.send(&world).await.structured();
    assert_eq!(found["status"], "partial");
    assert_eq!(found["items"].as_array().unwrap().len(), 2);
    let warning =
        "Knowledge base `bo-notes` did not answer in time; its passages are missing here.";
    assert_eq!(found["warnings"], json!([warning]));
}

#[tokio::test]
async fn a_panic_is_an_internal_error_of_one_call_and_the_process_lives_on() {
    let world = World::start().await;
    let key = world.full_key().await;
    let ask = || call("retrieve", json!({ "query": "leave", "kb_id": "script" })).key(&key);
    world.engine.order("script", Behaviour::Panics);
    let log = capture_log(Level::TRACE);
    for tool in ["retrieve", "ask", "list_documents", "get_knowledge_base"] {
        let arguments = match tool {
            "retrieve" => json!({ "query": "leave", "kb_id": "script" }),
            "ask" => json!({ "question": "leave?", "kb_id": "script" }),
            _ => json!({ "kb_id": "script" }),
        };
        let answer = call(tool, arguments).key(&key).send(&world).await;
        assert_eq!(
            (answer.status, answer.code()),
            (200, Some(-32603)),
            "{tool}"
        );
        assert_eq!(answer.json()["id"], 1);
        assert!(answer.body.contains(REQUEST_ID), "{}", answer.body);
        assert!(!answer.body.contains("secret-of-the-engine"));
    }
    assert!(
        !log.text().contains("secret-of-the-engine"),
        "a panic's text may hold a document"
    );
    world
        .engine
        .order("script", Behaviour::Passages(vec![passage(1, "leave")]));
    ask().send(&world).await.structured();
    let events = world.audit_events().await;
    let failed = events
        .iter()
        .filter(|e| e.error_class.as_deref() == Some("internal_error"));
    assert_eq!((events.len(), failed.count()), (5, 4));
}

#[tokio::test]
async fn one_failing_engine_of_several_is_a_warning_that_names_its_knowledge_base() {
    let world = World::start().await;
    let key = world.full_key().await;
    world
        .engine
        .order("bo-notes", Behaviour::Unavailable("down".to_owned()));
    let kb_ids = json!(["script", "bo-notes"]);
    let arguments = json!({ "query": "leave", "kb_id": kb_ids });
    let found = call("retrieve", arguments)
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(found["status"], "partial");
    assert_eq!(found["items"].as_array().unwrap().len(), 2);
    let warnings = found["warnings"].as_array().unwrap();
    assert!(
        warnings.len() == 1 && warnings[0].as_str().unwrap().contains("`bo-notes`"),
        "{found}"
    );

    let arguments =
        json!({ "question": "How many days of leave does every employee get?", "kb_id": kb_ids });
    let answered = call("ask", arguments)
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(answered["grounded"], true);
    assert!(
        answered["warnings"][0]
            .as_str()
            .unwrap()
            .contains("`bo-notes`"),
        "{answered}"
    );
}

#[tokio::test]
async fn failure_and_nothing_found_are_different_answers() {
    let world = World::start().await;
    let key = world.full_key().await;
    let cause = "https://10.0.0.7:9380/api?token=s3cret answered <html>403</html>";
    world
        .engine
        .order("script", Behaviour::Unavailable(cause.to_owned()));
    for (tool, arguments) in [
        ("retrieve", json!({ "query": "leave", "kb_id": "script" })),
        ("ask", json!({ "question": "leave?", "kb_id": "script" })),
        ("list_documents", json!({ "kb_id": "script" })),
    ] {
        let (text, meta) = call(tool, arguments)
            .key(&key)
            .send(&world)
            .await
            .tool_error();
        let expected = json!({
            "code": "backend_unavailable", "retryable": true, "request_id": REQUEST_ID
        });
        assert_eq!(meta, expected, "{tool}");
        for part in ["10.0.0.7", "s3cret", "html", "403", "://"] {
            assert!(!text.contains(part), "{tool}: {text}");
        }
    }
    world.engine.order("script", Behaviour::Empty);
    let arguments = json!({ "query": "leave", "kb_id": "script" });
    let found = call("retrieve", arguments)
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(
        (&found["status"], &found["items"]),
        (&json!("empty"), &json!([]))
    );
    assert!(found["hint"].is_string());
    let listed = call("list_documents", json!({ "kb_id": "script" }))
        .key(&key)
        .send(&world)
        .await;
    assert_eq!(listed.structured(), json!({ "items": [] }));
}

#[tokio::test]
async fn found_but_below_the_threshold_is_told_apart_from_not_there() {
    let world = World::start().await;
    let key = world.full_key().await;
    let search = async |query: &str, min_score: Value| {
        let arguments = json!({ "query": query, "kb_id": "handbook", "min_score": min_score });
        call("retrieve", arguments)
            .key(&key)
            .send(&world)
            .await
            .structured()
    };
    let found = search("leave", json!(null)).await;
    assert_eq!(
        (&found["status"], &found["below_threshold"]),
        (&json!("success"), &json!(0))
    );
    let below = search("leave", json!(1_000_000)).await;
    assert_eq!(below["status"], "empty");
    assert!(below["below_threshold"].as_u64().unwrap() > 0);
    let absent = search("zzzzzz", json!(null)).await;
    assert_eq!(
        (&absent["status"], &absent["below_threshold"]),
        (&json!("empty"), &json!(0))
    );
    assert_ne!(below["hint"], absent["hint"]);
}

#[tokio::test]
async fn a_filter_that_an_engine_cannot_apply_ends_the_call_and_is_named() {
    let world = World::start().await;
    let key = world.full_key().await;
    world
        .engine
        .order("bo-notes", Behaviour::UnsupportedFilter("metadata"));
    let arguments = json!({
        "query": "leave", "kb_id": ["script", "bo-notes"], "filters": { "metadata": { "a": 1 } }
    });
    let (text, meta) = call("retrieve", arguments)
        .key(&key)
        .send(&world)
        .await
        .tool_error();
    assert_eq!(meta["code"], "unsupported_filter");
    for named in ["`metadata`", "`bo-notes`"] {
        assert!(text.contains(named), "{text}");
    }
}

#[tokio::test]
async fn a_store_that_breaks_in_the_middle_of_a_call_is_a_503() {
    let world = World::configured(|config| config.catalog_table = "NoSuchTable".to_owned()).await;
    let key = world.full_key().await;
    let answer = call("retrieve", json!({ "query": "leave" }))
        .key(&key)
        .send(&world)
        .await;
    assert_eq!(answer.status, 503);
    assert!(answer.headers.contains_key("retry-after"));
    assert_eq!(
        rpc("tools/list", json!({}))
            .key(&key)
            .send(&world)
            .await
            .status,
        200
    );
    let events = world.audit_events().await;
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].http_status, events[0].error_class.as_deref()),
        (503, Some("store_unavailable"))
    );
}

#[tokio::test]
async fn everything_is_still_answered_when_the_queue_is_away() {
    let world = World::start().await;
    let key = world.full_key().await;
    world.sqs.close();
    assert_eq!(
        rpc("ping", json!({})).key(&key).send(&world).await.status,
        200
    );
    assert_eq!(rpc("ping", json!({})).send(&world).await.status, 401);
    assert_eq!(
        call("ask", json!({})).key(&key).send(&world).await.status,
        200
    );
}
