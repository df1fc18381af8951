//! A caller is who its key says, whatever else a request claims.

use raglan_core::audit::AuditEvent;
use raglan_core::key::PlainKey;
use raglan_core::key_record::KeyRecord;
use serde_json::{Value, json};

use crate::support::{Answer, Request, World, call, rpc};

/// What every claim says: the id of a key that exists and may do everything, or its owner.
const CLAIMED_KEY: &str = "key-of-bo";
const CLAIMED_OWNER: &str = "bo";

fn annas(key: &mut KeyRecord) {
    key.owner = Some("anna".to_owned());
}

fn bos(key: &mut KeyRecord) {
    key.owner = Some(CLAIMED_OWNER.to_owned());
}

/// A world with a key of Anna's and one of Bo's.
async fn two_callers() -> (World, PlainKey, PlainKey) {
    let world = World::start().await;
    let anna = world.key("key-of-anna", annas).await;
    let bo = world.key(CLAIMED_KEY, bos).await;
    (world, anna, bo)
}

/// Method and parameters of requests whose answers depend on who asks.
fn requests() -> Vec<(&'static str, Value)> {
    let client = json!({ "name": "t", "version": "1" });
    let tool = |name: &str, arguments: Value| json!({ "name": name, "arguments": arguments });
    let question = json!({ "question": "leave?", "session_id": "s-1" });
    vec![
        ("tools/call", tool("retrieve", json!({ "query": "leave" }))),
        (
            "tools/call",
            tool("retrieve", json!({ "query": "leave", "kb_id": "bo-notes" })),
        ),
        ("tools/call", tool("ask", question)),
        ("tools/call", tool("list_documents", json!({}))),
        ("tools/call", tool("list_knowledge_bases", json!({}))),
        (
            "tools/call",
            tool("get_knowledge_base", json!({ "kb_id": "anna-notes" })),
        ),
        (
            "tools/call",
            tool("get_task", json!({ "task_id": "task-bo-notes" })),
        ),
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/read", json!({ "uri": "kb://anna-notes" })),
        ("resources/read", json!({ "uri": "kb://bo-notes" })),
        ("prompts/list", json!({})),
        (
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client }),
        ),
    ]
}

/// The answer without what is drawn anew for each: the id of a handshake's answer, and the 16
/// hexadecimal digits that mark the ends of passages.
fn without_random(mut answer: Answer) -> Answer {
    answer.headers.remove("mcp-session-id");
    let words: Vec<String> = answer
        .body
        .split_inclusive(|letter: char| !letter.is_ascii_alphanumeric())
        .map(|word| match word.split_at_checked(16) {
            Some((digits, end)) if end.len() <= 1 && is_hexadecimal(digits) => format!("…{end}"),
            _ => word.to_owned(),
        })
        .collect();
    answer.body = words.concat();
    answer
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Sends every request of [`requests`] with and without a claim.
async fn check_claim(claim: &str, apply: impl Fn(&'static str, Value) -> Request) {
    let (world, anna, _) = two_callers().await;
    for (method, params) in requests() {
        let plain = rpc(method, params.clone()).key(&anna).send(&world).await;
        assert_eq!(plain.status, 200, "{method}: {plain:?}");
        let claiming = apply(method, params.clone()).key(&anna).send(&world).await;
        let row = format!("{claim}: {method} {params}");
        assert_eq!(without_random(claiming), without_random(plain), "{row}");
    }
    check_trail(claim, &world.audit_events().await);
}

/// Every event names Anna's key and nobody else.
fn check_trail(claim: &str, events: &[AuditEvent]) {
    assert!(!events.is_empty(), "{claim}");
    for event in events {
        assert_eq!(
            event.key_id.as_deref(),
            Some("key-of-anna"),
            "{claim}: {event:?}"
        );
        assert_eq!(event.owner.as_deref(), Some("anna"), "{claim}: {event:?}");
        assert_eq!(
            event.source_ip.as_deref(),
            Some("203.0.113.9"),
            "{claim}: {event:?}"
        );
        assert_ne!(event.knowledge_bases, ["bo-notes"], "{claim}: {event:?}");
        let text = serde_json::to_string(event).unwrap();
        assert!(!text.contains(CLAIMED_KEY), "{claim}: {text}");
    }
}

#[tokio::test]
async fn no_header_claims_to_be_somebody_else() {
    let headers = [
        "x-user",
        "x-user-id",
        "x-owner",
        "x-key-id",
        "x-forwarded-user",
        "x-forwarded-email",
        "x-remote-user",
        "remote-user",
        "x-auth-request-user",
        "x-amzn-oidc-identity",
        "x-amzn-oidc-data",
        "x-amzn-requestid",
        "x-amz-security-token",
        "x-authenticated-user",
        "x-original-authorization",
        "proxy-authorization",
        "cookie",
        "from",
        "via",
        "baggage",
    ];
    for claimed in [CLAIMED_KEY, CLAIMED_OWNER] {
        check_claim("headers", |method, params| {
            let request = rpc(method, params);
            headers
                .iter()
                .fold(request, |request, name| request.header(name, claimed))
        })
        .await;
    }
}

#[tokio::test]
async fn no_metadata_and_no_client_information_claims_to_be_somebody_else() {
    let claims = json!({
        "owner": CLAIMED_OWNER, "key_id": CLAIMED_KEY, "user": CLAIMED_OWNER, "sub": CLAIMED_OWNER,
        "authorization": "Bearer somebody", "scope": "all", "tools": ["ask"],
        "io.modelcontextprotocol/clientInfo": { "name": CLAIMED_KEY, "version": "1" }
    });
    check_claim("_meta", |method, mut params| {
        params["_meta"] = claims.clone();
        if method == "initialize" {
            params["clientInfo"] =
                json!({ "name": CLAIMED_KEY, "version": "1", "title": CLAIMED_OWNER });
        }
        rpc(method, params)
    })
    .await;
}

#[tokio::test]
async fn no_query_string_claims_to_be_somebody_else() {
    check_claim("query string", |method, params| {
        rpc(method, params).query("owner=bo&key_id=key-of-bo&user=bo&scope=all")
    })
    .await;
}

#[tokio::test]
async fn no_session_id_makes_a_caller_somebody_else() {
    let (world, anna, bo) = two_callers().await;
    let client = json!({ "name": "t", "version": "1" });
    let handshake =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let opened = rpc("initialize", handshake).key(&bo).send(&world).await;
    let session = &opened.headers["mcp-session-id"];
    for (method, params) in requests() {
        let plain = rpc(method, params.clone()).key(&anna).send(&world).await;
        let request = rpc(method, params).header("mcp-session-id", session);
        let nobody = request.clone().send(&world).await;
        assert_eq!(nobody.status, 401, "a session is no key: {method}");
        let claiming = request.key(&anna).send(&world).await;
        assert_eq!(without_random(claiming), without_random(plain), "{method}");
    }
    let events = world.audit_events().await;
    let (of_nobody, of_anna): (Vec<_>, Vec<_>) = events
        .into_iter()
        .partition(|event| event.http_status == 401);
    assert_eq!(of_nobody.len(), requests().len());
    assert!(
        of_nobody
            .iter()
            .all(|event| event.key_id.is_none() && event.owner.is_none())
    );
    check_trail("session id", &of_anna);
}

#[tokio::test]
async fn no_argument_claims_to_be_somebody_else() {
    let (world, anna, _) = two_callers().await;
    for (name, value) in [
        ("owner", CLAIMED_OWNER),
        ("user", CLAIMED_OWNER),
        ("key_id", CLAIMED_OWNER),
        ("on_behalf_of", CLAIMED_OWNER),
    ] {
        let arguments = json!({ "query": "leave", name: value });
        let answer = call("retrieve", arguments).key(&anna).send(&world).await;
        let (text, meta) = answer.tool_error();
        assert_eq!(meta["code"], "invalid_arguments", "{text}");
    }
    let filters = json!({ "metadata": { "owner": CLAIMED_OWNER } });
    let narrowed = call("retrieve", json!({ "query": "leave", "filters": filters }));
    let found = narrowed.key(&anna).send(&world).await.structured();
    let items = found["items"].as_array().unwrap();
    assert!(
        items.iter().all(|item| item["kb_id"] == "anna-notes"),
        "{found}"
    );
    check_trail("arguments", &world.audit_events().await);
}

#[tokio::test]
async fn two_keys_in_one_request_are_nobody() {
    let (world, anna, bo) = two_callers().await;
    let nobody = rpc("tools/list", json!({})).send(&world).await;
    assert_eq!(nobody.status, 401);
    let (annas, bos) = (anna.reveal(), bo.reveal());
    for (authorization, api_key) in [
        (format!("Bearer {annas}"), bos.to_owned()),
        (format!("Bearer {annas}"), "nobody".to_owned()),
        (format!("Bearer {annas}"), String::new()),
        (format!("Bearer {annas}, Bearer {bos}"), annas.to_owned()),
        (format!("Basic {annas}"), annas.to_owned()),
    ] {
        let request = rpc("tools/list", json!({}))
            .header("authorization", &authorization)
            .header("x-api-key", &api_key);
        assert_eq!(request.send(&world).await, nobody);
    }
    for event in world.audit_events().await {
        assert_eq!((event.key_id, event.owner), (None, None));
    }
}

#[tokio::test]
async fn a_cursor_of_another_key_is_like_any_invalid_cursor() {
    let (world, anna, _) = two_callers().await;
    let full = world.full_key().await;
    for (method, tool) in [
        ("list_documents", true),
        ("list_knowledge_bases", true),
        ("resources/list", false),
    ] {
        let list = |cursor: &str| {
            if tool {
                call(method, json!({ "limit": 1, "cursor": cursor }))
            } else {
                rpc(method, json!({ "cursor": cursor }))
            }
        };
        let page = call("list_documents", json!({ "limit": 1 }))
            .key(&full)
            .send(&world)
            .await;
        let own = match method {
            "list_documents" => page,
            _ => {
                call("list_knowledge_bases", json!({ "limit": 1 }))
                    .key(&full)
                    .send(&world)
                    .await
            }
        };
        let cursor = own.structured()["next_cursor"].as_str().unwrap().to_owned();
        let foreign = list(&cursor).key(&anna).send(&world).await;
        assert_eq!(foreign.code(), Some(-32602), "{method}");
        assert_eq!(
            foreign,
            list("bm9uc2Vuc2U").key(&anna).send(&world).await,
            "{method}"
        );
    }
}

#[tokio::test]
async fn a_session_and_an_idempotency_key_of_another_key_change_nothing() {
    let (world, anna, bo) = two_callers().await;
    let session = json!({ "question": "leave?", "session_id": "default" });
    let keyed = json!({ "question": "leave?", "session_id": "default", "idempotency_key": "k-1" });
    let ask = |arguments: &Value| call("ask", arguments.clone());
    let before = without_random(ask(&session).key(&anna).send(&world).await);
    for arguments in [&session, &keyed] {
        let bos = ask(arguments).key(&bo).send(&world).await.structured();
        assert_eq!(bos["sources"][0]["kb_id"], "bo-notes", "{bos}");
    }
    let after = ask(&session).key(&anna).send(&world).await;
    assert_eq!(without_random(after), before);
    let calls = world.engine.calls();
    let first = ask(&keyed).key(&anna).send(&world).await;
    assert_eq!(without_random(first), before);
    assert!(world.engine.calls() > calls, "worked on, not replayed");
    let other = json!({ "question": "travel?", "session_id": "default", "idempotency_key": "k-1" });
    let refused = ask(&other).key(&anna).send(&world).await.tool_error();
    assert_eq!(
        refused.1["code"], "idempotency_key_reused",
        "Anna's own is known"
    );
}
