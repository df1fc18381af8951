//! Every kind of decision has its event, each event has the documented form, and what callers say is in
//! it only as far as the deployment and the key have it.

use std::collections::BTreeSet;

use raglan_core::audit::privacy::TextPolicy;
use raglan_core::audit::{AuditEvent, Decision};
use raglan_core::clock::Clock as _;
use raglan_core::key::PlainKey;
use raglan_core::key_record::RateLimit;
use raglan_core::random::SequenceRandom;
use serde_json::{Value, json};

use crate::support::{Behaviour, Request, World, call, rpc};

/// The schema in `docs/`, and the names of its fields.
fn schema() -> (jsonschema::Validator, BTreeSet<String>) {
    let text = include_str!("../../../docs/audit-event.schema.json");
    let schema: Value = serde_json::from_str(text).unwrap();
    let names = schema["properties"].as_object().unwrap().keys().cloned();
    let names = names.collect();
    (jsonschema::validator_for(&schema).unwrap(), names)
}

fn check_form(events: &[AuditEvent]) {
    let (schema, names) = schema();
    for event in events {
        let json = serde_json::to_value(event).unwrap();
        let problems: Vec<_> = schema.iter_errors(&json).map(|e| e.to_string()).collect();
        assert_eq!(problems, [""; 0], "{json}");
        for name in json.as_object().unwrap().keys() {
            assert!(names.contains(name), "{name} is not documented");
        }
    }
}

fn search(kb_id: &str) -> Request {
    call("retrieve", json!({ "query": "leave", "kb_id": kb_id }))
}

fn prompt(name: &str) -> Request {
    let arguments = json!({ "question": "leave" });
    rpc(
        "prompts/get",
        json!({ "name": name, "arguments": arguments }),
    )
}

fn read(uri: &str) -> Request {
    rpc("resources/read", json!({ "uri": uri }))
}

#[tokio::test]
async fn every_kind_of_decision_leaves_one_event_of_the_documented_form() {
    use Decision::{Allowed, Denied, Limited, Unauthenticated};
    let world = World::configured(|config| config.auth_failures_per_minute = 2).await;
    let full = world.full_key().await;
    let none = world.key("key-none", |key| key.tools.clear()).await;
    let slow = world
        .key("key-slow", |key| {
            key.rate_limit = Some(RateLimit {
                requests_per_minute: 1,
                burst: 1,
            });
        })
        .await;
    let poor = world
        .key("key-poor", |key| {
            key.daily_quotas = [("ask".to_owned(), 1)].into();
        })
        .await;
    let unknown = PlainKey::generate(&SequenceRandom::seeded(77)).unwrap();
    let engine = &world.engine;
    engine.order("bo-notes", Behaviour::Unavailable("down".to_owned()));
    engine.order("anna-notes", Behaviour::Panics);
    world.add_knowledge_base("slow", None, "scripted").await;
    engine.order("slow", Behaviour::Hangs);
    let ask = || call("ask", json!({ "question": "leave?", "kb_id": "script" }));
    let soon = || world.clock.now().epoch_ms() + 900;
    #[rustfmt::skip]
    let rows = [
        ("answered", search("script").key(&full), (Allowed, 200, None)),
        ("prompt", prompt("answer_from_knowledge_base").key(&full), (Allowed, 200, None)),
        ("resource", read("kb://script").key(&full), (Allowed, 200, None)),
        ("tool refused", search("script").key(&none), (Denied, 200, Some("tool_not_allowed"))),
        ("scope refused", search("no-such").key(&full), (Denied, 200, Some("knowledge_base_not_permitted"))),
        ("task refused", call("get_task", json!({ "task_id": "x" })).key(&full), (Denied, 200, Some("task_not_permitted"))),
        ("resource refused", read("kb://no-such").key(&full), (Denied, 0, Some("resource_not_permitted"))),
        ("prompt refused", prompt("answer_from_knowledge_base").key(&none), (Denied, 0, Some("prompt_not_permitted"))),
        ("origin refused", search("script").key(&full).header("origin", "https://evil.example"), (Denied, 403, Some("origin_not_allowed"))),
        ("unknown tool", call("no_such", json!({})).key(&full), (Allowed, 0, Some("unknown_tool"))),
        ("bad arguments", call("retrieve", json!({})).key(&full), (Allowed, 200, Some("invalid_arguments"))),
        ("bad cursor", call("list_documents", json!({ "cursor": "x" })).key(&full), (Allowed, 0, Some("invalid_cursor"))),
        ("no JSON", Request::post("{").key(&full), (Allowed, 400, Some("malformed_json"))),
        ("no request", Request::post("[]").key(&full), (Allowed, 400, Some("invalid_request"))),
        ("bad parameters", rpc("tools/call", json!([])).key(&full), (Allowed, 400, Some("invalid_params"))),
        ("no JSON declared", Request::post("{}").header("content-type", "text/plain").key(&full), (Allowed, 415, Some("unsupported_media_type"))),
        ("too large", Request::post(" ".repeat(300_000)).key(&full), (Allowed, 413, Some("body_too_large"))),
        ("engine away", search("bo-notes").key(&full), (Allowed, 200, Some("backend_unavailable"))),
        ("panic", search("anna-notes").key(&full), (Allowed, 200, Some("internal_error"))),
        ("timeout", search("slow").key(&full).deadline_epoch_ms(soon()), (Allowed, 200, Some("backend_timeout"))),
        ("within the rate", search("script").key(&slow), (Allowed, 200, None)),
        ("beyond the rate", search("script").key(&slow), (Limited, 429, Some("rate_limited"))),
        ("within the quota", ask().key(&poor), (Allowed, 200, None)),
        ("quota used up", ask().key(&poor), (Limited, 200, Some("daily_quota_used_up"))),
        ("unknown key", search("script").key(&unknown), (Unauthenticated, 401, Some("key_unknown"))),
        ("no key", search("script"), (Unauthenticated, 401, Some("key_missing"))),
        ("too many failures", search("script"), (Limited, 429, Some("too_many_failures"))),
    ];
    for (before, (kind, request, (decision, status, class))) in rows.into_iter().enumerate() {
        let answer = request.send(&world).await;
        let events = world.audit_events().await;
        assert_eq!(events.len(), before + 1, "{kind}");
        // Identifiers sort by time, and only the last second has this event.
        let event = events.iter().find(|event| event.at == world.clock.now());
        let event = event.unwrap();
        let class_seen = event.error_class.as_deref();
        assert_eq!((event.decision, class_seen), (decision, class), "{kind}");
        assert_eq!(event.http_status, answer.status, "{kind}");
        assert!(
            status == 0 || status == answer.status,
            "{kind}: {}",
            answer.status
        );
        let known = event.key_id.is_some();
        assert_eq!(
            known,
            !matches!(
                class,
                Some("key_unknown" | "key_missing" | "too_many_failures" | "origin_not_allowed")
            ),
            "{kind}"
        );
        check_form(std::slice::from_ref(event));
        if class == Some("key_unknown") {
            assert_eq!(event.key_fingerprint, Some(unknown.hash().fingerprint()));
            assert_eq!(event.parameters, None, "nobody is known who said anything");
        }
        // Short enough that the failures of the last rows are of one minute.
        world.clock.advance_seconds(1);
    }
}

#[tokio::test]
async fn each_element_of_a_batch_leaves_an_event_of_its_own() {
    let world = World::start().await;
    let key = world.full_key().await;
    let one = |id: u32, tool: &str, kb_id: &str| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": tool, "arguments": { "query": "leave", "kb_id": kb_id } } })
    };
    let batch = json!([
        one(1, "retrieve", "script"), one(2, "retrieve", "no-such"), one(3, "no_such", "script"),
        { "jsonrpc": "2.0", "id": 4, "method": "ping" }, { "jsonrpc": "2.0", "id": {} },
    ]);
    Request::post(batch.to_string())
        .key(&key)
        .send(&world)
        .await;
    let events = world.audit_events().await;
    check_form(&events);
    let mut seen: Vec<_> = events
        .iter()
        .map(|event| (event.batch_element, event.error_class.as_deref()))
        .collect();
    seen.sort_unstable();
    let expected = [
        (Some(0), None),
        (Some(1), Some("knowledge_base_not_permitted")),
        (Some(2), Some("unknown_tool")),
        (Some(4), Some("invalid_request")),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn words_are_kept_as_the_deployment_and_before_it_the_key_have_it() {
    const WORDS: &str = "quokka salary";
    let arguments = json!({ "query": WORDS, "kb_id": "script" });
    let size = arguments.to_string().len() as u64;
    for (deployment, own, expected) in [
        (TextPolicy::Plain, None, TextPolicy::Plain),
        (TextPolicy::Hash, None, TextPolicy::Hash),
        (TextPolicy::Drop, None, TextPolicy::Drop),
        (TextPolicy::Plain, Some(TextPolicy::Drop), TextPolicy::Drop),
        (TextPolicy::Drop, Some(TextPolicy::Plain), TextPolicy::Plain),
    ] {
        let world = World::configured(|config| config.audit_keeper.text = deployment).await;
        let key = world.key("key-own", |key| key.audit_text = own).await;
        let mut answered = Vec::new();
        for request in [
            call("retrieve", arguments.clone()),
            call("retrieve", arguments.clone()),
            call(
                "ask",
                json!({ "question": WORDS, "history": [WORDS], WORDS: 1 }),
            ),
            call(
                "retrieve",
                json!({ "query": "leave", "filters": { "metadata": { "of": WORDS } } }),
            ),
            call(WORDS, json!({})),
            rpc(WORDS, json!({})),
            read(&format!("kb://{WORDS}")),
            rpc(
                "prompts/get",
                json!({ "name": WORDS, "arguments": { "question": WORDS } }),
            ),
        ] {
            answered.push(request.key(&key).send(&world).await);
        }
        let events = world.audit_events().await;
        check_form(&events);
        let text = format!("{events:?}");
        assert_eq!(
            text.contains("quokka"),
            expected == TextPolicy::Plain,
            "{text}"
        );
        assert_eq!(
            text.contains("hmac:"),
            expected == TextPolicy::Hash,
            "{text}"
        );
        assert_eq!(
            text.contains("[dropped]"),
            expected == TextPolicy::Drop,
            "{text}"
        );
        let of_calls: Vec<_> = events
            .iter()
            .filter(|event| event.params_bytes == Some(size))
            .collect();
        assert_eq!(of_calls.len(), 2, "the size is that of what was sent");
        assert_eq!(
            of_calls[0].parameters, of_calls[1].parameters,
            "equal texts are found"
        );
        assert!(
            of_calls[0]
                .parameters
                .as_ref()
                .unwrap()
                .contains(r#""kb_id":"script""#)
        );
    }
}

#[tokio::test]
async fn an_event_of_a_key_with_very_many_knowledge_bases_and_long_words_is_cut_and_stored() {
    let world = World::configured(|config| config.audit_keeper.max_chars = 50_000).await;
    let key = world.full_key().await;
    // Six bytes of JSON a character.
    let words = "\u{1}".repeat(40_000);
    let arguments = json!({ "query": words, "kb_id": "script" });
    call("retrieve", arguments).key(&key).send(&world).await;
    let events = world.audit_events().await;
    check_form(&events);
    assert_eq!(events[0].cut, BTreeSet::from(["parameters".to_owned()]));
    assert!(events[0].params_bytes > Some(200_000));
}
