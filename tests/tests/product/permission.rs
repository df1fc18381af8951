//! What every kind of key may do with everything that can be asked for.

mod any_request;
mod table;
mod walk;

use std::collections::BTreeSet;

use raglan_core::key::PlainKey;
use raglan_core::tool::Tool;
use serde_json::{Value, json};

use self::table::anna;
use crate::support::{Answer, World, call, rpc};

/// A key of the right shape and checksum that nobody made.
const UNKNOWN_SEED: u64 = 77;

/// The answer without what the caller itself put into it.
fn without_echo(answer: &Answer) -> String {
    let body = answer.json();
    let uri = body.pointer("/error/data/uri").and_then(Value::as_str);
    let text = format!("{answer:?}");
    uri.map_or(text.clone(), |uri| text.replace(uri, "(uri)"))
}

#[tokio::test]
async fn a_prompt_that_a_key_may_not_use_and_one_that_is_not_there_are_the_same_bytes() {
    let world = World::start().await;
    let (full, none) = (
        world.full_key().await,
        world.key("key-none", |key| key.tools.clear()).await,
    );
    let get = |name: &str| {
        let arguments = json!({ "question": "leave?" });
        rpc(
            "prompts/get",
            json!({ "name": name, "arguments": arguments }),
        )
    };
    let absent = get("no_such_prompt").key(&full).send(&world).await;
    let forbidden = get("answer_from_knowledge_base")
        .key(&none)
        .send(&world)
        .await;
    assert_eq!(forbidden.code(), Some(-32602));
    assert_eq!(forbidden, absent);
}

#[tokio::test]
async fn a_document_that_is_not_there_and_one_that_is_out_of_scope_are_the_same_bytes() {
    let world = World::start().await;
    let key = world.key("key-anna", anna).await;
    let read = async |uri: &str| {
        let answer = rpc("resources/read", json!({ "uri": uri }))
            .key(&key)
            .send(&world)
            .await;
        (answer.code(), without_echo(&answer))
    };
    let absent = read("kb://anna-notes/documents/no-such").await;
    assert_eq!(absent.0, Some(-32002));
    assert_eq!(read("kb://bo-notes/documents/document-4").await, absent);
    assert_eq!(read("kb://no-such/documents/document-4").await, absent);
}

/// A call of the tool that touches this knowledge base.
fn call_about(tool: Tool, kb_id: &str) -> Value {
    match tool {
        Tool::Ask => json!({ "question": "leave?", "kb_id": kb_id }),
        Tool::Retrieve => json!({ "query": "leave", "kb_id": kb_id }),
        Tool::ListDocuments | Tool::GetKnowledgeBase => json!({ "kb_id": kb_id }),
        Tool::GetTask => json!({ "task_id": format!("task-{kb_id}") }),
        Tool::ListKnowledgeBases => json!({}),
    }
}

fn refusal(code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": code, "message": message } })
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
            let answer = call(tool.name(), call_about(tool, "script"))
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
        let request = call(tool.name(), call_about(tool, "anna-notes")).key(&key);
        assert_eq!(request.send(&missing).await.status, 503, "{tool}");
    }
    assert_eq!(missing.engine.calls(), 0);
}
