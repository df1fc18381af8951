//! The two languages: only texts differ. Codes, field names, statuses, headers and everything that comes
//! from documents are the same.

use insta::assert_json_snapshot;
use raglan_core::key::PlainKey;
use raglan_core::key_record::ScopeKind;
use raglan_core::random::SequenceRandom;
use raglan_texts::Language;
use serde_json::{Value, json};

use crate::support::{Request, World, call, id, rpc};

async fn chinese() -> World {
    World::configured(|config| config.language = Language::Chinese).await
}

/// Every request whose answer holds a text of ours, at least one of each kind.
fn requests(key: &PlainKey) -> Vec<Request> {
    let good = [
        rpc("tools/list", json!({})),
        rpc("prompts/list", json!({})),
        rpc("resources/list", json!({})),
        rpc("resources/templates/list", json!({})),
        rpc(
            "initialize",
            json!({ "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" } }),
        ),
        rpc(
            "prompts/get",
            json!({ "name": "answer_from_knowledge_base",
                "arguments": { "question": "How much leave?", "kb_id": "script" } }),
        ),
        call("retrieve", json!({ "query": "leave", "kb_id": "script" })),
        call("retrieve", json!({ "query": "zebra", "kb_id": "handbook" })),
        call(
            "ask",
            json!({ "question": "Who likes zebras?", "kb_id": "handbook", "session_id": "s" }),
        ),
        // Wrong in every way that an argument can be.
        call(
            "retrieve",
            json!({ "query": "", "kb_id": [1], "top_k": 0, "min_score": "x", "other": 1,
            "filters": { "updated_after": "soon", "domain": 1, "metadata": { "a": { "b": 1 } } } }),
        ),
        call("retrieve", json!({ "filters": 7 })),
        call("get_knowledge_base", json!({ "kb_id": "no-such" })),
        call("get_task", json!({ "task_id": "no-such" })),
        call("no_such_tool", json!({})),
        call("list_documents", json!({ "cursor": "no-such" })),
        rpc("tools/list", json!({ "cursor": "x" })),
        rpc("prompts/get", json!({ "name": "no_such_prompt" })),
        rpc("resources/read", json!({ "uri": "kb://no-such" })),
        rpc(
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "no_such" },
            "argument": { "name": "kb_id", "value": "" } }),
        ),
        rpc("tools/call", json!({ "name": 7 })),
        rpc("tools/call", json!([])),
        Request::post("{"),
        Request::post("[]"),
        Request::post("x".repeat(300_000)),
        rpc("tools/list", json!({})).header("content-type", "text/plain"),
    ];
    let mut requests: Vec<Request> = good.into_iter().map(|request| request.key(key)).collect();
    requests.extend([
        rpc("tools/list", json!({})),
        Request::new("GET", "/mcp"),
        Request::new("GET", "/elsewhere"),
        rpc("tools/list", json!({})).header("origin", "https://other.example"),
    ]);
    requests
}

/// The answer with `…` for every text that may be in the deployment's language.
fn skeleton(value: &Value) -> Value {
    const TEXTS: [&str; 9] = [
        "content",
        "description",
        "detail",
        "hint",
        "instructions",
        "message",
        "notice",
        "text",
        "title",
    ];
    match value {
        Value::Array(items) => items.iter().map(skeleton).collect(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                let is_text = TEXTS.contains(&name.as_str()) && value.is_string();
                let shown = if is_text {
                    "…".into()
                } else {
                    skeleton(value)
                };
                (name.clone(), shown)
            };
            Value::Object(fields.iter().map(field).collect())
        }
        other => other.clone(),
    }
}

/// Every text that [`skeleton`] leaves out.
fn has_chinese(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_chinese),
        Value::Object(fields) => fields.values().any(has_chinese),
        Value::String(text) => text.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c)),
        _ => false,
    }
}

#[tokio::test]
async fn only_texts_differ_between_the_languages() {
    let (english, chinese) = (World::start().await, chinese().await);
    let keys = (english.full_key().await, chinese.full_key().await);
    let pairs = requests(&keys.0).into_iter().zip(requests(&keys.1));
    for (at, (in_english, in_chinese)) in pairs.enumerate() {
        let expected = in_english.send(&english).await.shown();
        let answer = in_chinese.send(&chinese).await.shown();
        assert_eq!(
            skeleton(&answer),
            skeleton(&expected),
            "request {at}: {answer:#}"
        );
        assert!(!has_chinese(&expected), "request {at}: {expected:#}");
        let says_something = at != 2;
        assert_eq!(
            has_chinese(&answer),
            says_something,
            "request {at}: {answer:#}"
        );
    }
}

#[tokio::test]
async fn in_chinese_too_forbidden_and_absent_are_the_same_bytes() {
    let world = chinese().await;
    let key = world
        .key("key-script", |record| {
            record.scope = ScopeKind::List;
            record.kb_ids = [id("script")].into();
        })
        .await;
    let mut answers = Vec::new();
    for kb_id in ["bo-notes", "no-such"] {
        let request = call("get_knowledge_base", json!({ "kb_id": kb_id })).key(&key);
        answers.push(request.send(&world).await);
    }
    assert_eq!(answers[0], answers[1]);
    let tasks =
        ["task-bo-notes", "no-such"].map(|id| call("get_task", json!({ "task_id": id })).key(&key));
    assert_eq!(tasks[0].send(&world).await, tasks[1].send(&world).await);
    assert_json_snapshot!("refusal_in_chinese", answers[0].json());
}

#[tokio::test]
async fn in_chinese_too_every_401_is_the_same_bytes() {
    let world = chinese().await;
    let revoked = world
        .key("key-revoked", |record| {
            record.revoked_at = Some(record.created_at);
        })
        .await;
    let unknown = PlainKey::generate(&SequenceRandom::seeded(9)).unwrap();
    let ping = || rpc("ping", json!({}));
    let without_key = ping().send(&world).await;
    for request in [
        ping().key(&revoked),
        ping().key(&unknown),
        ping().header("authorization", "Bearer rgl_short"),
    ] {
        assert_eq!(request.send(&world).await, without_key);
    }
    assert_json_snapshot!("unauthorized_in_chinese", without_key.shown());
}

#[tokio::test]
async fn the_tools_are_described_in_chinese() {
    let world = chinese().await;
    let key = world.full_key().await;
    let answer = rpc("tools/list", json!({})).key(&key).send(&world).await;
    assert_json_snapshot!("tools_list_in_chinese", answer.shown());
}

#[tokio::test]
async fn hints_warnings_and_mistakes_are_told_in_chinese() {
    let world = chinese().await;
    let key = world.full_key().await;
    let nothing = call("retrieve", json!({ "query": "zebra", "kb_id": "handbook" }))
        .key(&key)
        .send(&world)
        .await;
    assert_json_snapshot!("hint_in_chinese", nothing.shown());
    let mistaken = call(
        "retrieve",
        json!({ "query": 1, "kb_ids": "script", "filters": { "updated_after": "soon" } }),
    )
    .key(&key)
    .send(&world)
    .await;
    assert_json_snapshot!("mistakes_in_chinese", mistaken.json());
    let prompt = rpc(
        "prompts/get",
        json!({ "name": "answer_from_knowledge_base", "arguments": { "question": "有多少天年假？" } }),
    );
    assert_json_snapshot!(
        "prompt_in_chinese",
        prompt.key(&key).send(&world).await.json()
    );
}
