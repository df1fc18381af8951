//! How much a key may ask, and what its callers are told about it.

use std::collections::BTreeMap;

use raglan_core::clock::Clock as _;
use raglan_core::key_record::{RateLimit, ScopeKind};
use raglan_core::tool::Tool;
use raglan_mcp::config::{Config, LimiterFailure};
use raglan_store::{LeaseStore, UsageStore};
use serde_json::{Value, json};

use crate::support::message::REQUEST_ID;
use crate::support::{Answer, Behaviour, Request, World, call, rpc};

fn limited(requests_per_minute: u32, burst: u32) -> impl FnOnce(&mut Config) {
    move |config| {
        config.limits.rate = RateLimit {
            requests_per_minute,
            burst,
        }
    }
}

fn retrieve() -> Request {
    call("retrieve", json!({ "query": "leave", "kb_id": "script" }))
}

fn ask(more: &Value) -> Request {
    let mut arguments = json!({ "question": "How many days of leave?", "kb_id": "script" });
    for (name, value) in more.as_object().unwrap() {
        arguments[name] = value.clone();
    }
    call("ask", arguments)
}

fn rate_headers(answer: &Answer) -> (Option<&str>, Option<&str>) {
    let header = |name| answer.headers.get(name).map(String::as_str);
    (header("ratelimit-policy"), header("ratelimit"))
}

#[tokio::test]
async fn whoever_asks_too_much_is_told_when_to_come_again() {
    let world = World::configured(limited(60, 3)).await;
    let key = world.full_key().await;
    for left in [
        "\"default\";r=2;t=1",
        "\"default\";r=1;t=2",
        "\"default\";r=0;t=1",
    ] {
        let answer = retrieve().key(&key).send(&world).await;
        answer.structured();
        assert_eq!(
            rate_headers(&answer),
            (Some("\"default\";q=3;w=3"), Some(left))
        );
    }
    let calls = world.engine.calls();
    let refused = retrieve().key(&key).send(&world).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["retry-after"], "1");
    let told = (Some("\"default\";q=3;w=3"), Some("\"default\";r=0;t=1"));
    assert_eq!(rate_headers(&refused), told);
    assert_eq!(refused.json()["error"], "rate_limited");
    assert_eq!(refused.json()["request_id"], REQUEST_ID);
    assert_eq!(world.engine.calls(), calls);

    world.clock.advance_seconds(1);
    retrieve().key(&key).send(&world).await.structured();
    let events = world.audit_events().await;
    let limited: Vec<_> = events
        .iter()
        .filter(|event| event.decision.name() == "limited")
        .collect();
    assert_eq!(limited.len(), 1);
    assert_eq!(limited[0].tool.as_deref(), Some("retrieve"));
    assert_eq!(limited[0].error_class.as_deref(), Some("rate_limited"));
    assert_eq!(limited[0].key_id.as_deref(), Some("key-full"));
}

#[tokio::test]
async fn only_tool_calls_count_and_a_batch_counts_each_of_them() {
    let world = World::configured(limited(60, 4)).await;
    let key = world.full_key().await;
    for _ in 0..10 {
        let answer = rpc("tools/list", Value::Null).key(&key).send(&world).await;
        assert_eq!((answer.status, rate_headers(&answer)), (200, (None, None)));
    }
    let one = |id: u32| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "list_knowledge_bases", "arguments": {} } })
    };
    let batch = json!([one(1), one(2), { "jsonrpc": "2.0", "id": 3, "method": "ping" }, one(4)]);
    let batch = || {
        let request = Request::post(batch.to_string()).key(&key);
        request.header("mcp-protocol-version", "2025-03-26")
    };
    assert_eq!(batch().send(&world).await.status, 200);
    assert_eq!(
        batch().send(&world).await.status,
        429,
        "one call is left, three are wanted"
    );
    assert_eq!(retrieve().key(&key).send(&world).await.status, 200);

    let usage = UsageStore::new(world.clients.dynamodb.clone(), &world.resources.state_table);
    let usage = usage.of(&key.hash()).await.unwrap().unwrap();
    assert_eq!(usage.call_count, 4);
    let today = BTreeMap::from([(Tool::ListKnowledgeBases, 3), (Tool::Retrieve, 1)]);
    assert_eq!(usage.by_tool, today);
}

#[tokio::test]
async fn a_keys_own_limit_comes_first_and_a_change_acts_on_the_next_call() {
    let world = World::configured(limited(60, 1)).await;
    let generous = RateLimit {
        requests_per_minute: 6000,
        burst: 100,
    };
    let key = world
        .key("key-1", |record| record.rate_limit = Some(generous))
        .await;
    for _ in 0..5 {
        retrieve().key(&key).send(&world).await.structured();
    }
    let strict = RateLimit {
        requests_per_minute: 1,
        burst: 1,
    };
    world
        .change_key(&key, |record| record.rate_limit = Some(strict))
        .await;
    world.clock.advance_seconds(1);
    retrieve().key(&key).send(&world).await;
    assert_eq!(retrieve().key(&key).send(&world).await.status, 429);
    world
        .change_key(&key, |record| record.rate_limit = Some(generous))
        .await;
    world.clock.advance_seconds(60);
    retrieve().key(&key).send(&world).await.structured();
    let other = world.key("key-2", |_| {}).await;
    retrieve().key(&other).send(&world).await.structured();
}

#[tokio::test]
async fn a_used_up_quota_is_a_tool_error_that_says_when_it_begins_anew() {
    let world = World::configured(|config| {
        config.limits.daily_quotas = BTreeMap::from([(Tool::Ask, 2)]);
    })
    .await;
    let key = world.full_key().await;
    for _ in 0..2 {
        ask(&json!({})).key(&key).send(&world).await.structured();
    }
    let calls = world.engine.calls();
    let (text, meta) = ask(&json!({})).key(&key).send(&world).await.tool_error();
    assert!(text.contains("`ask` 2 times a day"), "{text}");
    assert!(text.contains("T00:00:00.000Z"), "{text}");
    assert_eq!(
        (&meta["code"], &meta["retryable"]),
        (&"daily_quota_used_up".into(), &false.into())
    );
    assert_eq!(world.engine.calls(), calls);
    retrieve().key(&key).send(&world).await.structured();

    world.clock.advance_seconds(86_400);
    ask(&json!({})).key(&key).send(&world).await.structured();
}

#[tokio::test]
async fn while_calls_cannot_be_counted_questions_are_refused_and_cheap_tools_answer() {
    for (policy, cheap) in [
        (LimiterFailure::OpenForCheap, 200),
        (LimiterFailure::Closed, 503),
    ] {
        let world = World::configured(|config| {
            limited(60, 3)(config);
            config.limiter_failure = policy;
        })
        .await;
        let key = world.full_key().await;
        let delete = world.clients.dynamodb.sdk().delete_table();
        delete
            .table_name(&world.resources.state_table)
            .send()
            .await
            .unwrap();
        let refused = ask(&json!({})).key(&key).send(&world).await;
        assert_eq!(refused.status, 503);
        assert!(refused.headers.contains_key("retry-after"));
        assert_eq!(
            retrieve().key(&key).send(&world).await.status,
            cheap,
            "{policy:?}"
        );
        let events = world.audit_events().await;
        let classes = events
            .iter()
            .filter_map(|event| event.error_class.as_deref());
        assert_eq!(classes.collect::<Vec<_>>(), ["limiter_unavailable"; 2]);
    }
}

#[tokio::test]
async fn an_address_that_keeps_failing_costs_no_store_request_and_a_working_key_is_not_held_up() {
    let world = World::configured(|config| config.auth_failures_per_minute = 3).await;
    let (good, new) = (world.full_key().await, world.key("key-2", |_| {}).await);
    let bad = world.key("key-3", |record| record.enabled = false).await;
    retrieve().key(&good).send(&world).await.structured();
    for _ in 0..3 {
        assert_eq!(retrieve().key(&bad).send(&world).await.status, 401);
    }
    world.dynamodb.close();
    let refused = retrieve().key(&bad).send(&world).await;
    assert_eq!(refused.status, 429, "without asking the store: it is away");
    assert_eq!(refused.headers["retry-after"], "20");
    assert_eq!(refused.json()["error"], "too_many_failures");
    world.dynamodb.open();
    retrieve().key(&good).send(&world).await.structured();
    assert_eq!(retrieve().key(&new).send(&world).await.status, 429);
    world.clock.advance_seconds(20);
    retrieve().key(&new).send(&world).await.structured();
}

#[tokio::test]
async fn the_same_question_with_the_same_idempotency_key_is_answered_once() {
    let world = World::start().await;
    let (key, other) = (world.full_key().await, world.key("key-2", |_| {}).await);
    let keyed = json!({ "idempotency_key": "k-1" });
    let first = ask(&keyed).key(&key).send(&world).await.structured();
    let calls = world.engine.calls();
    let again = ask(&keyed).key(&key).send(&world).await.structured();
    assert_eq!(world.engine.calls(), calls);
    assert_eq!(
        (first.get("replayed"), &again["replayed"]),
        (None, &true.into())
    );
    assert_eq!(first["session_id"], again["session_id"]);
    assert_eq!(first["answer"], again["answer"]);

    let different = json!({ "idempotency_key": "k-1", "top_k": 2 });
    let (text, meta) = ask(&different).key(&key).send(&world).await.tool_error();
    assert_eq!(meta["code"], "idempotency_key_reused", "{text}");
    let of_another = ask(&keyed).key(&other).send(&world).await.structured();
    assert_eq!(of_another.get("replayed"), None);
    assert_ne!(of_another["session_id"], first["session_id"]);

    world
        .change_key(&key, |record| record.scope = ScopeKind::None)
        .await;
    let code = ask(&keyed).key(&key).send(&world).await.code();
    assert_eq!(
        code,
        Some(-32001),
        "what was kept is no way around a narrower scope"
    );
    world
        .change_key(&key, |record| record.scope = ScopeKind::All)
        .await;
    world.clock.advance_seconds(900);
    assert_eq!(
        ask(&keyed)
            .key(&key)
            .send(&world)
            .await
            .structured()
            .get("replayed"),
        None
    );
}

#[tokio::test]
async fn a_question_that_failed_frees_its_idempotency_key_and_its_place() {
    let world = World::configured(|config| config.ask_concurrency = 1).await;
    let key = world.full_key().await;
    let keyed = json!({ "idempotency_key": "k-1" });
    for behaviour in [
        Behaviour::Unavailable("away".to_owned()),
        Behaviour::Panics,
        Behaviour::Hangs,
    ] {
        world.engine.order("script", behaviour);
        let deadline = world.clock.now().epoch_ms() + 1_500;
        let failed = ask(&keyed)
            .key(&key)
            .deadline_epoch_ms(deadline)
            .send(&world)
            .await;
        assert!(failed.json()["error"].is_object() || failed.json()["result"]["isError"] == true);
    }
    let invalid = json!({ "idempotency_key": "k-1", "top_k": "many" });
    ask(&invalid).key(&key).send(&world).await.tool_error();
    for wrong in [json!(""), json!("x".repeat(129)), json!(7)] {
        let (text, _) = ask(&json!({ "idempotency_key": wrong }))
            .key(&key)
            .send(&world)
            .await
            .tool_error();
        assert!(text.contains("idempotency_key"), "{text}");
    }
    world.engine.order("script", Behaviour::Empty);
    assert_eq!(
        ask(&keyed)
            .key(&key)
            .send(&world)
            .await
            .structured()
            .get("replayed"),
        None
    );
}

#[tokio::test]
async fn more_questions_at_once_than_allowed_are_refused_until_one_is_answered() {
    let world = World::configured(|config| config.ask_concurrency = 2).await;
    let key = world.full_key().await;
    let leases = LeaseStore::new(world.clients.dynamodb.clone(), &world.resources.state_table);
    let now = world.clock.now();
    let mut taken = Vec::new();
    for _ in 0..2 {
        let lease = leases
            .take(&key.hash(), 2, 0, now, now.plus_seconds(30))
            .await
            .unwrap();
        taken.push(lease.unwrap());
    }
    let keyed = json!({ "idempotency_key": "k-1" });
    let (text, meta) = ask(&keyed).key(&key).send(&world).await.tool_error();
    assert_eq!(
        (&meta["code"], &meta["retryable"]),
        (&"too_many_at_once".into(), &true.into())
    );
    assert!(text.contains("2 questions"), "{text}");
    retrieve().key(&key).send(&world).await.structured();
    leases.give_back(&taken[0]).await.unwrap();
    for _ in 0..3 {
        ask(&keyed).key(&key).send(&world).await.structured();
    }
}
