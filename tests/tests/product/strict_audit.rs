//! `AUDIT_MODE=strict`: no call without its intent on the queue, no answer without its outcome.

use std::collections::BTreeMap;

use raglan_core::audit::{AuditEvent, EventPhase};
use raglan_mcp::config::AuditMode;
use serde_json::{Value, json};
use tracing::Level;

use crate::support::message::REQUEST_ID;
use crate::support::queue::SEND_BEGINS;
use crate::support::{CapturedLog, Mood, Request, World, call, capture_log, rpc};

async fn strict_world() -> World {
    World::configured(|config| config.audit_mode = AuditMode::Strict).await
}

fn search() -> Request {
    call("retrieve", json!({ "query": "leave", "kb_id": "script" }))
}

/// Phase, status and class of every event in the trail.
async fn trail(world: &World) -> Vec<(EventPhase, u16, Option<String>)> {
    let events = world.audit_events().await;
    events.iter().map(shown).collect()
}

fn shown(event: &AuditEvent) -> (EventPhase, u16, Option<String>) {
    assert_eq!(event.request_id, REQUEST_ID);
    (event.phase, event.http_status, event.error_class.clone())
}

/// The events that are in the log because the queue did not take them.
fn in_log(log: &CapturedLog) -> Vec<AuditEvent> {
    let text = log.text();
    let entries = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries
        .filter(|entry| entry["marker"] == "AUDIT_NOT_SENT")
        .map(|entry| serde_json::from_str(entry["event"].as_str().unwrap()).unwrap())
        .collect()
}

#[tokio::test]
async fn a_call_has_an_intent_and_an_outcome_that_its_request_id_joins() {
    let world = strict_world().await;
    let key = world.full_key().await;
    // A failure that the SDK's own repetition mends changes nothing.
    world.queue.next([Mood::Refuses(503, "ServiceUnavailable")]);
    let prompt =
        json!({ "name": "answer_from_knowledge_base", "arguments": { "question": "leave" } });
    for request in [
        search(),
        rpc("prompts/get", prompt),
        rpc("resources/read", json!({ "uri": "kb://script" })),
    ] {
        let answer = request.key(&key).send(&world).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let events = world.audit_events().await;
        let last = &events[events.len() - 2..];
        let both = last.iter().map(shown).collect::<Vec<_>>();
        let expected = [
            (EventPhase::Intent, 0, None),
            (EventPhase::Outcome, 200, None),
        ];
        assert!(expected.iter().all(|one| both.contains(one)), "{both:?}");
        assert_eq!(last[0].parameters, last[1].parameters);
        assert_eq!(last[0].key_id, last[1].key_id);
        world.clock.advance_seconds(1);
    }
}

#[tokio::test]
async fn a_call_that_cannot_be_announced_is_a_503_and_no_engine_is_asked() {
    let world = strict_world().await;
    let key = world.full_key().await;
    for mood in [
        Mood::Refuses(503, "ServiceUnavailable"),
        Mood::Refuses(400, "QueueDoesNotExist"),
        Mood::Hangs,
    ] {
        world.queue.always(mood);
        let log = capture_log(Level::INFO);
        let answer = search().key(&key).send(&world).await;
        assert_eq!(answer.status, 503, "{mood:?}");
        assert_eq!(answer.json()["error"], "audit_unavailable");
        assert!(answer.headers.contains_key("retry-after"));
        assert_eq!(world.engine.calls(), 0, "{mood:?}");
        let logged: Vec<_> = in_log(&log).iter().map(shown).collect();
        let class = Some("audit_unavailable".to_owned());
        assert_eq!(logged, [(EventPhase::Outcome, 503, class)], "{mood:?}");
    }
    world.queue.always(Mood::Takes);
    search().key(&key).send(&world).await.structured();
    assert_eq!(trail(&world).await.len(), 2);
}

#[tokio::test]
async fn an_answer_whose_outcome_cannot_be_written_down_is_withheld() {
    let world = strict_world().await;
    let key = world.full_key().await;
    for (mood, outcomes_on_the_queue) in [
        (Mood::Refuses(400, "QueueDoesNotExist"), 0),
        (Mood::Hangs, 0),
        // Nobody can know that it arrived.
        (Mood::TakesAndHangs, 1),
    ] {
        world.queue.next([Mood::Takes]);
        world.queue.always(mood);
        let log = capture_log(Level::INFO);
        let answer = search().key(&key).send(&world).await;
        assert_eq!(answer.status, 503, "{mood:?}");
        assert!(!answer.body.contains("thirty days"), "{}", answer.body);
        let logged = in_log(&log);
        assert_eq!(logged.len(), 1, "{mood:?}");
        let class = Some("audit_unavailable".to_owned());
        assert_eq!(shown(&logged[0]), (EventPhase::Outcome, 503, class));
        assert_eq!(logged[0].result_count, Some(2), "it says what was withheld");

        let events = world.audit_events().await;
        let phases = events.iter().fold(BTreeMap::new(), |mut phases, event| {
            *phases.entry(event.phase.name()).or_insert(0) += 1;
            phases
        });
        let outcomes = phases.get("outcome").copied().unwrap_or(0);
        assert_eq!(outcomes, outcomes_on_the_queue, "{mood:?}");
        let known = events
            .iter()
            .any(|event| event.event_id == logged[0].event_id);
        assert!(!known, "the withheld outcome is an event of its own");
    }
    assert_eq!(world.engine.calls(), 3);
}

#[tokio::test]
async fn a_refusal_has_an_outcome_alone_and_is_withheld_without_it() {
    let world = strict_world().await;
    let key = world.full_key().await;
    let refusals = || {
        [
            (search(), 401, "key_missing"),
            (call("no_such", json!({})).key(&key), 200, "unknown_tool"),
            (Request::post("{").key(&key), 400, "malformed_json"),
        ]
    };
    for (request, status, class) in refusals() {
        let answer = request.send(&world).await;
        assert_eq!(answer.status, status, "{class}");
    }
    let all = trail(&world).await;
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all.iter().all(|(phase, ..)| *phase == EventPhase::Outcome));

    world.queue.always(Mood::Refuses(400, "QueueDoesNotExist"));
    for (request, _, class) in refusals() {
        assert_eq!(request.send(&world).await.status, 503, "{class}");
    }
    // What leaves no event does not need the queue.
    let sends = world.queue.timeline.count(SEND_BEGINS);
    assert_eq!(
        Request::new("GET", "/healthz").send(&world).await.status,
        200
    );
    assert_eq!(
        rpc("ping", json!({})).key(&key).send(&world).await.status,
        200
    );
    assert_eq!(world.queue.timeline.count(SEND_BEGINS), sends);
}

#[tokio::test]
async fn each_element_of_a_batch_is_announced_by_itself() {
    let world = strict_world().await;
    let key = world.full_key().await;
    let one = |id: u32| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "retrieve", "arguments": { "query": "leave", "kb_id": "script" } } })
    };
    let batch = json!([one(1), one(2), one(3)]).to_string();
    let answer = Request::post(batch).key(&key).send(&world).await;
    assert_eq!(answer.json().as_array().unwrap().len(), 3);
    let events = world.audit_events().await;
    for phase in [EventPhase::Intent, EventPhase::Outcome] {
        let of_phase = events.iter().filter(|event| event.phase == phase);
        let mut places: Vec<_> = of_phase.map(|event| event.batch_element).collect();
        places.sort_unstable();
        assert_eq!(places, [Some(0), Some(1), Some(2)], "{phase:?}");
    }
}
