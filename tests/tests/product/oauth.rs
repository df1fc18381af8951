//! Access tokens beside API keys: an issuer on a loopback port signs them, the function checks them, and
//! the keys table says what their subjects may do.

mod issuer;

use std::sync::atomic::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::join_all;
use raglan_core::clock::Clock as _;
use raglan_core::key::PlainKey;
use raglan_core::key_record::ScopeKind;
use raglan_core::tool::Tool;
use serde_json::{Value, json};

use self::issuer::{Issuer, RESOURCE, new_pair, sign};
use crate::support::{Answer, Request, World, call, id, rpc};

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
/// How long the issuer's keys are kept.
const KEYS_LIFETIME_SECONDS: i64 = 600;
/// How soon an unknown key id makes the function look again.
const LOOK_AGAIN_SECONDS: i64 = 30;

fn bearer(token: &str, request: Request) -> Request {
    request.header("authorization", &format!("Bearer {token}"))
}

fn list() -> Request {
    rpc("tools/list", json!({}))
}

/// The names of the tools in an answer to `tools/list`.
fn tools(answer: &Answer) -> Vec<String> {
    let body = answer.json();
    assert_eq!(answer.status, 200, "{body}");
    let tools = body["result"]["tools"].as_array().unwrap();
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    tools.iter().map(name).collect()
}

fn key_of(text: &str) -> PlainKey {
    PlainKey::parse(text).unwrap()
}

#[tokio::test]
async fn the_challenge_leads_by_an_absolute_url_to_metadata_that_names_this_endpoint() {
    let issuer = Issuer::start().await;
    let world = issuer.world().await;
    let refused = list().send(&world).await;
    assert_eq!(refused.status, 401);
    let challenge = &refused.headers["www-authenticate"];
    let (_, after) = challenge.split_once("resource_metadata=\"").unwrap();
    let (url, _) = after.split_once('"').unwrap();
    let path = url.strip_prefix("https://kb.example").unwrap();
    // Function URLs rename the header; the body says the same.
    assert_eq!(refused.json()["www_authenticate"], challenge.as_str());

    for path in [path, WELL_KNOWN] {
        let found = Request::new("GET", path).send(&world).await;
        let document = found.json();
        assert_eq!(found.status, 200, "{path} {document}");
        assert_eq!(document["resource"], RESOURCE);
        assert_eq!(document["authorization_servers"], json!([issuer.url]));
        assert_eq!(document["scopes_supported"], json!(["raglan"]));
        let posted = Request::new("POST", path).send(&world).await;
        assert_eq!(posted.status, 405, "{path}");
        assert_eq!(posted.headers["allow"], "GET, HEAD, OPTIONS", "{path}");
    }
    // raglan issues no tokens and registers nobody.
    for (method, path) in [
        ("GET", "/.well-known/oauth-authorization-server"),
        ("GET", "/.well-known/openid-configuration"),
        ("POST", "/register"),
    ] {
        let absent = Request::new(method, path).send(&world).await;
        assert_eq!(
            (absent.status, &absent.json()["error"]),
            (404, &json!("not_found"))
        );
    }
}

#[tokio::test]
async fn a_token_may_do_what_the_record_of_its_subject_allows() {
    let issuer = Issuer::start().await;
    let world = issuer.world().await;
    issuer
        .grant(&world, "anna", |record| {
            record.owner = Some("anna".to_owned());
            record.tools = [Tool::Retrieve, Tool::ListKnowledgeBases].into();
        })
        .await;
    issuer
        .grant(&world, "reader", |record| {
            record.scope = ScopeKind::List;
            record.kb_ids = [id("script")].into();
        })
        .await;
    let seen = async |subject: &str| {
        let token = issuer.token(&world, subject, "openid raglan");
        let call = call("list_knowledge_bases", json!({}));
        let found = bearer(&token, call).send(&world).await.structured();
        let items = found["items"].as_array().unwrap().clone();
        let name = |item: &Value| item["id"].as_str().unwrap().to_owned();
        items.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(seen("anna").await, ["anna-notes"]);
    assert_eq!(seen("reader").await, ["script"]);

    let of_anna = issuer.token(&world, "anna", "raglan");
    let listed = tools(&bearer(&of_anna, list()).send(&world).await);
    assert_eq!(listed, ["list_knowledge_bases", "retrieve"]);
    let asked = bearer(&of_anna, call("ask", json!({ "question": "leave?" })));
    assert_eq!(asked.send(&world).await.code(), Some(-32001));

    let events = world.audit_events().await;
    assert_eq!(events.len(), 3);
    for event in events {
        let text = serde_json::to_string(&event).unwrap();
        assert!(
            text.contains("key-anna") || text.contains("key-reader"),
            "{text}"
        );
        assert!(!text.contains(&of_anna), "{text}");
    }
}

#[tokio::test]
async fn scopes_take_away_from_a_record_and_never_add_to_it() {
    let issuer = Issuer::start().await;
    let world = issuer.world().await;
    issuer.grant(&world, "all", |_| {}).await;
    issuer
        .grant(&world, "retriever", |record| {
            record.tools = [Tool::Retrieve].into();
        })
        .await;
    for (subject, scope, expected) in [
        ("all", "raglan:retrieve", &["retrieve"][..]),
        ("all", "raglan:retrieve raglan:ask", &["ask", "retrieve"]),
        ("retriever", "raglan:retrieve raglan:ask", &["retrieve"]),
        ("retriever", "raglan:ask", &[]),
        ("retriever", "raglan raglan:ask", &["retrieve"]),
    ] {
        let token = issuer.token(&world, subject, scope);
        let listed = tools(&bearer(&token, list()).send(&world).await);
        assert_eq!(listed, expected, "{subject} {scope}");
    }
    let narrow = issuer.token(&world, "all", "raglan:retrieve");
    let asked = bearer(&narrow, call("ask", json!({ "question": "leave?" })));
    assert_eq!(asked.send(&world).await.code(), Some(-32001));
}

#[tokio::test]
async fn a_good_token_without_our_scope_is_told_which_scope_it_needs() {
    let issuer = Issuer::start().await;
    let world = issuer.world().await;
    issuer.grant(&world, "anna", |_| {}).await;
    for scope in [
        "",
        "openid email",
        "raglanx",
        "raglan:",
        "raglan:delete",
        "xraglan:ask",
    ] {
        let token = issuer.token(&world, "anna", scope);
        let refused = bearer(&token, list()).send(&world).await;
        assert_eq!(refused.status, 403, "{scope}");
        let challenge = &refused.headers["www-authenticate"];
        for part in [
            "error=\"insufficient_scope\"",
            "scope=\"raglan\"",
            "resource_metadata=\"https://kb.example/.well-known/oauth-protected-resource/mcp\"",
        ] {
            assert!(challenge.contains(part), "{challenge}");
        }
    }
}

#[tokio::test]
async fn every_token_that_is_no_good_gets_the_same_401() {
    let issuer = Issuer::start().await;
    let world = issuer.world().await;
    issuer.grant(&world, "anna", |_| {}).await;
    issuer
        .grant(&world, "gone", |record| record.enabled = false)
        .await;
    let header = json!({ "alg": "ES256", "kid": "k1" });
    let now = world.clock.now().epoch_seconds();
    let claiming = |name: &str, value: Value| {
        let mut claims = issuer.claims(&world, "anna", "raglan");
        claims[name] = value;
        sign(&issuer.pair, &header, &claims)
    };
    let good = issuer.claims(&world, "anna", "raglan");
    let good_token = sign(&issuer.pair, &header, &good);
    assert_eq!(bearer(&good_token, list()).send(&world).await.status, 200);
    let unsigned = |header: Value| {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.", part(&header), part(&good))
    };
    let tokens = [
        ("no record", issuer.token(&world, "nobody", "raglan")),
        ("a disabled record", issuer.token(&world, "gone", "raglan")),
        (
            "another audience",
            claiming("aud", json!("https://other.example/mcp")),
        ),
        (
            "the origin alone",
            claiming("aud", json!("https://kb.example")),
        ),
        ("expired", claiming("exp", json!(now - 31))),
        ("not yet valid", claiming("nbf", json!(now + 31))),
        (
            "another issuer",
            claiming("iss", json!("https://evil.example")),
        ),
        (
            "unknown key id",
            sign(&issuer.pair, &json!({ "alg": "ES256", "kid": "k9" }), &good),
        ),
        ("another signer", sign(&new_pair(), &header, &good)),
        ("no signature", unsigned(json!({ "alg": "none" }))),
        (
            "no signature, a known key id",
            unsigned(json!({ "alg": "ES256", "kid": "k1" })),
        ),
        ("no token", "eyJub3RoaW5n.e30.x".to_owned()),
    ];
    let nothing = list().send(&world).await;
    assert_eq!(nothing.status, 401);
    for (what, token) in tokens {
        assert_eq!(bearer(&token, list()).send(&world).await, nothing, "{what}");
    }
    // RFC 6750 §2.3 is not for us: addresses end up in logs.
    let in_query = list().query(&format!("access_token={good_token}"));
    assert_eq!(in_query.send(&world).await, nothing);
}

#[tokio::test]
async fn keys_work_beside_tokens_even_while_the_issuer_is_away() {
    let issuer = Issuer::start().await;
    let world = issuer.world().await;
    issuer.grant(&world, "anna", |_| {}).await;
    let key = world.full_key().await;
    issuer.is_up.store(false, Ordering::SeqCst);
    let token = issuer.token(&world, "anna", "raglan");
    let refused = bearer(&token, list()).send(&world).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.headers.contains_key("retry-after"));
    assert!(!refused.headers.contains_key("www-authenticate"));
    // Nobody waits for it again at once.
    let asked = issuer.asked.lock().unwrap().len();
    assert!(asked > 0);
    assert_eq!(bearer(&token, list()).send(&world).await.status, 503);
    assert_eq!(issuer.asked.lock().unwrap().len(), asked);
    assert_eq!(list().key(&key).send(&world).await.status, 200);

    issuer.is_up.store(true, Ordering::SeqCst);
    world.clock.advance_seconds(2);
    assert_eq!(bearer(&token, list()).send(&world).await.status, 200);
    assert_eq!(list().key(&key).send(&world).await.status, 200);
}

#[tokio::test]
async fn the_issuers_keys_are_fetched_once_and_again_when_they_are_old_or_one_is_missing() {
    let issuer = Issuer::start().await;
    let world = issuer.world().await;
    issuer.grant(&world, "anna", |_| {}).await;
    let with_key = |key_id: &str| {
        let claims = issuer.claims(&world, "anna", "raglan");
        sign(
            &issuer.pair,
            &json!({ "alg": "ES256", "kid": key_id }),
            &claims,
        )
    };
    let (first, next) = (with_key("k1"), with_key("k2"));
    let calls = (0..20).map(|_| async { bearer(&first, list()).send(&world).await.status });
    assert_eq!(join_all(calls).await, [200; 20]);
    assert_eq!(issuer.keys_asked(), 1);

    // Invented key ids do not make the function a burden on the issuer.
    for _ in 0..10 {
        assert_eq!(bearer(&next, list()).send(&world).await.status, 401);
    }
    assert_eq!(issuer.keys_asked(), 1);

    issuer.key_ids.lock().unwrap().push("k2");
    world.clock.advance_seconds(LOOK_AGAIN_SECONDS);
    assert_eq!(bearer(&next, list()).send(&world).await.status, 200);
    assert_eq!(issuer.keys_asked(), 2);

    // A key that the issuer has withdrawn works until the function looks again.
    issuer
        .key_ids
        .lock()
        .unwrap()
        .retain(|key_id| *key_id == "k2");
    assert_eq!(bearer(&first, list()).send(&world).await.status, 200);
    world.clock.advance_seconds(KEYS_LIFETIME_SECONDS);
    assert_eq!(bearer(&first, list()).send(&world).await.status, 401);
    assert_eq!(issuer.keys_asked(), 3);
}

#[tokio::test]
async fn switched_off_there_is_no_trace_of_oauth() {
    let issuer = Issuer::start().await;
    let world = World::start().await;
    issuer.grant(&world, "anna", |_| {}).await;
    for (method, path) in [
        ("GET", WELL_KNOWN),
        ("GET", "/.well-known/oauth-protected-resource/mcp"),
        ("GET", "/.well-known/oauth-authorization-server"),
        ("GET", "/.well-known/openid-configuration"),
        ("POST", "/register"),
    ] {
        let absent = Request::new(method, path).send(&world).await;
        assert_eq!(
            (absent.status, &absent.json()["error"]),
            (404, &json!("not_found"))
        );
        assert_eq!(absent.headers["content-type"], "application/json");
        assert!(!absent.headers.contains_key("www-authenticate"), "{path}");
    }
    let nothing = list().send(&world).await;
    assert_eq!(nothing.status, 401);
    assert_eq!(nothing.headers["www-authenticate"], "Bearer realm=\"mcp\"");
    let token = issuer.token(&world, "anna", "raglan");
    assert_eq!(bearer(&token, list()).send(&world).await, nothing);
    assert_eq!(issuer.asked.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn d19_the_key_may_come_in_x_api_key_where_a_front_takes_the_authorization_header() {
    let world = World::start().await;
    let key = world.full_key().await;
    let other = world.key("key-other", |_| {}).await;
    let refused = list().send(&world).await;
    let in_api_key = || list().header("x-api-key", key.reveal());
    assert_eq!(in_api_key().send(&world).await.status, 200);
    assert_eq!(in_api_key().key(&key).send(&world).await.status, 200);
    // What CloudFront signs for AWS says nothing about the caller.
    let signature = "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=c";
    let signed = in_api_key().header("authorization", signature);
    assert_eq!(signed.send(&world).await.status, 200);
    // Two good keys: nobody can say whose call it is.
    assert_eq!(in_api_key().key(&other).send(&world).await, refused);
    let unknown = list().header("x-api-key", key_of("mk_test_0123456789abcdef").reveal());
    assert_eq!(unknown.send(&world).await, refused);
}
