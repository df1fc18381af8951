//! Keys and access tokens are nowhere but with their callers: every byte that the product leaves behind
//! is searched for them.

use std::collections::BTreeMap;
use std::path::Path;

use aws_lambda_events::sqs::SqsEvent;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use raglan_cli::local::event_source::EventSource;
use raglan_cli::system::AUDIT_TIMEOUT;
use raglan_core::audit::privacy::TextPolicy;
use raglan_core::clock::Clock as _;
use raglan_core::key::PlainKey;
use raglan_core::key_record::{KeyRecord, RateLimit};
use raglan_core::random::SystemRandom;
use raglan_mcp::config::AuditMode;
use raglan_mcp::oauth::OauthConfig;
use serde_json::{Value, json};
use tracing::Level;

use crate::support::{Answer, Behaviour, Request, World, call, capture_own_log, passage, rpc};

/// In every question and query, and in nothing else.
const QUESTION: &str = "quokka-question";
/// Put where each place has to show it: the search finds what is there.
const PLANTED: &str = "planted-7f3a9c51e2";

/// Every byte that a run leaves behind, by place.
struct LeftBehind(BTreeMap<&'static str, Vec<u8>>);

impl LeftBehind {
    fn places_with(&self, needle: &str) -> Vec<&'static str> {
        let holds = |bytes: &[u8]| {
            bytes
                .windows(needle.len())
                .any(|part| part == needle.as_bytes())
        };
        let places = self.0.iter().filter(|(_, bytes)| holds(bytes));
        places.map(|(place, _)| *place).collect()
    }
}

/// What distinguishes a key.
type Change = fn(&mut KeyRecord);

fn random_key() -> PlainKey {
    PlainKey::generate(&SystemRandom).unwrap()
}

/// Every file below the folder, one after the other.
fn bytes_below(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            bytes.extend(bytes_below(&path));
        } else {
            bytes.extend(std::fs::read(path).unwrap());
        }
    }
    bytes
}

/// Hands the queue to the audit function, and keeps the messages as they were sent.
async fn drain(world: &World) -> String {
    let handler = world.audit_handler();
    let url = world.resources.audit_queue_url.clone();
    let source = EventSource::connect(&world.clients, url).await.unwrap();
    let messages = std::sync::Mutex::new(String::new());
    let handle = async |event: SqsEvent| {
        messages
            .lock()
            .unwrap()
            .push_str(&serde_json::to_string(&event).unwrap());
        Ok::<_, std::convert::Infallible>(handler.handle(event, AUDIT_TIMEOUT).await)
    };
    assert_eq!(source.drain(&handle).await, Ok(0));
    messages.into_inner().unwrap()
}

/// Collects what a run left behind. Call it when nothing is sent any more.
async fn left_behind(world: &World, log: &str, answers: &[Answer]) -> LeftBehind {
    let messages = drain(world).await;
    let rows = format!("{:?}", world.audit_table_items().await);
    LeftBehind(BTreeMap::from([
        ("the answers", format!("{answers:?}").into_bytes()),
        ("the files", bytes_below(&world.state_dir)),
        ("the log", log.as_bytes().to_vec()),
        ("the queue", messages.into_bytes()),
        ("the trail", rows.into_bytes()),
    ]))
}

/// Neither the key nor its 43 secret characters are anywhere.
fn check_nowhere(left: &LeftBehind, name: &str, key: &PlainKey) {
    assert_eq!(left.places_with(key.reveal()), [""; 0], "the key {name}");
    let secret = &key.reveal()[4..47];
    assert_eq!(left.places_with(secret), [""; 0], "the secret of {name}");
}

fn retrieve(kb_id: &str) -> Request {
    call("retrieve", json!({ "query": QUESTION, "kb_id": kb_id }))
}

fn ask(kb_id: &str) -> Request {
    call("ask", json!({ "question": QUESTION, "kb_id": kb_id }))
}

/// One request for every path through the product that needs no special state.
fn every_path() -> Vec<Request> {
    let kept = json!({ "question": QUESTION, "kb_id": "script", "idempotency_key": "k-1" });
    let one = |id: u32, tool: &str| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": tool, "arguments": { "query": QUESTION } } })
    };
    let batch = json!([one(1, "retrieve"), one(2, "no_such"), { "jsonrpc": "2.0", "id": 3 }]);
    let client = json!({ "name": "t", "version": "1" });
    let handshake =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let prompt = |name: &str| {
        let arguments = json!({ "question": QUESTION, "kb_id": "script" });
        rpc(
            "prompts/get",
            json!({ "name": name, "arguments": arguments }),
        )
    };
    let read = |uri: &str| rpc("resources/read", json!({ "uri": uri }));
    let completion = json!({ "ref": { "type": "ref/resource", "uri": "kb://{kb_id}" },
        "argument": { "name": "kb_id", "value": "" } });
    let discover = json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": client,
        "io.modelcontextprotocol/clientCapabilities": {} } });
    vec![
        retrieve("script"),
        retrieve("handbook"),
        ask("script"),
        call("ask", kept.clone()),
        call("ask", kept),
        call("list_documents", json!({ "kb_id": "script" })),
        call("list_knowledge_bases", json!({})),
        call("get_knowledge_base", json!({ "kb_id": "script" })),
        call("get_task", json!({ "task_id": "task-script" })),
        // Refusals of a tool.
        retrieve("no-such"),
        call("get_task", json!({ "task_id": "no-such" })),
        call("no_such", json!({ "query": QUESTION })),
        call(
            "retrieve",
            json!({ "query": QUESTION, "top_k": "many", "owner": "x" }),
        ),
        call("list_documents", json!({ "cursor": "x" })),
        // An engine that panics, and one whose error repeats what it was sent.
        retrieve("anna-notes"),
        ask("anna-notes"),
        read("kb://anna-notes/documents/document-3"),
        retrieve("bo-notes"),
        ask("bo-notes"),
        call("list_documents", json!({ "kb_id": "bo-notes" })),
        call("get_knowledge_base", json!({ "kb_id": "bo-notes" })),
        call(
            "retrieve",
            json!({ "query": QUESTION, "kb_id": ["script", "bo-notes"] }),
        ),
        // Everything but tools.
        prompt("answer_from_knowledge_base"),
        prompt("no_such"),
        read("kb://script"),
        read("kb://script/documents/document-1"),
        read("kb://no-such"),
        rpc("resources/list", json!({})),
        rpc("resources/templates/list", json!({})),
        rpc("prompts/list", json!({})),
        rpc("tools/list", json!({})),
        rpc("completion/complete", completion),
        rpc("initialize", handshake),
        rpc("server/discover", discover).modern("server/discover", None),
        rpc("ping", json!({})),
        rpc("no/such", json!({})),
        // What is no message.
        Request::post(batch.to_string()).header("mcp-protocol-version", "2025-03-26"),
        Request::post("{"),
        Request::post("[]"),
        Request::post(" ".repeat(300_000)),
        rpc("ping", json!({})).header("content-type", "text/plain"),
        rpc("ping", json!({})).header("mcp-protocol-version", "1999-01-01"),
        rpc("ping", json!({})).header("origin", "https://evil.example"),
        rpc("ping", json!({})).path("/elsewhere"),
        Request::new("GET", "/mcp"),
        Request::new("DELETE", "/mcp"),
    ]
}

#[tokio::test]
async fn no_key_is_in_any_byte_of_logs_answers_queue_trail_or_files() {
    let world = World::on_disk(|config| config.auth_failures_per_minute = 6000).await;
    let log = capture_own_log(Level::TRACE);
    let changes: [(&str, Change); 7] = [
        ("full", |_| {}),
        ("no tools", |key| key.tools.clear()),
        ("owned", |key| key.owner = Some("anna".to_owned())),
        ("disabled", |key| key.enabled = false),
        ("revoked", |key| key.revoked_at = Some(key.created_at)),
        ("replaced", |key| {
            key.replaced_by = Some("another".to_owned());
        }),
        ("limited", |key| {
            key.rate_limit = Some(RateLimit {
                requests_per_minute: 1,
                burst: 1,
            });
        }),
    ];
    let mut keys = Vec::new();
    for (name, change) in changes {
        let key = random_key();
        world.store_key(&key, &format!("key-{name}"), change).await;
        keys.push((name, key));
    }
    keys.push(("unknown", random_key()));

    let mut answers = Vec::new();
    for (_, key) in &keys {
        let echo = format!("{PLANTED} 403: Authorization: Bearer {}", key.reveal());
        world.engine.order("bo-notes", Behaviour::Unavailable(echo));
        world.engine.order("anna-notes", Behaviour::Panics);
        world
            .engine
            .order("script", Behaviour::Passages(vec![passage(1, QUESTION)]));
        for request in every_path() {
            answers.push(request.key(key).send(&world).await);
        }
        let text = key.reveal();
        for (header, value) in [
            ("authorization", format!("Basic {text}")),
            ("authorization", text.to_owned()),
            ("authorization", format!("Bearer {}", &text[..52])),
            ("authorization", format!("Bearer {text}, Bearer {text}")),
            ("authorization", format!("Bearer {text}x")),
            ("x-api-key", text.to_owned()),
        ] {
            answers.push(retrieve("script").header(header, &value).send(&world).await);
        }
        let in_query = rpc("ping", json!({})).query(&format!("key={text}"));
        answers.push(in_query.send(&world).await);

        world.engine.order("script", Behaviour::Hangs);
        let soon = world.clock.now().epoch_ms() + 900;
        answers.push(
            retrieve("script")
                .key(key)
                .deadline_epoch_ms(soon)
                .send(&world)
                .await,
        );
        world.engine.order("script", Behaviour::Empty);
        world.dynamodb.close();
        answers.push(retrieve("script").key(key).send(&world).await);
        world.dynamodb.open();
        world.sqs.close();
        answers.push(retrieve("script").key(key).send(&world).await);
        world.sqs.open();
    }
    let (_, full) = &keys[0];
    let planted = call("retrieve", json!({ "query": PLANTED, "kb_id": "handbook" }));
    answers.push(planted.key(full).send(&world).await);
    let echoed = rpc(
        "resources/read",
        json!({ "uri": format!("kb://{PLANTED}") }),
    );
    answers.push(echoed.key(full).send(&world).await);

    let log = log.text();
    let left = left_behind(&world, &log, &answers).await;
    let everywhere = [
        "the answers",
        "the files",
        "the log",
        "the queue",
        "the trail",
    ];
    assert_eq!(
        left.places_with(PLANTED),
        everywhere,
        "the search finds what is there"
    );
    let statuses: std::collections::BTreeSet<_> =
        answers.iter().map(|answer| answer.status).collect();
    for status in [200, 400, 401, 403, 404, 405, 413, 415, 429, 503] {
        assert!(
            statuses.contains(&status),
            "no answer had {status}: {statuses:?}"
        );
    }
    for marker in [
        "AUDIT_NOT_SENT",
        "panicked",
        "did not answer",
        "could not be checked",
    ] {
        assert!(log.contains(marker), "{marker} is in the log");
    }
    for (name, key) in &keys {
        check_nowhere(&left, name, key);
        let hash = key.hash();
        let places = left.places_with(hash.as_str());
        assert!(
            places.iter().all(|place| *place == "the files"),
            "the hash of {name} is in {places:?}"
        );
    }
    check_questions(&log);
}

/// Questions are in no log entry but in an audit event that the queue did not take.
fn check_questions(log: &str) {
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let whole_event = entry["marker"] == "AUDIT_NOT_SENT";
        assert!(whole_event || !line.contains(QUESTION), "{line}");
    }
}

#[tokio::test]
async fn a_key_that_a_caller_puts_in_the_wrong_place_is_not_written_down() {
    let world = World::on_disk(|_| {}).await;
    let log = capture_own_log(Level::TRACE);
    let key = random_key();
    world.store_key(&key, "key-full", |_| {}).await;
    let text = key.reveal();
    let mut sent = Vec::new();
    for request in [
        call(
            "retrieve",
            json!({ "query": format!("{PLANTED} {text}"), "kb_id": "script" }),
        ),
        call("retrieve", json!({ "query": "leave", "api_key": text })),
        call(
            "retrieve",
            json!({ "query": format!("Authorization: Bearer {text}") }),
        ),
        call(
            "ask",
            json!({ "question": text, "kb_id": "script", "idempotency_key": text }),
        ),
        call("get_task", json!({ "task_id": text })),
        call(text, json!({})),
        rpc(text, json!({})),
        rpc("resources/read", json!({ "uri": format!("kb://{text}") })),
        rpc(
            "prompts/get",
            json!({ "name": text, "arguments": { text: text } }),
        ),
        rpc(
            "tools/call",
            json!({ "name": "retrieve", "arguments": { "query": "leave" },
            "_meta": { "key": text } }),
        ),
        rpc("tools/list", json!({ "cursor": text })),
        rpc("ping", json!({})).header("mcp-protocol-version", text),
    ] {
        let request = request.header("user-agent", &format!("agent {text}"));
        sent.push(request.clone().key(&key).send(&world).await);
        sent.push(request.send(&world).await);
    }
    world.sqs.close();
    let lost = call("retrieve", json!({ "query": text }));
    sent.push(lost.key(&key).send(&world).await);
    world.sqs.open();

    let log = log.text();
    // An answer may repeat to its caller what the caller said.
    let left = left_behind(&world, &log, &[]).await;
    assert_eq!(
        left.places_with(PLANTED),
        ["the files", "the queue", "the trail"]
    );
    assert_eq!(
        left.places_with("[secret]"),
        ["the files", "the log", "the queue", "the trail"]
    );
    check_nowhere(&left, "the caller", &key);
}

#[tokio::test]
async fn no_mode_of_the_trail_writes_a_key_down() {
    for text in TextPolicy::ALL {
        for mode in [AuditMode::Deferred, AuditMode::Strict] {
            let world = World::on_disk(|config| {
                config.audit_keeper.text = text;
                config.audit_mode = mode;
            })
            .await;
            let log = capture_own_log(Level::TRACE);
            let key = random_key();
            world.store_key(&key, "key-full", |_| {}).await;
            let secret = key.reveal();
            let requests = || {
                [
                    call(
                        "retrieve",
                        json!({ "query": format!("{PLANTED} {secret}") }),
                    ),
                    call("ask", json!({ "question": "leave", secret: secret })),
                    call(secret, json!({})),
                    rpc("resources/read", json!({ "uri": format!("kb://{secret}") })),
                ]
            };
            for request in requests() {
                request.key(&key).send(&world).await;
            }
            world.sqs.close();
            for request in requests() {
                request.key(&key).send(&world).await;
            }
            world.sqs.open();
            let log = log.text();
            assert!(log.contains("AUDIT_NOT_SENT"));
            let left = left_behind(&world, &log, &[]).await;
            let planted = left.places_with(PLANTED).contains(&"the trail");
            assert_eq!(planted, text == TextPolicy::Plain, "{text:?} {mode:?}");
            check_nowhere(&left, "the caller", &key);
        }
    }
}

#[tokio::test]
async fn no_access_token_is_in_any_byte_that_is_left_behind() {
    let world = World::on_disk(|config| {
        config.oauth = Some(OauthConfig {
            issuer: "http://127.0.0.1:9".to_owned(),
            resource: "https://mcp.example/mcp".to_owned(),
        });
    })
    .await;
    let log = capture_own_log(Level::TRACE);
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signature = part(random_key().reveal());
    let claims = part(&json!({ "sub": random_key().reveal() }).to_string());
    let header = part(r#"{"alg":"ES256","kid":"k-1"}"#);
    let mut answers = Vec::new();
    for token in [
        format!("{header}.{claims}.{signature}"),
        format!("eyJ.{claims}.{signature}"),
        format!("{header}.{claims}"),
    ] {
        let header = format!("Bearer {token}");
        for request in [
            retrieve("script"),
            rpc("tools/list", json!({})),
            Request::post("{"),
        ] {
            answers.push(request.header("authorization", &header).send(&world).await);
        }
    }
    let statuses: std::collections::BTreeSet<_> =
        answers.iter().map(|answer| answer.status).collect();
    assert_eq!(
        statuses,
        [401, 503].into(),
        "a bad token, and an issuer that is away"
    );
    let log = log.text();
    let left = left_behind(&world, &log, &answers).await;
    assert!(!left.places_with("token_malformed").is_empty());
    for secret in [&signature, &claims] {
        assert_eq!(left.places_with(secret), [""; 0]);
    }
}
