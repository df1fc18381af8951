//! No request whatsoever widens what a key may see.

use std::collections::{BTreeMap, BTreeSet};

use raglan_core::key::PlainKey;
use raglan_core::key_record::ScopeKind;
use raglan_core::random::{Random as _, SequenceRandom};
use raglan_core::tool::Tool;
use serde_json::{Map, Value, json};

use super::table::{anna, seen_in};
use crate::support::{Answer, Request, World, call, id, rpc};

const REQUESTS: usize = 600;

/// Draws repeatable numbers.
struct Dice(SequenceRandom);

impl Dice {
    fn below(&self, end: usize) -> usize {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes).unwrap();
        u32::from_le_bytes(bytes) as usize % end
    }

    fn one_of<'a, T>(&self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Values that somebody would try who wants to see more.
fn values(cursors: &[String]) -> Vec<Value> {
    let mut values = vec![
        json!("anna-notes"),
        json!("bo-notes"),
        json!("handbook"),
        json!("script"),
        json!(["bo-notes"]),
        json!(["anna-notes", "bo-notes"]),
        json!(["anna-notes", null]),
        json!([]),
        json!([[]]),
        json!(""),
        json!(" "),
        json!("*"),
        json!("all"),
        json!("%"),
        json!("../bo-notes"),
        json!("anna-notes/../bo-notes"),
        json!("bo-notes\u{0}"),
        json!("BO-NOTES"),
        json!("bo-notes "),
        json!("[\"bo-notes\"]"),
        json!("anna-notes,bo-notes"),
        json!("task-bo-notes"),
        json!("task-anna-notes"),
        json!("kb://bo-notes"),
        json!({ "kb_id": "bo-notes" }),
        json!({ "$ne": "" }),
        json!({ "owner": "bo" }),
        json!({ "metadata": { "kb_id": "bo-notes", "owner": ["bo", "anna"] } }),
        json!({ "domain": ["hr", "bo-notes"] }),
        json!("' OR 1=1 --"),
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1_000_000),
        json!(0.5),
        json!("leave"),
    ];
    values.extend(cursors.iter().map(|cursor| json!(cursor)));
    values
}

#[rustfmt::skip]
const NAMES: [&str; 24] = [
    "admin", "all", "cursor", "filters", "grant", "idempotency_key", "id", "kb_id", "kb_ids",
    "key_id", "knowledge_base", "limit", "min_score", "owner", "permissions", "query", "question",
    "scope", "session_id", "task_id", "tools", "top_k", "user", "user_id",
];
const HEADERS: [&str; 8] = [
    "cookie",
    "mcp-name",
    "mcp-session-id",
    "x-amzn-oidc-identity",
    "x-forwarded-user",
    "x-kb-id",
    "x-owner",
    "x-scope",
];
const URIS: [&str; 9] = [
    "kb://anna-notes",
    "kb://bo-notes",
    "kb://anna-notes/documents/document-3",
    "kb://bo-notes/documents/document-4",
    "kb://anna-notes/documents/../../bo-notes/documents/document-4",
    "kb://anna-notes/documents/document-4",
    "kb://*",
    "kb://",
    "kb://handbook/documents/doc-0",
];

/// A request of any kind. The arguments that the tool cannot do without are mostly there, so that many
/// requests get as far as the engines.
fn any_request(dice: &Dice, values: &[Value]) -> Request {
    let mut arguments = Map::new();
    for _ in 0..dice.below(4) {
        arguments.insert(
            (*dice.one_of(&NAMES)).to_owned(),
            dice.one_of(values).clone(),
        );
    }
    let usual = |name: &str, value: Value, arguments: &mut Map<String, Value>| {
        if dice.below(10) > 0 {
            arguments.insert(name.to_owned(), value);
        }
    };
    let mut request = match dice.below(10) {
        0 => rpc(
            "resources/read",
            json!({ "uri": dice.one_of(&URIS), "_meta": arguments }),
        ),
        1 => rpc("resources/list", Value::Object(arguments)),
        2 => {
            let reference = json!({ "type": "ref/resource", "uri": "kb://{kb_id}" });
            let prefix = dice.one_of(&["", "a", "b", "bo-", "*", "%"]);
            let argument = json!({ "name": "kb_id", "value": prefix });
            let context = json!({ "arguments": { "owner": "bo" } });
            let params = json!({ "ref": reference, "argument": argument, "context": context });
            rpc("completion/complete", params)
        }
        3 => {
            arguments.insert("question".to_owned(), json!("leave?"));
            let params = json!({ "name": "answer_from_knowledge_base", "arguments": arguments });
            rpc("prompts/get", params)
        }
        _ => {
            let tool = *dice.one_of(&Tool::ALL);
            let known: &[&str] = match tool {
                Tool::Ask => &[
                    "question",
                    "kb_id",
                    "session_id",
                    "top_k",
                    "filters",
                    "idempotency_key",
                ],
                Tool::Retrieve => &["query", "kb_id", "top_k", "filters", "min_score"],
                Tool::ListDocuments => &["kb_id", "cursor", "limit"],
                Tool::ListKnowledgeBases => &["cursor", "limit"],
                Tool::GetKnowledgeBase => &["kb_id"],
                Tool::GetTask => &["task_id"],
            };
            // Unknown names end the call early, so most calls have none.
            if dice.below(4) > 0 {
                arguments.retain(|name, _| known.contains(&name.as_str()));
            }
            match tool {
                Tool::Ask => usual("question", json!("leave?"), &mut arguments),
                Tool::Retrieve => usual("query", json!("leave"), &mut arguments),
                _ => {}
            }
            let meta = json!({ "owner": "bo", "key_id": "key-full", "kb_id": dice.one_of(values) });
            if dice.below(2) == 0 {
                call(tool.name(), Value::Object(arguments))
            } else {
                let params = json!({ "name": tool.name(), "arguments": arguments, "_meta": meta });
                rpc("tools/call", params)
            }
        }
    };
    for _ in 0..dice.below(3) {
        let value = dice.one_of(&["bo", "*", "bo-notes", "key-full", "mcp-session-1"]);
        request = request.header(dice.one_of::<&str>(&HEADERS), value);
    }
    if dice.below(4) == 0 {
        request = request.query("kb_id=bo-notes&owner=bo&scope=all");
    }
    request
}

/// What an answer shows, without what the caller itself put into it.
fn shown(answer: &Answer) -> String {
    let mut body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    if let Some(structured) = body.pointer_mut("/result/structuredContent") {
        let mut structured = structured.take();
        structured["session_id"] = Value::Null;
        return structured.to_string();
    }
    if body["error"].is_object() || body["result"]["isError"] == true {
        // Errors repeat names that the caller used; they must not hold text out of documents.
        let names = ["anna-notes", "bo-notes", "handbook", "script"];
        return names
            .iter()
            .fold(body.to_string(), |text, name| text.replace(name, "(name)"));
    }
    body.to_string()
}

#[tokio::test]
async fn no_argument_header_metadata_or_cursor_widens_a_scope() {
    let world = World::start().await;
    let full = world.full_key().await;
    let keys: Vec<(&str, PlainKey, BTreeSet<&str>)> = vec![
        (
            "key-anna",
            world.key("key-anna", anna).await,
            ["anna-notes"].into(),
        ),
        (
            "key-list",
            world
                .key("key-list", |key| {
                    key.scope = ScopeKind::List;
                    key.kb_ids = ["anna-notes", "script"].map(id).into();
                })
                .await,
            ["anna-notes", "script"].into(),
        ),
        (
            "key-foreign",
            world
                .key("key-foreign", |key| {
                    anna(key);
                    key.scope = ScopeKind::List;
                    key.kb_ids = ["bo-notes", "script"].map(id).into();
                })
                .await,
            BTreeSet::new(),
        ),
        (
            "key-nothing",
            world
                .key("key-nothing", |key| key.scope = ScopeKind::None)
                .await,
            BTreeSet::new(),
        ),
    ];
    let mut cursors = Vec::new();
    for (tool, arguments) in [
        ("list_knowledge_bases", json!({ "limit": 1 })),
        ("list_documents", json!({ "limit": 1 })),
        ("list_documents", json!({ "limit": 1, "kb_id": "script" })),
    ] {
        let page = call(tool, arguments)
            .key(&full)
            .send(&world)
            .await
            .structured();
        cursors.push(page["next_cursor"].as_str().unwrap().to_owned());
    }
    let values = values(&cursors);
    let dice = Dice(SequenceRandom::seeded(20_261_130));
    let mut showed_something = 0;
    for number in 0..REQUESTS {
        let (key_id, key, visible) = dice.one_of(&keys);
        let request = any_request(&dice, &values);
        let answer = request.clone().key(key).send(&world).await;
        let seen = seen_in(&shown(&answer));
        assert!(
            seen.is_subset(visible),
            "{number}: {key_id} sees {seen:?} by {request:?}: {answer:?}"
        );
        showed_something += usize::from(!seen.is_empty());
    }
    assert!(
        showed_something > REQUESTS / 10,
        "only {showed_something} answers showed anything"
    );

    let visible: BTreeMap<_, _> = keys.iter().map(|(id, _, visible)| (*id, visible)).collect();
    let mut asked_something = 0;
    for event in world.audit_events().await {
        let Some(visible) = event.key_id.as_deref().and_then(|id| visible.get(id)) else {
            continue;
        };
        let mut asked = event.knowledge_bases.iter();
        assert!(
            asked.all(|kb_id| visible.contains(kb_id.as_str())),
            "{event:?}"
        );
        asked_something += usize::from(!event.knowledge_bases.is_empty());
    }
    assert!(
        asked_something > REQUESTS / 20,
        "only {asked_something} calls asked anything"
    );
    println!("{REQUESTS} requests, {showed_something} showed something of a knowledge base");
}
