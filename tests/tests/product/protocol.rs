//! The protocol's tables: each row is a request and what it must be answered with.

use raglan_core::tool::Tool;
use serde_json::{Value, json};

use crate::support::{Answer, Request, World, call, rpc};

const VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_META: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_INFO_META: &str = "io.modelcontextprotocol/serverInfo";
const MODERN: &str = "2026-07-28";

/// A request of the era without handshake, with every header that it needs.
fn modern(method: &str, name: Option<&str>, mut params: Value) -> Request {
    params["_meta"] = json!({ VERSION_META: MODERN, CAPABILITIES_META: {} });
    rpc(method, params).modern(method, name)
}

fn modern_retrieve() -> Request {
    let params =
        json!({ "name": "retrieve", "arguments": { "query": "leave", "kb_id": "script" } });
    modern("tools/call", Some("retrieve"), params)
}

/// What a row of a table expects: status, code of the error, and the answer's id.
type Expected = (u16, Option<i64>, Option<Value>);

fn check(row: &str, answer: &Answer, (status, code, id): &Expected) {
    assert_eq!(answer.status, *status, "{row}: {answer:?}");
    assert_eq!(answer.headers["content-type"], "application/json", "{row}");
    let body = answer.json();
    assert_eq!(body["jsonrpc"], "2.0", "{row}: {body}");
    assert_eq!(answer.code(), *code, "{row}: {body}");
    assert_eq!(body.get("id"), id.as_ref(), "{row}: {body}");
    if code.is_some() {
        assert_eq!(body.get("result"), None, "{row}: {body}");
        assert!(
            body["error"]["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{row}"
        );
    }
}

#[tokio::test]
async fn every_row_of_the_handshake_era_has_its_status_code_and_id() {
    let world = World::start().await;
    let key = world.full_key().await;
    let raw = |body: &str| Request::post(body.to_owned());
    let (null, one) = (Some(Value::Null), Some(json!(1)));
    let initialize = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "t", "version": "1" } });
    // A row is a line.
    #[rustfmt::skip]
    let rows: Vec<(&str, Request, Expected)> = vec![
        ("no JSON", raw("{"), (400, Some(-32700), null.clone())),
        ("no body", raw(""), (400, Some(-32700), null.clone())),
        ("a scalar", raw("42"), (400, Some(-32600), null.clone())),
        ("an empty batch", raw("[]"), (400, Some(-32600), null.clone())),
        ("a null id", raw(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#), (400, Some(-32600), null.clone())),
        ("a fractional id", raw(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#), (400, Some(-32600), null.clone())),
        ("a boolean id", raw(r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#), (400, Some(-32600), null.clone())),
        ("an object as id", raw(r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#), (400, Some(-32600), null)),
        ("no jsonrpc", raw(r#"{"id":1,"method":"ping"}"#), (400, Some(-32600), one.clone())),
        ("jsonrpc 1.0", raw(r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#), (400, Some(-32600), one.clone())),
        ("no method", raw(r#"{"jsonrpc":"2.0","id":1}"#), (400, Some(-32600), one.clone())),
        ("params as a list", raw(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#), (400, Some(-32602), one.clone())),
        ("tools/call without params", rpc("tools/call", Value::Null), (400, Some(-32602), one.clone())),
        ("tools/call without name", rpc("tools/call", json!({ "arguments": {} })), (400, Some(-32602), one.clone())),
        ("an unknown tool", call("no_such_tool", json!({})), (200, Some(-32602), one.clone())),
        ("an unknown method", rpc("no/such", json!({})), (200, Some(-32601), one.clone())),
        ("logging/setLevel", rpc("logging/setLevel", json!({ "level": "info" })), (200, Some(-32601), one.clone())),
        ("subscriptions/listen", rpc("subscriptions/listen", json!({})), (200, Some(-32601), one.clone())),
        ("tasks/list", rpc("tasks/list", json!({})), (200, Some(-32601), one.clone())),
        ("an unserved revision", rpc("ping", json!({})).header("mcp-protocol-version", "2025-01-01"), (400, Some(-32600), one.clone())),
        ("a revision that is none", rpc("ping", json!({})).header("mcp-protocol-version", "foobar"), (400, Some(-32600), one.clone())),
        ("a served revision", rpc("ping", json!({})).header("mcp-protocol-version", "2025-06-18"), (200, None, one.clone())),
        ("initialize", rpc("initialize", initialize), (200, None, one.clone())),
        ("ping", rpc("ping", Value::Null), (200, None, one.clone())),
        ("tools/list", rpc("tools/list", json!({})), (200, None, one.clone())),
        ("tools/list from the empty cursor", rpc("tools/list", json!({ "cursor": "" })), (200, None, one.clone())),
        ("tools/list from a foreign cursor", rpc("tools/list", json!({ "cursor": "zzz" })), (200, Some(-32602), one.clone())),
        ("a tool's foreign cursor", call("list_documents", json!({ "cursor": "zzz" })), (200, Some(-32602), one.clone())),
        ("a call", call("retrieve", json!({ "query": "leave" })), (200, None, one)),
    ];
    for (row, request, expected) in rows {
        check(row, &request.key(&key).send(&world).await, &expected);
    }
}

#[tokio::test]
async fn every_row_of_the_era_without_handshake_has_its_status_code_and_id() {
    let world = World::start().await;
    let key = world.full_key().await;
    let one = Some(json!(1));
    let meta = |meta: Value| {
        let params = json!({ "name": "retrieve", "arguments": { "query": "x" }, "_meta": meta });
        rpc("tools/call", params).modern("tools/call", Some("retrieve"))
    };
    // A row is a line.
    #[rustfmt::skip]
    let rows: Vec<(&str, Request, Expected)> = vec![
        ("no JSON", Request::post("{").modern("x", None), (400, Some(-32700), None)),
        ("a batch", Request::post("[]").modern("x", None), (400, Some(-32600), None)),
        ("a response", Request::post(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).modern("x", None), (400, Some(-32600), one.clone())),
        ("no version header", modern_retrieve().without("mcp-protocol-version"), (400, Some(-32020), one.clone())),
        ("no Mcp-Method", modern_retrieve().without("mcp-method"), (400, Some(-32020), one.clone())),
        ("no Mcp-Name", modern_retrieve().without("mcp-name"), (400, Some(-32020), one.clone())),
        ("another Mcp-Method", modern_retrieve().header("mcp-method", "tools/list"), (400, Some(-32020), one.clone())),
        ("another Mcp-Name", modern_retrieve().header("mcp-name", "ask"), (400, Some(-32020), one.clone())),
        ("Mcp-Method twice", modern_retrieve().header("mcp-method", "tools/call,tools/call"), (400, Some(-32020), one.clone())),
        ("broken base64 in Mcp-Name", modern_retrieve().header("mcp-name", "=?base64?$$$?="), (400, Some(-32020), one.clone())),
        ("header and metadata differ", modern_retrieve().header("mcp-protocol-version", "2025-11-25"), (400, Some(-32020), one.clone())),
        ("no metadata", meta(Value::Null), (400, Some(-32602), one.clone())),
        ("no version in the metadata", meta(json!({ CAPABILITIES_META: {} })), (400, Some(-32602), one.clone())),
        ("no capabilities in the metadata", meta(json!({ VERSION_META: MODERN })), (400, Some(-32602), one.clone())),
        ("discover without metadata", rpc("server/discover", json!({})), (400, Some(-32602), one.clone())),
        ("an unserved revision", meta(json!({ VERSION_META: "2099-01-01", CAPABILITIES_META: {} })).header("mcp-protocol-version", "2099-01-01"), (400, Some(-32022), one.clone())),
        ("an unknown method", modern("no/such", None, json!({})), (404, Some(-32601), one.clone())),
        ("initialize", modern("initialize", None, json!({})), (404, Some(-32601), one.clone())),
        ("ping", modern("ping", None, json!({})), (404, Some(-32601), one.clone())),
        ("logging/setLevel", modern("logging/setLevel", None, json!({ "level": "info" })), (404, Some(-32601), one.clone())),
        ("subscriptions/listen", modern("subscriptions/listen", None, json!({})), (404, Some(-32601), one.clone())),
        ("tasks/get", modern("tasks/get", Some("t"), json!({ "taskId": "t" })), (404, Some(-32601), one.clone())),
        ("an unknown tool", modern("tools/call", Some("no_such"), json!({ "name": "no_such" })), (200, Some(-32602), one.clone())),
        ("a foreign cursor", modern("tools/list", None, json!({ "cursor": "zzz" })), (200, Some(-32602), one.clone())),
        ("tools/list", modern("tools/list", None, json!({})), (200, None, one.clone())),
        ("server/discover", modern("server/discover", None, json!({})), (200, None, one.clone())),
        ("Mcp-Name in base64", modern_retrieve().header("mcp-name", "=?base64?cmV0cmlldmU=?="), (200, None, one.clone())),
        ("space around header values", modern_retrieve().header("mcp-name", "  retrieve "), (200, None, one.clone())),
        ("header names in capitals", modern_retrieve().without("mcp-method").header("MCP-METHOD", "tools/call"), (200, None, one.clone())),
        ("a call", modern_retrieve(), (200, None, one)),
    ];
    for (row, request, expected) in rows {
        check(row, &request.key(&key).send(&world).await, &expected);
    }
}

#[tokio::test]
async fn an_unserved_revision_is_told_which_ones_are_served() {
    let world = World::start().await;
    let key = world.full_key().await;
    let discovered = modern("server/discover", None, json!({}))
        .key(&key)
        .send(&world)
        .await;
    let params = json!({ "_meta": { VERSION_META: "2099-01-01", CAPABILITIES_META: {} } });
    let request = rpc("tools/list", params)
        .modern("tools/list", None)
        .header("mcp-protocol-version", "2099-01-01");
    let answer = request.key(&key).send(&world).await.json();
    let data = &answer["error"]["data"];
    assert_eq!(data["requested"], "2099-01-01");
    assert_eq!(
        data["supported"],
        discovered.json()["result"]["supportedVersions"]
    );
}

#[tokio::test]
async fn results_of_the_era_without_handshake_name_their_type_their_server_and_their_lifetime() {
    let world = World::start().await;
    let key = world.full_key().await;
    for (request, cacheable) in [
        (modern("tools/list", None, json!({})), true),
        (modern("server/discover", None, json!({})), true),
        (modern_retrieve(), false),
    ] {
        let result = request.key(&key).send(&world).await.json()["result"].clone();
        assert_eq!(result["resultType"], "complete", "{result}");
        assert_eq!(
            result["_meta"][SERVER_INFO_META]["name"], "raglan",
            "{result}"
        );
        assert_eq!(result.get("ttlMs").is_some(), cacheable, "{result}");
        assert_eq!(result.get("cacheScope").is_some(), cacheable, "{result}");
    }
    let list = modern("tools/list", None, json!({}))
        .key(&key)
        .send(&world)
        .await
        .json();
    assert_eq!(list["result"]["cacheScope"], "private");
}

#[tokio::test]
async fn notifications_and_responses_are_taken_in_silence() {
    let world = World::start().await;
    let key = world.full_key().await;
    for body in [
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "method": "notifications/no-such" }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }),
        json!({ "jsonrpc": "2.0", "id": 7, "result": {} }),
        json!({ "jsonrpc": "2.0", "id": 7, "error": { "code": 1, "message": "no" } }),
    ] {
        let answer = Request::post(body.to_string()).key(&key).send(&world).await;
        assert_eq!((answer.status, answer.body.as_str()), (202, ""), "{body}");
    }
    let modern = json!({ "jsonrpc": "2.0", "method": "notifications/no-such" });
    let request = Request::post(modern.to_string()).header("mcp-protocol-version", MODERN);
    assert_eq!(request.key(&key).send(&world).await.status, 202);
}

#[tokio::test]
async fn an_id_comes_back_as_it_was_sent() {
    let world = World::start().await;
    let key = world.full_key().await;
    for id in [
        json!(0),
        json!(-5),
        json!(9_007_199_254_740_993_i64),
        json!("abc"),
        json!("0"),
        json!("4f5e0b9c-6d5f-4b8e-9d58-3c6a6b6c1f00"),
    ] {
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
        let answer = Request::post(body.to_string()).key(&key).send(&world).await;
        assert_eq!(answer.json()["id"], id);
    }
}

#[tokio::test]
async fn a_handshake_settles_on_the_requested_revision_or_on_the_newest_one_with_handshake() {
    let world = World::start().await;
    let key = world.full_key().await;
    for (requested, settled) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        (MODERN, "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
        ("garbage", "2025-11-25"),
    ] {
        let params = json!({ "protocolVersion": requested, "capabilities": {},
            "clientInfo": { "name": "t", "version": "1" } });
        let answer = rpc("initialize", params).key(&key).send(&world).await;
        assert_eq!(
            answer.json()["result"]["protocolVersion"],
            settled,
            "{requested}"
        );
    }
}

#[tokio::test]
async fn a_session_id_is_issued_by_a_handshake_only_and_any_visible_one_is_accepted() {
    let world = World::start().await;
    let key = world.full_key().await;
    let initialize = || {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "t", "version": "1" } });
        rpc("initialize", params).key(&key)
    };
    let answer = initialize().send(&world).await;
    let issued = answer.headers["mcp-session-id"].clone();
    assert!(issued.starts_with("mcp-session-") && issued.bytes().all(|b| b.is_ascii_graphic()));
    assert_eq!(
        initialize()
            .header("mcp-session-id", "stale")
            .send(&world)
            .await
            .status,
        200
    );

    let ping = || rpc("ping", json!({})).key(&key);
    for session in [issued.as_str(), "unknown", "~!"] {
        let answer = ping().header("mcp-session-id", session).send(&world).await;
        assert_eq!(answer.status, 200, "{session}");
        assert_eq!(answer.headers.get("mcp-session-id"), None);
    }
    let long = "a".repeat(257);
    for session in ["two words", "", &long] {
        let answer = ping().header("mcp-session-id", session).send(&world).await;
        assert_eq!(
            (answer.status, answer.code()),
            (400, Some(-32600)),
            "{session}"
        );
    }
    let answer = modern_retrieve()
        .header("mcp-session-id", "two words")
        .key(&key)
        .send(&world)
        .await;
    assert_eq!(answer.status, 200, "ignored where there are no sessions");
    assert_eq!(answer.headers.get("mcp-session-id"), None);
}

#[tokio::test]
async fn other_methods_than_post_are_refused_with_allow_on_the_endpoint() {
    let world = World::start().await;
    for method in ["GET", "DELETE", "PUT", "PATCH", "HEAD"] {
        let answer = Request::new(method, "/mcp").send(&world).await;
        assert_eq!(answer.status, 405, "{method}");
        assert!(answer.headers["allow"].contains("POST"), "{method}");
    }
}

#[tokio::test]
async fn an_address_that_is_only_read_says_so_to_other_methods() {
    let world = World::start().await;
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let answer = Request::new(method, "/healthz").send(&world).await;
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.headers["allow"], "GET, HEAD, OPTIONS", "{method}");
        let told = answer.json()["message"].to_string();
        assert!(told.contains("GET") && told.contains("/mcp"), "{told}");
    }
    let preflight = Request::new("OPTIONS", "/healthz").send(&world).await;
    assert_eq!(preflight.status, 204);
}

#[tokio::test]
async fn an_unknown_method_is_named_in_both_eras_and_cut_when_it_is_long() {
    let world = World::start().await;
    let key = world.full_key().await;
    let long = "m".repeat(1_000);
    for method in ["no/such", "logging/setLevel", "a\"b", &long] {
        for request in [rpc(method, json!({})), modern(method, None, json!({}))] {
            let answer = request.key(&key).send(&world).await;
            assert_eq!(answer.code(), Some(-32601), "{method}");
            let told = answer.json()["error"]["message"]
                .as_str()
                .unwrap()
                .to_owned();
            let shown: String = method.chars().take(80).collect();
            let end = if shown == method { "" } else { "…" };
            assert_eq!(
                told,
                format!("unknown method {:?}", format!("{shown}{end}"))
            );
        }
    }
}

#[tokio::test]
async fn d30_clients_of_both_eras_take_turns_on_one_endpoint() {
    let world = World::start().await;
    let key = world.full_key().await;
    for _ in 0..2 {
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "bridge", "version": "1" }
        });
        let answer = rpc("initialize", hello).key(&key).send(&world).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["result"]["protocolVersion"], "2025-11-25");
        let listed = rpc("tools/list", json!({}))
            .header("mcp-protocol-version", "2025-11-25")
            .header("mcp-session-id", &answer.headers["mcp-session-id"])
            .key(&key)
            .send(&world)
            .await;
        assert_eq!(listed.json()["result"].get("resultType"), None);
        let modern = modern_retrieve().key(&key).send(&world).await;
        assert_eq!(modern.json()["result"]["resultType"], "complete");
    }
}

#[tokio::test]
async fn a_batch_of_the_revision_that_has_batches_is_answered_in_order() {
    let world = World::start().await;
    let key = world
        .key("key", |key| key.tools = [Tool::Retrieve].into())
        .await;
    let batch = |elements: Value| {
        let request =
            Request::post(elements.to_string()).header("mcp-protocol-version", "2025-03-26");
        request.key(&key)
    };
    let request = |id: u8, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let answer = batch(json!([
        request(1, "ping", json!({})),
        { "jsonrpc": "2.0", "method": "notifications/initialized" },
        request(2, "no/such", json!({})),
        request(3, "tools/call", json!({ "name": "ask", "arguments": { "question": "x" } })),
        { "nonsense": true },
        request(4, "tools/list", json!({})),
    ]));
    let answer = answer.send(&world).await;
    assert_eq!(answer.status, 200);
    let answers = answer.json();
    let shown: Vec<_> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|a| (&a["id"], &a["error"]["code"]))
        .collect();
    let (one, two, three, four) = (json!(1), json!(2), json!(3), json!(4));
    let (null, unknown, denied, invalid) =
        (Value::Null, json!(-32601), json!(-32001), json!(-32600));
    assert_eq!(
        shown,
        [
            (&one, &null),
            (&two, &unknown),
            (&three, &denied),
            (&null, &invalid),
            (&four, &null)
        ]
    );

    let silent = batch(json!([{ "jsonrpc": "2.0", "method": "notifications/initialized" }]));
    let silent = silent.send(&world).await;
    assert_eq!((silent.status, silent.body.as_str()), (202, ""));
    assert_eq!(batch(json!([])).send(&world).await.status, 400);
    let initialize = request(
        1,
        "initialize",
        json!({ "protocolVersion": "2025-03-26",
        "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } }),
    );
    assert_eq!(batch(json!([initialize])).send(&world).await.status, 400);
}

#[tokio::test]
async fn a_batch_of_a_revision_that_has_none_is_refused() {
    let world = World::start().await;
    let key = world.full_key().await;
    let batch = json!([{ "jsonrpc": "2.0", "id": 1, "method": "ping" }]).to_string();
    for version in ["2025-06-18", "2025-11-25", MODERN] {
        let request = Request::post(batch.clone()).header("mcp-protocol-version", version);
        let answer = request.key(&key).send(&world).await;
        assert_eq!(
            (answer.status, answer.code()),
            (400, Some(-32600)),
            "{version}"
        );
    }
}

#[tokio::test]
async fn the_accept_header_decides_nothing_because_the_answer_is_json_in_any_case() {
    let world = World::start().await;
    let key = world.full_key().await;
    for accept in [
        "application/json",
        "text/event-stream",
        "text/event-stream, application/json",
        "*/*",
        "application/*",
        "application/json;q=0.9 , text/event-stream;q=0.1",
        "image/png",
    ] {
        let answer = rpc("ping", json!({}))
            .header("accept", accept)
            .key(&key)
            .send(&world)
            .await;
        assert_eq!(answer.status, 200, "{accept}");
        assert_eq!(
            answer.headers["content-type"], "application/json",
            "{accept}"
        );
    }
}

#[tokio::test]
async fn a_tool_that_is_hidden_from_a_key_does_not_appear_in_its_list() {
    let world = World::start().await;
    for tool in Tool::ALL {
        let key_id = format!("key-{tool}");
        let key = world
            .key(&key_id, |record| record.tools = [tool].into())
            .await;
        let list = rpc("tools/list", json!({}))
            .key(&key)
            .send(&world)
            .await
            .json();
        let names: Vec<_> = list["result"]["tools"].as_array().unwrap().iter().collect();
        assert_eq!(names.len(), 1, "{tool}");
        assert_eq!(names[0]["name"], tool.name());
    }
}
