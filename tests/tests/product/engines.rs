//! Engines behind configuration: whole requests into the function, and what goes out over the wire to an
//! engine that speaks `/v1/vector_stores`, whatever that engine then does.

use std::time::Duration;

use raglan_engines::configuration::parse;
use raglan_mcp::config::Config;
use serde_json::{Value, json};
use tracing::Level;

use crate::support::fake_engine::{Behaviour, FakeEngine};
use crate::support::{ENGINE_KEY, World, call, capture_own_log, rpc};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Configures one engine, `NAME-engine`, for each of these.
fn engines(servers: &[(&str, &FakeEngine)]) -> impl FnOnce(&mut Config) + use<> {
    let configured: serde_json::Map<String, Value> = servers
        .iter()
        .map(|(name, server)| {
            let engine = json!({ "type": "openai", "url": format!("{}/v1", server.url),
                "credential": "env:ENGINE_KEY", "request_timeout_seconds": 1 });
            (format!("{name}-engine"), engine)
        })
        .collect();
    move |config| {
        config.backends = parse(&Value::Object(configured).to_string()).unwrap();
        config.call_timeout = Duration::from_secs(6);
    }
}

/// A world with the embedded handbook, and one knowledge base for each of these servers.
async fn world_with(servers: &[(&str, &FakeEngine)]) -> World {
    let world = World::configured(engines(servers)).await;
    for (name, _) in servers {
        let kind = format!("{name}-engine");
        world.add_knowledge_base(name, None, &kind).await;
    }
    world
}

fn hit(id: &str, domain: &str, text: &str) -> Value {
    json!({ "file_id": id, "filename": format!("{id}.md"), "score": 0.75,
        "attributes": { "title": format!("Title of {id}"), "uri": format!("https://wiki.example/{id}"),
                        "page": 4, "updated_at": 1_796_026_500, "domain": domain },
        "content": [{ "type": "text", "text": text }] })
}

fn found(hits: &[Value]) -> Behaviour {
    Behaviour::json(
        &json!({ "object": "vector_store.search_results.page", "search_query": ["leave"],
        "data": hits, "has_more": false, "next_page": null }),
    )
}

/// The knowledge bases that the passages are from.
fn sources(found: &Value) -> Vec<&str> {
    let items = found["items"].as_array().unwrap();
    let mut sources: Vec<&str> = items
        .iter()
        .map(|item| item["kb_id"].as_str().unwrap())
        .collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}

#[tokio::test]
async fn an_engine_and_the_embedded_index_are_one_search() {
    let wiki = FakeEngine::start([found(&[hit(
        "leave",
        "hr",
        "Leave is asked for in advance.",
    )])]);
    let wiki = wiki.await;
    let world = world_with(&[("wiki", &wiki)]).await;
    let key = world.full_key().await;
    let arguments = json!({ "query": "annual leave", "kb_id": ["handbook", "wiki"], "top_k": 5 });
    let found = call("retrieve", arguments)
        .key(&key)
        .header("traceparent", &format!("00-{TRACE}-00f067aa0ba902b7-01"))
        .send(&world)
        .await
        .structured();
    assert_eq!(found["status"], "success", "{found}");
    assert_eq!(sources(&found), ["handbook", "wiki"]);
    let items = found["items"].as_array().unwrap();
    let leave = items.iter().find(|item| item["kb_id"] == "wiki").unwrap();
    assert_eq!(leave["metadata"]["title"], "Title of leave");
    assert_eq!(leave["metadata"]["page"], 4);
    assert_eq!(leave["metadata"]["updated_at"], "2026-11-30T08:15:00.000Z");

    let asked = wiki.last();
    assert_eq!(asked.line, "POST /v1/vector_stores/wiki/search");
    assert_eq!(
        asked.body,
        json!({ "query": "annual leave", "max_num_results": 5 })
    );
    assert_eq!(
        asked.headers["authorization"],
        format!("Bearer {ENGINE_KEY}")
    );
    assert!(asked.headers["traceparent"].starts_with(&format!("00-{TRACE}-")));
}

#[tokio::test]
async fn neither_the_callers_key_nor_its_hash_reaches_an_engine() {
    let wiki = FakeEngine::start([found(&[hit("leave", "hr", "Leave.")])]).await;
    let world = world_with(&[("wiki", &wiki)]).await;
    let key = world.full_key().await;
    for (tool, arguments) in [
        ("retrieve", json!({ "query": "leave", "kb_id": "wiki" })),
        ("ask", json!({ "question": "leave?", "kb_id": "wiki" })),
        ("list_documents", json!({ "kb_id": "wiki" })),
        ("get_knowledge_base", json!({ "kb_id": "wiki" })),
    ] {
        let by_other_header = call(tool, arguments)
            .key(&key)
            .header("x-api-key", key.reveal())
            .header("cookie", &format!("key={}", key.reveal()));
        by_other_header.send(&world).await;
    }
    rpc(
        "resources/read",
        json!({ "uri": "kb://wiki/documents/leave" }),
    )
    .key(&key)
    .send(&world)
    .await;
    let received = wiki.received();
    assert!(received.len() >= 5, "{received:?}");
    let everything = format!("{received:?}");
    for secret in [
        key.reveal().to_owned(),
        key.hash().as_str().to_owned(),
        "key-full".to_owned(),
    ] {
        assert!(!everything.contains(&secret), "{everything}");
    }
}

#[tokio::test]
async fn whatever_an_engine_does_the_others_answer_and_the_result_says_what_is_missing() {
    let good = FakeEngine::start([found(&[hit("leave", "hr", "Leave of the wiki.")])]).await;
    let refusal = Behaviour::status(401, &json!({ "error": { "message": ENGINE_KEY } }));
    let mut bad = Vec::new();
    for (name, behaviour) in [
        ("half", Behaviour::HalfABody),
        ("large", Behaviour::TenMegabytes),
        ("trickle", Behaviour::Trickle),
        ("hang", Behaviour::Hang),
        ("close", Behaviour::Close),
        ("page", Behaviour::html(200)),
        ("gateway", Behaviour::html(502)),
        ("refusal", refusal),
        ("nonsense", Behaviour::json(&json!({ "data": 7 }))),
    ] {
        bad.push((name, FakeEngine::start([behaviour]).await));
    }
    let mut servers: Vec<(&str, &FakeEngine)> = bad.iter().map(|(name, s)| (*name, s)).collect();
    servers.push(("wiki", &good));
    let world = world_with(&servers).await;
    let key = world.full_key().await;

    let mut kb_ids: Vec<&str> = servers.iter().map(|(name, _)| *name).collect();
    kb_ids.push("handbook");
    let (log, answer) = {
        let log = capture_own_log(Level::DEBUG);
        let arguments = json!({ "query": "leave", "kb_id": kb_ids, "top_k": 20 });
        let answer = call("retrieve", arguments).key(&key).send(&world).await;
        (log.text(), answer)
    };
    let found = answer.structured();
    assert_eq!(found["status"], "partial", "{found}");
    assert_eq!(sources(&found), ["handbook", "wiki"]);
    let warnings = found["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), bad.len(), "{warnings:?}");
    for (name, _) in &bad {
        let named = format!("`{name}`");
        let is_named = |warning: &Value| warning.as_str().unwrap().contains(&named);
        assert!(warnings.iter().any(is_named), "{name}: {warnings:?}");
    }
    for told in [&answer.body, &log] {
        assert!(!told.contains(ENGINE_KEY), "{told}");
        assert!(!told.contains(key.reveal()), "{told}");
    }
    assert!(!answer.body.contains("127.0.0.1"), "{}", answer.body);

    for (name, _) in &bad {
        let arguments = json!({ "query": "leave", "kb_id": name });
        let alone = call("retrieve", arguments).key(&key).send(&world).await;
        let (text, error) = alone.tool_error();
        assert!(!text.contains("127.0.0.1"), "{text}");
        assert_eq!(error["retryable"], *name != "refusal", "{name}: {error}");
    }
}

#[tokio::test]
async fn a_filter_goes_to_the_engine_and_is_checked_on_what_comes_back() {
    let wiki = FakeEngine::start([found(&[
        hit("leave", "hr", "Leave of the people."),
        hit("budget", "finance", "Leave of the money."),
    ])])
    .await;
    let world = world_with(&[("wiki", &wiki)]).await;
    let key = world.full_key().await;
    let search = async || {
        let filters = json!({ "domain": "hr", "updated_after": "2026-01-01" });
        let arguments = json!({ "query": "leave", "kb_id": "wiki", "filters": filters });
        call("retrieve", arguments).key(&key).send(&world).await
    };
    let found = search().await.structured();
    let items = found["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{found}");
    assert_eq!(items[0]["metadata"]["title"], "Title of leave");
    assert_eq!(found["status"], "partial");
    assert_eq!(
        wiki.last().body["filters"],
        json!({ "type": "and", "filters": [
            { "type": "eq", "key": "domain", "value": "hr" },
            { "type": "gt", "key": "updated_at", "value": 1_767_225_600 }
        ] })
    );

    wiki.order(Behaviour::status(
        400,
        &json!({ "error": { "message": "filters: key updated_at is not indexed" } }),
    ));
    let (text, error) = search().await.tool_error();
    assert_eq!(error["code"], "unsupported_filter", "{error}");
    assert!(
        text.contains("`wiki`") && text.contains("updated_at"),
        "{text}"
    );
}

#[tokio::test]
async fn documents_and_statistics_come_from_the_engine() {
    let wiki = FakeEngine::start([Behaviour::json(&json!({
        "id": "wiki", "object": "vector_store", "name": "Wiki",
        "file_counts": { "completed": 12, "total": 12 }, "data": [
            { "id": "leave", "status": "completed", "created_at": 1_796_026_500, "usage_bytes": 80,
              "attributes": { "title": "Leave.md" } }
        ], "has_more": false
    }))])
    .await;
    let world = world_with(&[("wiki", &wiki)]).await;
    let key = world.full_key().await;
    let listed = call("list_documents", json!({ "kb_id": "wiki" }))
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(listed["items"][0]["id"], "leave");
    assert_eq!(listed["items"][0]["format"], "markdown");
    let told = call("get_knowledge_base", json!({ "kb_id": "wiki" }))
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(told["document_count"], 12);
    assert_eq!(told["statistics"]["top_k_limit"], 50);
}
