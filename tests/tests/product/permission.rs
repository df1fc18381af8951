//! Every tool with every kind of key.

use std::collections::BTreeSet;

use raglan_core::key::PlainKey;
use raglan_core::key_record::{KeyRecord, ScopeKind};
use raglan_core::tool::Tool;
use serde_json::{Value, json};

use crate::support::{Answer, World, call, id, rpc};

const DAY_SECONDS: i64 = 86_400;
/// A key of the right shape and checksum that nobody made.
const UNKNOWN_SEED: u64 = 77;

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// The same 401 as without a key.
    Unauthenticated,
    /// The tool is refused, whatever the arguments.
    ToolRefused,
    /// The tool may be called; these knowledge bases can be seen, and no other.
    Sees(&'static [&'static str]),
}

/// A kind of key: its name, what distinguishes it, and what it may do with every tool.
type Kind = (&'static str, fn(&mut KeyRecord), Expected);

const EVERYTHING: &[&str] = &["anna-notes", "bo-notes", "handbook", "script"];

fn list(record: &mut KeyRecord, ids: &[&str]) {
    record.scope = ScopeKind::List;
    record.kb_ids = ids.iter().map(|name| id(name)).collect();
}

fn anna(record: &mut KeyRecord) {
    record.owner = Some("anna".to_owned());
}

/// Every kind of stored key.
const KINDS: [Kind; 18] = [
    (
        "disabled",
        |key| key.enabled = false,
        Expected::Unauthenticated,
    ),
    (
        "expired",
        |key| key.expires_at = Some(key.created_at),
        Expected::Unauthenticated,
    ),
    (
        "revoked",
        |key| key.revoked_at = Some(key.created_at),
        Expected::Unauthenticated,
    ),
    (
        "replaced",
        |key| key.replaced_by = Some("another".into()),
        Expected::Unauthenticated,
    ),
    (
        "replaced, grace over",
        |key| {
            key.replaced_by = Some("another".into());
            key.grace_ends_at = Some(key.created_at);
        },
        Expected::Unauthenticated,
    ),
    (
        "replaced, in grace",
        |key| {
            key.replaced_by = Some("another".into());
            key.grace_ends_at = Some(key.created_at.plus_seconds(DAY_SECONDS));
        },
        Expected::Sees(EVERYTHING),
    ),
    (
        "expires tomorrow",
        |key| key.expires_at = Some(key.created_at.plus_seconds(DAY_SECONDS)),
        Expected::Sees(EVERYTHING),
    ),
    ("no tools", |key| key.tools.clear(), Expected::ToolRefused),
    (
        "system, scope none",
        |key| key.scope = ScopeKind::None,
        Expected::Sees(&[]),
    ),
    ("system, scope all", |_| {}, Expected::Sees(EVERYTHING)),
    (
        "system, empty list",
        |key| list(key, &[]),
        Expected::Sees(&[]),
    ),
    (
        "system, list",
        |key| list(key, &["bo-notes", "script", "no-such"]),
        Expected::Sees(&["bo-notes", "script"]),
    ),
    (
        "owned, scope none",
        |key| {
            anna(key);
            key.scope = ScopeKind::None;
        },
        Expected::Sees(&[]),
    ),
    ("owned, scope all", anna, Expected::Sees(&["anna-notes"])),
    (
        "owned, list of everything",
        |key| {
            anna(key);
            list(key, EVERYTHING);
        },
        Expected::Sees(&["anna-notes"]),
    ),
    (
        "owned, list of others'",
        |key| {
            anna(key);
            list(key, &["bo-notes", "handbook"]);
        },
        Expected::Sees(&[]),
    ),
    (
        "owner without knowledge bases",
        |key| key.owner = Some("nobody".into()),
        Expected::Sees(&[]),
    ),
    (
        "owner without a name",
        |key| key.owner = Some(String::new()),
        Expected::Sees(&[]),
    ),
];

/// A call of the tool that touches this knowledge base. A new tool does not compile without its rows.
fn call_about(tool: Tool, kb_id: &str) -> (Value, &'static str) {
    const KNOWLEDGE_BASE: &str = "knowledge base not found or not permitted";
    match tool {
        Tool::Ask => (
            json!({ "question": "leave?", "kb_id": kb_id }),
            KNOWLEDGE_BASE,
        ),
        Tool::Retrieve => (json!({ "query": "leave", "kb_id": kb_id }), KNOWLEDGE_BASE),
        Tool::ListDocuments | Tool::GetKnowledgeBase => (json!({ "kb_id": kb_id }), KNOWLEDGE_BASE),
        Tool::GetTask => (
            json!({ "task_id": format!("task-{kb_id}") }),
            "task not found",
        ),
        // Cannot be asked about one: what it lists is checked instead.
        Tool::ListKnowledgeBases => (json!({}), KNOWLEDGE_BASE),
    }
}

/// A call that names no knowledge base, for the tools that can do without.
fn call_about_everything(tool: Tool) -> Option<Value> {
    match tool {
        Tool::Ask => Some(json!({ "question": "leave?" })),
        Tool::Retrieve => Some(json!({ "query": "leave" })),
        Tool::ListDocuments | Tool::ListKnowledgeBases => Some(json!({})),
        Tool::GetKnowledgeBase | Tool::GetTask => None,
    }
}

/// The knowledge bases whose content or name is in a result.
fn knowledge_bases_in(structured: &Value) -> BTreeSet<String> {
    let name = if structured["items"][0].get("kb_id").is_some() {
        "kb_id"
    } else {
        "id"
    };
    let items = structured["items"].as_array().cloned().unwrap_or_default();
    items
        .iter()
        .map(|item| item[name].as_str().unwrap().to_owned())
        .collect()
}

fn refusal(code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": code, "message": message } })
}

async fn no_key(world: &World, tool: Tool) -> Answer {
    call(tool.name(), call_about(tool, "script").0)
        .send(world)
        .await
}

#[tokio::test]
async fn every_tool_decides_for_every_kind_of_key_as_the_table_says() {
    let world = World::start().await;
    for (kind, change, expected) in KINDS {
        let key = world.key(kind, change).await;
        for tool in Tool::ALL {
            check_named(&world, kind, &key, tool, expected).await;
            check_unnamed(&world, kind, &key, tool, expected).await;
        }
    }
}

/// Calls that name one knowledge base: the four that exist and one that does not.
async fn check_named(world: &World, kind: &str, key: &PlainKey, tool: Tool, expected: Expected) {
    let mut refusals = BTreeSet::new();
    for kb_id in EVERYTHING.iter().chain(&["no-such"]) {
        let (arguments, denial) = call_about(tool, kb_id);
        let asked_before = world.engine.calls();
        let answer = call(tool.name(), arguments).key(key).send(world).await;
        let row = format!("{kind}: {tool} {kb_id}: {}", answer.body);
        match expected {
            Expected::Unauthenticated => assert_eq!(answer, no_key(world, tool).await, "{row}"),
            Expected::ToolRefused => {
                assert_eq!(answer.json(), refusal(-32001, "tool not allowed"), "{row}");
                assert_eq!(answer.status, 200);
            }
            Expected::Sees(visible) if tool == Tool::ListKnowledgeBases => {
                let seen = knowledge_bases_in(&answer.structured());
                assert_eq!(
                    seen,
                    visible.iter().map(ToString::to_string).collect(),
                    "{row}"
                );
            }
            Expected::Sees(visible) if visible.contains(kb_id) => {
                assert!(
                    answer.structured().to_string().contains(kb_id) || tool == Tool::Ask,
                    "{row}"
                );
                continue;
            }
            Expected::Sees(_) => {
                assert_eq!(answer.json(), refusal(-32001, denial), "{row}");
                assert_eq!(answer.status, 200);
                refusals.insert(format!("{answer:?}"));
            }
        }
        assert_eq!(
            world.engine.calls(),
            asked_before,
            "no engine is asked: {row}"
        );
    }
    assert!(
        refusals.len() <= 1,
        "forbidden and absent are the same bytes: {refusals:?}"
    );
}

/// Calls that name none use the whole scope, and never more.
async fn check_unnamed(world: &World, kind: &str, key: &PlainKey, tool: Tool, expected: Expected) {
    let Some(arguments) = call_about_everything(tool) else {
        return;
    };
    let answer = call(tool.name(), arguments).key(key).send(world).await;
    let row = format!("{kind}: {tool} without kb_id: {}", answer.body);
    match expected {
        Expected::Unauthenticated => assert_eq!(answer, no_key(world, tool).await, "{row}"),
        Expected::ToolRefused => assert_eq!(answer.code(), Some(-32001), "{row}"),
        Expected::Sees(visible) if visible.is_empty() && tool != Tool::ListKnowledgeBases => {
            let message = "knowledge base not found or not permitted";
            assert_eq!(answer.json(), refusal(-32001, message), "{row}");
        }
        Expected::Sees(visible) => {
            let structured = answer.structured();
            if tool == Tool::Ask {
                let sources = structured["sources"].as_array().unwrap();
                let all = sources
                    .iter()
                    .all(|s| visible.contains(&s["kb_id"].as_str().unwrap()));
                assert!(all, "{row}");
            } else {
                let seen = knowledge_bases_in(&structured);
                assert_eq!(
                    seen,
                    visible.iter().map(ToString::to_string).collect(),
                    "{row}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_key_with_one_tool_may_call_that_tool_and_no_other() {
    let world = World::start().await;
    for granted in Tool::ALL {
        let key = world
            .key(&format!("only-{granted}"), |key| {
                key.tools = [granted].into();
            })
            .await;
        for tool in Tool::ALL {
            let answer = call(tool.name(), call_about(tool, "script").0)
                .key(&key)
                .send(&world)
                .await;
            if tool == granted {
                answer.structured();
            } else {
                assert_eq!(answer.json(), refusal(-32001, "tool not allowed"));
                let named = Tool::ALL
                    .iter()
                    .any(|other| answer.body.contains(other.name()));
                assert!(!named, "no word about other tools: {}", answer.body);
            }
        }
    }
}

#[tokio::test]
async fn every_presented_text_that_is_no_good_key_gets_the_same_401() {
    let world = World::start().await;
    let good = world.full_key().await;
    let expected = rpc("tools/list", json!({})).send(&world).await;
    assert_eq!(expected.status, 401);
    let unknown =
        PlainKey::generate(&raglan_core::random::SequenceRandom::seeded(UNKNOWN_SEED)).unwrap();
    let text = good.reveal();
    let mistyped = format!(
        "{}{}",
        &text[..52],
        if text.ends_with('0') { '1' } else { '0' }
    );
    let oversized = "x".repeat(4_000);
    for header in [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        text.to_owned(),
        format!("Basic {text}"),
        format!("Bearer {}", unknown.reveal()),
        format!("Bearer {mistyped}"),
        format!("Bearer {}", &text[..52]),
        format!("Bearer {text}x"),
        format!("Bearer {text}, Bearer {text}"),
        format!("Bearer {text},Bearer {}", unknown.reveal()),
        format!("Bearer {oversized}"),
        "Bearer rgl_".to_owned(),
        "Bearer ключ-ключ-ключ".to_owned(),
        "Bearer a-foreign-key-of-some-length".to_owned(),
    ] {
        let request = rpc("tools/list", json!({})).header("authorization", &header);
        assert_eq!(request.send(&world).await, expected, "{header}");
    }
    let in_query = rpc("tools/list", json!({})).query(&format!("key={text}&access_token={text}"));
    assert_eq!(in_query.send(&world).await, expected);
    let in_body = rpc("tools/list", json!({ "key": text, "authorization": text }));
    assert_eq!(in_body.send(&world).await, expected);
}

#[tokio::test]
async fn a_malformed_key_is_refused_without_asking_the_store() {
    let world = World::start().await;
    let good = world.full_key().await;
    world.dynamodb.close();
    let mut text = good.reveal().to_owned();
    let last = if text.ends_with('0') { "1" } else { "0" };
    text.replace_range(52.., last);
    for presented in [text.as_str(), "rgl_short", "short"] {
        let request =
            rpc("ping", json!({})).header("authorization", &format!("Bearer {presented}"));
        assert_eq!(request.send(&world).await.status, 401, "{presented}");
    }
    assert_eq!(
        rpc("ping", json!({})).key(&good).send(&world).await.status,
        503
    );
}

#[tokio::test]
async fn a_key_that_is_revoked_is_dead_on_the_next_request() {
    let world = World::start().await;
    let key = world.full_key().await;
    let list = || rpc("tools/list", json!({})).key(&key);
    assert_eq!(list().send(&world).await.status, 200);
    world
        .change_key(&key, |record| record.revoked_at = Some(record.created_at))
        .await;
    let answer = list()
        .header("mcp-session-id", "mcp-session-of-before")
        .send(&world)
        .await;
    assert_eq!(answer, rpc("tools/list", json!({})).send(&world).await);
}

#[tokio::test]
async fn a_key_dies_at_the_moment_of_its_expiry_and_a_replaced_one_at_the_end_of_its_grace() {
    let world = World::start().await;
    let expiring = world
        .key("expiring", |key| {
            key.expires_at = Some(key.created_at.plus_seconds(10));
        })
        .await;
    let replaced = world
        .key("replaced", |key| {
            key.replaced_by = Some("new".into());
            key.grace_ends_at = Some(key.created_at.plus_seconds(10));
        })
        .await;
    world.clock.advance_seconds(9);
    for key in [&expiring, &replaced] {
        assert_eq!(
            rpc("ping", json!({})).key(key).send(&world).await.status,
            200
        );
    }
    world.clock.advance_seconds(1);
    for key in [&expiring, &replaced] {
        assert_eq!(
            rpc("ping", json!({})).key(key).send(&world).await.status,
            401
        );
    }
}

#[tokio::test]
async fn a_cursor_is_worth_nothing_for_another_key_or_another_question() {
    let world = World::start().await;
    let (one, two) = (world.full_key().await, world.key("key-two", |_| {}).await);
    let arguments = json!({ "kb_id": "handbook", "limit": 1 });
    let page = call("list_documents", arguments)
        .key(&one)
        .send(&world)
        .await
        .structured();
    let cursor = page["next_cursor"].as_str().unwrap();
    let next = |kb_id: Value| json!({ "kb_id": kb_id, "limit": 1, "cursor": cursor });

    let same = call("list_documents", next("handbook".into()))
        .key(&one)
        .send(&world)
        .await;
    assert_ne!(same.structured()["items"], page["items"]);
    let foreign = call("list_documents", next("handbook".into()))
        .key(&two)
        .send(&world)
        .await;
    assert_eq!(foreign.code(), Some(-32602));
    let other = call("list_documents", next("script".into()))
        .key(&one)
        .send(&world)
        .await;
    assert_eq!(other.code(), Some(-32602));
    let other = call("list_knowledge_bases", json!({ "cursor": cursor }))
        .key(&one)
        .send(&world)
        .await;
    assert_eq!(other.code(), Some(-32602));
}

#[tokio::test]
async fn paging_shows_everything_once_and_nothing_twice() {
    let world = World::start().await;
    let key = world.full_key().await;
    for (tool, expected) in [("list_documents", 7), ("list_knowledge_bases", 4)] {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let arguments = json!({ "limit": 2, "cursor": cursor });
            let page = call(tool, arguments)
                .key(&key)
                .send(&world)
                .await
                .structured();
            for item in page["items"].as_array().unwrap() {
                seen.push(format!("{}/{}", item["kb_id"], item["id"]));
            }
            match page["next_cursor"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
        assert_eq!(seen.len(), expected, "{tool}: {seen:?}");
        assert_eq!(
            seen.iter().collect::<BTreeSet<_>>().len(),
            expected,
            "{tool}: {seen:?}"
        );
    }
}

#[tokio::test]
async fn an_owner_whose_knowledge_bases_cannot_be_read_gets_a_503_and_no_engine_is_asked() {
    let world = World::start().await;
    let key = world.key("key-anna", anna).await;
    let missing = World::configured(|config| config.catalog_table = "NoSuchTable".to_owned()).await;
    let record = world.keys().find(&key.hash()).await.unwrap().unwrap();
    missing.keys().put_new(&record).await.unwrap();
    for tool in Tool::ALL {
        let request = call(tool.name(), call_about(tool, "anna-notes").0).key(&key);
        assert_eq!(request.send(&missing).await.status, 503, "{tool}");
    }
    assert_eq!(missing.engine.calls(), 0);
}
