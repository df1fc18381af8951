//! What operators can follow a call by: its trace, and one line in the log.

use raglan_core::key::PlainKey;
use raglan_core::random::SequenceRandom;
use serde_json::{Value, json};
use tracing::Level;

use crate::support::message::REQUEST_ID;
use crate::support::{Behaviour, World, call, capture_own_log, rpc};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The lines of the log with this message.
fn lines(log: &str, message: &str) -> Vec<Value> {
    let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
    let has_message = |line: &Value| line["message"] == message;
    lines.filter(has_message).collect()
}

#[tokio::test]
async fn a_callers_trace_reaches_the_engine_the_trail_and_the_log() {
    let world = World::start().await;
    let key = world.full_key().await;
    let log = capture_own_log(Level::INFO);
    let arguments = json!({ "query": "leave", "kb_id": "script" });
    call("retrieve", arguments)
        .key(&key)
        .header("traceparent", &format!("00-{TRACE}-00f067aa0ba902b7-01"))
        .send(&world)
        .await
        .structured();
    let sent = world.engine.traceparents();
    assert_eq!(sent.len(), 1);
    let sent = sent[0].as_deref().unwrap();
    assert!(sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-01"));
    assert!(!sent.contains("00f067aa0ba902b7"), "raglan is the parent");
    let events = world.audit_events().await;
    assert_eq!(events[0].trace_id.as_deref(), Some(TRACE));
    assert_eq!(lines(&log.text(), "call")[0]["trace_id"], TRACE);
}

#[tokio::test]
async fn lambdas_trace_is_taken_where_the_caller_has_none() {
    let world = World::start().await;
    let key = world.full_key().await;
    let root = "Root=1-4bf92f35-77b34da6a3ce929d0e0e4736;Parent=53995c3f42cd8ad8;Sampled=0";
    let request = call("list_knowledge_bases", json!({})).key(&key);
    request.header("x-amzn-trace-id", root).send(&world).await;
    let events = world.audit_events().await;
    assert_eq!(events[0].trace_id.as_deref(), Some(TRACE));
}

#[tokio::test]
async fn each_call_is_one_line_that_names_request_key_tool_and_decision() {
    let world = World::start().await;
    let key = world.key("key-anna", |_| {}).await;
    let log = capture_own_log(Level::INFO);
    let arguments = json!({ "query": "a question that nobody else reads" });
    call("retrieve", arguments).key(&key).send(&world).await;
    let unknown = PlainKey::generate(&SequenceRandom::seeded(99)).unwrap();
    rpc("tools/list", json!({}))
        .key(&unknown)
        .send(&world)
        .await;
    let text = log.text();
    let calls = lines(&text, "call");
    assert_eq!(calls.len(), 2, "{text}");
    for (name, value) in [
        ("request_id", json!(REQUEST_ID)),
        ("key_id", json!("key-anna")),
        ("tool", json!("retrieve")),
        ("decision", json!("allowed")),
        ("status", json!(200)),
        ("level", json!("INFO")),
    ] {
        assert_eq!(calls[0][name], value, "{name}");
    }
    assert!(calls[0]["duration_ms"].is_u64() && calls[0]["trace_id"].is_string());
    assert_eq!(calls[1]["decision"], "unauthenticated");
    assert_eq!(calls[1]["error_class"], "key_unknown");
    assert_eq!(calls[1].get("key_id"), None);
    assert!(!text.contains("nobody else reads"), "{text}");
}

#[tokio::test]
async fn a_failed_call_is_one_error_and_every_line_about_it_names_the_request() {
    let world = World::start().await;
    let key = world.full_key().await;
    let cause = Behaviour::Unavailable("connection refused".to_owned());
    world.engine.order("script", cause);
    let log = capture_own_log(Level::WARN);
    let arguments = json!({ "query": "leave", "kb_id": "script" });
    call("retrieve", arguments).key(&key).send(&world).await;
    let text = log.text();
    let told: Vec<_> = text
        .lines()
        .filter(|line| line.contains("connection refused"))
        .collect();
    let errors = told.iter().filter(|line| line.contains("\"ERROR\""));
    assert_eq!(errors.count(), 1, "{text}");
    assert!(told.iter().all(|line| line.contains(REQUEST_ID)), "{text}");
}
