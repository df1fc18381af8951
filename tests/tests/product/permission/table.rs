//! The table of permissions: what can be asked for (rows), with which kinds of key (columns).

use std::collections::BTreeSet;

use raglan_core::key_record::{KeyRecord, ScopeKind};
use raglan_core::tool::Tool;
use serde_json::json;

use crate::support::{Request, call, id, rpc};

const DAY_SECONDS: i64 = 86_400;
/// The knowledge bases of the tests' world.
pub const EVERYTHING: &[&str] = &["anna-notes", "bo-notes", "handbook", "script"];
/// A knowledge base that nobody has made.
pub const ABSENT: &str = "no-such";
const KNOWLEDGE_BASE: &str = "knowledge base not found or not permitted";

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The same 401 as without a key.
    Unauthenticated,
    /// What needs a tool is refused, whatever the arguments.
    ToolRefused,
    /// These knowledge bases can be seen, and no other.
    Sees(&'static [&'static str]),
}

/// What a kind of key presents.
#[derive(Clone, Copy)]
pub enum Presents {
    /// No header.
    Nothing,
    /// This text, made out of a good key's.
    Text(fn(&str) -> String),
    /// A stored key, changed so; the tools are those that the row needs.
    Stored(fn(&mut KeyRecord, &[Tool])),
}

/// A kind of key: its name, what it presents, and what it may do with every row.
pub type Kind = (&'static str, Presents, Expected);

fn list(record: &mut KeyRecord, ids: &[&str]) {
    record.scope = ScopeKind::List;
    record.kb_ids = ids.iter().map(|name| id(name)).collect();
}

/// Makes the key one of Anna's.
pub fn anna(record: &mut KeyRecord) {
    record.owner = Some("anna".to_owned());
}

/// Every kind of key.
#[rustfmt::skip]
pub const KINDS: [Kind; 25] = {
    use Expected::{Sees, ToolRefused, Unauthenticated};
    use Presents::{Nothing, Stored, Text};
    [
        ("none", Nothing, Unauthenticated),
        ("malformed", Text(|good| good[..52].to_owned()), Unauthenticated),
        ("checksum off", Text(|good| format!("{}{}", &good[..52], if good.ends_with('0') { '1' } else { '0' })), Unauthenticated),
        ("unknown", Text(|good| good.chars().rev().collect()), Unauthenticated),
        ("disabled", Stored(|key, _| key.enabled = false), Unauthenticated),
        ("expired", Stored(|key, _| key.expires_at = Some(key.created_at)), Unauthenticated),
        ("revoked", Stored(|key, _| key.revoked_at = Some(key.created_at)), Unauthenticated),
        ("replaced", Stored(|key, _| key.replaced_by = Some("another".into())), Unauthenticated),
        ("replaced, grace over", Stored(|key, _| {
            key.replaced_by = Some("another".into());
            key.grace_ends_at = Some(key.created_at);
        }), Unauthenticated),
        ("replaced, in grace", Stored(|key, _| {
            key.replaced_by = Some("another".into());
            key.grace_ends_at = Some(key.created_at.plus_seconds(DAY_SECONDS));
        }), Sees(EVERYTHING)),
        ("expires tomorrow", Stored(|key, _| {
            key.expires_at = Some(key.created_at.plus_seconds(DAY_SECONDS));
        }), Sees(EVERYTHING)),
        ("no tools", Stored(|key, _| key.tools.clear()), ToolRefused),
        ("other tools", Stored(|key, needs| key.tools.retain(|tool| !needs.contains(tool))), ToolRefused),
        ("needed tools only", Stored(|key, needs| key.tools = needs.iter().copied().collect()), Sees(EVERYTHING)),
        ("system, scope none", Stored(|key, _| key.scope = ScopeKind::None), Sees(&[])),
        ("system, scope all", Stored(|_, _| {}), Sees(EVERYTHING)),
        ("system, empty list", Stored(|key, _| list(key, &[])), Sees(&[])),
        ("system, list", Stored(|key, _| list(key, &["bo-notes", "script", ABSENT])), Sees(&["bo-notes", "script"])),
        ("owned, scope none", Stored(|key, _| {
            anna(key);
            key.scope = ScopeKind::None;
        }), Sees(&[])),
        ("owned, scope all", Stored(|key, _| anna(key)), Sees(&["anna-notes"])),
        ("owned, list of everything", Stored(|key, _| {
            anna(key);
            list(key, EVERYTHING);
        }), Sees(&["anna-notes"])),
        ("owned, list of others'", Stored(|key, _| {
            anna(key);
            list(key, &["bo-notes", "handbook"]);
        }), Sees(&[])),
        ("foreign owner", Stored(|key, _| key.owner = Some("bo".into())), Sees(&["bo-notes"])),
        ("owner without knowledge bases", Stored(|key, _| key.owner = Some("nobody".into())), Sees(&[])),
        ("owner without a name", Stored(|key, _| key.owner = Some(String::new())), Sees(&[])),
    ]
};

/// How a row is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// A JSON-RPC error with this code and message.
    Error(i64, &'static str),
    /// A list with nothing in it.
    EmptyList,
    /// Nothing in this row can be refused in this way.
    Never,
}

/// What a permitted answer shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows {
    /// The knowledge base that was named.
    TheNamed,
    /// All that the key can see.
    AllVisible,
    /// Some of what the key can see.
    SomeVisible,
    /// No knowledge base.
    Nothing,
}

/// Something that a caller can ask for, in one form.
pub struct Row {
    /// The method and what it is applied to, as the server names them.
    pub surface: &'static str,
    /// Which form of the request this is.
    pub form: &'static str,
    /// One of these tools must be granted; empty when none is needed.
    pub needs: &'static [Tool],
    /// The request about this knowledge base; rows that name none ignore it.
    pub request: fn(&str) -> Request,
    /// Whether the request names a knowledge base.
    pub names_one: bool,
    /// The answer to a key without the tool.
    pub without_tool: Refused,
    /// The answer when the named knowledge base, or the whole scope, is not there for the key.
    pub out_of_scope: Refused,
    /// The answer to a key that may.
    pub shows: Shows,
    /// Whether a permitted request is in the audit trail; refusals always are.
    pub audited: bool,
}

/// A document of this knowledge base.
fn document_of(kb_id: &str) -> &'static str {
    match kb_id {
        "handbook" => "doc-0",
        "anna-notes" => "document-3",
        "bo-notes" => "document-4",
        _ => "document-1",
    }
}

fn read(uri: &str) -> Request {
    rpc("resources/read", json!({ "uri": uri }))
}

fn complete(reference: &serde_json::Value, argument: &str) -> Request {
    let params = json!({ "ref": reference, "argument": { "name": argument, "value": "" } });
    rpc("completion/complete", params)
}

fn of_prompt(argument: &str) -> Request {
    let prompt = json!({ "type": "ref/prompt", "name": "answer_from_knowledge_base" });
    complete(&prompt, argument)
}

fn of_template(uri: &str, argument: &str) -> Request {
    complete(&json!({ "type": "ref/resource", "uri": uri }), argument)
}

/// The fields of a [`Row`] in their order of the table: surface, form, tools, request, whether it names
/// one, the answers without the tool and out of scope, what it shows, and whether it is audited.
type Line = (
    &'static str,
    &'static str,
    &'static [Tool],
    fn(&str) -> Request,
    bool,
    Refused,
    Refused,
    Shows,
    bool,
);

/// Everything that can be asked for.
pub fn rows() -> Vec<Row> {
    use Refused::{EmptyList, Error, Never};
    use Shows::{AllVisible, Nothing, SomeVisible, TheNamed};
    use Tool::{Ask, GetKnowledgeBase, GetTask, ListDocuments, ListKnowledgeBases, Retrieve};
    const TOOL: Refused = Error(-32001, "tool not allowed");
    const SCOPE: Refused = Error(-32001, KNOWLEDGE_BASE);
    const TASK: Refused = Error(-32001, "task not found");
    const PROMPT: Refused = Error(-32602, "There is no prompt of this name.");
    const RESOURCE: Refused = Error(-32002, "resource not found");

    #[rustfmt::skip]
    let rows: Vec<Line> = vec![
        ("tools/call ask", "one", &[Ask], |kb| call("ask", json!({ "question": "leave?", "kb_id": kb })), true, TOOL, SCOPE, SomeVisible, true),
        ("tools/call ask", "list", &[Ask], |kb| call("ask", json!({ "question": "leave?", "kb_id": [kb] })), true, TOOL, SCOPE, SomeVisible, true),
        ("tools/call ask", "whole scope", &[Ask], |_| call("ask", json!({ "question": "leave?" })), false, TOOL, SCOPE, SomeVisible, true),
        ("tools/call retrieve", "one", &[Retrieve], |kb| call("retrieve", json!({ "query": "leave", "kb_id": kb })), true, TOOL, SCOPE, TheNamed, true),
        ("tools/call retrieve", "list", &[Retrieve], |kb| call("retrieve", json!({ "query": "leave", "kb_id": [kb] })), true, TOOL, SCOPE, TheNamed, true),
        ("tools/call retrieve", "whole scope", &[Retrieve], |_| call("retrieve", json!({ "query": "leave" })), false, TOOL, SCOPE, AllVisible, true),
        ("tools/call list_documents", "one", &[ListDocuments], |kb| call("list_documents", json!({ "kb_id": kb })), true, TOOL, SCOPE, TheNamed, true),
        ("tools/call list_documents", "whole scope", &[ListDocuments], |_| call("list_documents", json!({})), false, TOOL, SCOPE, AllVisible, true),
        ("tools/call list_knowledge_bases", "whole scope", &[ListKnowledgeBases], |_| call("list_knowledge_bases", json!({})), false, TOOL, EmptyList, AllVisible, true),
        ("tools/call get_knowledge_base", "one", &[GetKnowledgeBase], |kb| call("get_knowledge_base", json!({ "kb_id": kb })), true, TOOL, SCOPE, TheNamed, true),
        ("tools/call get_task", "one", &[GetTask], |kb| call("get_task", json!({ "task_id": format!("task-{kb}") })), true, TOOL, TASK, TheNamed, true),
        ("prompts/get answer_from_knowledge_base", "one", &[Retrieve, Ask], |kb| rpc("prompts/get", json!({ "name": "answer_from_knowledge_base", "arguments": { "question": "leave?", "kb_id": kb } })), true, PROMPT, SCOPE, TheNamed, true),
        ("prompts/get answer_from_knowledge_base", "whole scope", &[Retrieve, Ask], |_| rpc("prompts/get", json!({ "name": "answer_from_knowledge_base", "arguments": { "question": "leave?" } })), false, PROMPT, Never, Nothing, true),
        ("resources/read kb://{kb_id}", "one", &[GetKnowledgeBase], |kb| read(&format!("kb://{kb}")), true, RESOURCE, RESOURCE, TheNamed, true),
        ("resources/read kb://{kb_id}/documents/{document_id}", "one", &[Retrieve], |kb| read(&format!("kb://{kb}/documents/{}", document_of(kb))), true, RESOURCE, RESOURCE, TheNamed, true),
        ("resources/list", "whole scope", &[ListKnowledgeBases], |_| rpc("resources/list", json!({})), false, EmptyList, EmptyList, AllVisible, false),
        ("completion/complete answer_from_knowledge_base kb_id", "whole scope", &[ListKnowledgeBases], |_| of_prompt("kb_id"), false, EmptyList, EmptyList, AllVisible, false),
        ("completion/complete answer_from_knowledge_base question", "whole scope", &[], |_| of_prompt("question"), false, Never, Never, Nothing, false),
        ("completion/complete kb://{kb_id} kb_id", "whole scope", &[ListKnowledgeBases], |_| of_template("kb://{kb_id}", "kb_id"), false, EmptyList, EmptyList, AllVisible, false),
        ("completion/complete kb://{kb_id}/documents/{document_id} kb_id", "whole scope", &[ListKnowledgeBases], |_| of_template("kb://{kb_id}/documents/{document_id}", "kb_id"), false, EmptyList, EmptyList, AllVisible, false),
        ("completion/complete kb://{kb_id}/documents/{document_id} document_id", "whole scope", &[], |_| of_template("kb://{kb_id}/documents/{document_id}", "document_id"), false, Never, Never, Nothing, false),
        ("prompts/list", "whole scope", &[Retrieve, Ask], |_| rpc("prompts/list", json!({})), false, EmptyList, Never, Nothing, false),
        ("tools/list", "whole scope", &[], |_| rpc("tools/list", json!({})), false, Never, Never, Nothing, false),
        ("resources/templates/list", "whole scope", &[], |_| rpc("resources/templates/list", json!({})), false, Never, Never, Nothing, false),
        ("ping", "whole scope", &[], |_| rpc("ping", json!({})), false, Never, Never, Nothing, false),
        ("initialize", "whole scope", &[], |_| initialize(), false, Never, Never, Nothing, false),
        ("server/discover", "whole scope", &[], |_| discover(), false, Never, Never, Nothing, false),
    ];
    let row =
        |(surface, form, needs, request, names_one, without_tool, out_of_scope, shows, audited)| {
            Row {
                surface,
                form,
                needs,
                request,
                names_one,
                without_tool,
                out_of_scope,
                shows,
                audited,
            }
        };
    rows.into_iter().map(row).collect()
}

/// The handshake of the older revisions.
pub fn initialize() -> Request {
    let client = json!({ "name": "test", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    rpc("initialize", params)
}

/// What replaces the handshake since 2026-07-28.
pub fn discover() -> Request {
    let client = json!({ "name": "test", "version": "1" });
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": client,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    rpc("server/discover", json!({ "_meta": meta })).modern("server/discover", None)
}

/// What shows that an answer holds something of a knowledge base: its name in one of its forms, or a
/// sentence out of its documents.
const MARKS: [(&str, &[&str]); 4] = [
    ("anna-notes", &["anna-notes", "Anna keeps"]),
    ("bo-notes", &["bo-notes", "Bo keeps"]),
    (
        "handbook",
        &["handbook", "30 working days", "620 CNY", "十五天"],
    ),
    (
        "script",
        &[
            "\"script",
            "`script",
            "//script",
            "task-script",
            "The script",
            "thirty days",
        ],
    ),
];

/// The knowledge bases that a text holds something of.
pub fn seen_in(text: &str) -> BTreeSet<&'static str> {
    MARKS
        .iter()
        .filter(|(_, marks)| marks.iter().any(|mark| text.contains(mark)))
        .map(|(name, _)| *name)
        .collect()
}
