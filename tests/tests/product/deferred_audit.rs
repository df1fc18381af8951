//! When the deployed program sends its audit events: after the answer and before it can be frozen. The
//! program runs as a process below a Runtime API and an Extensions API, see [`support::environment`].
//!
//! [`support::environment`]: crate::support::environment

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::environment::{ANSWERED, EXTENSION_NEXT, FROZEN, RUNTIME_NEXT};
use crate::support::queue::{SEND_BEGINS, SEND_ENDS};
use crate::support::{Answer, Environment, Extensions, Mood, Request, World, call};

const LONG: Duration = Duration::from_secs(30);

fn search() -> Request {
    call(
        "retrieve",
        json!({ "query": "annual leave", "kb_id": "handbook" }),
    )
}

/// A world and a request that its function answers.
async fn world_and_request() -> (World, Request) {
    let world = World::start().await;
    let key = world.full_key().await;
    (world, search().key(&key))
}

/// The rows of the trail, after everything in the queue has been stored.
async fn rows(world: &World) -> usize {
    world.drain_queue().await;
    world.audit_items().await.len()
}

fn check_found(answer: &Answer) {
    assert_ne!(answer.structured()["items"], json!([]));
}

#[tokio::test]
async fn the_answer_leaves_first_and_nothing_is_frozen_before_the_event_is_sent() {
    let (world, request) = world_and_request().await;
    let mut function = Environment::start(&world, Extensions::Served, &[]).await;
    let timeline = function.timeline.clone();
    for round in 1..=2 {
        timeline.clear();
        world.queue.always(Mood::Held);
        check_found(&function.invoke(&request, LONG).await);
        // The caller has its answer; whatever the program does next, it does before this is over.
        timeline.reach(SEND_BEGINS, 1).await;
        timeline.reach(RUNTIME_NEXT, 1).await;
        world.queue.release();
        timeline.reach(FROZEN, 1).await;

        let steps = timeline.steps();
        let at = |step| steps.iter().position(|one| *one == step).unwrap();
        assert!(at(ANSWERED) < at(SEND_BEGINS), "{steps:?}");
        assert!(at(SEND_BEGINS) < at(SEND_ENDS), "{steps:?}");
        assert_eq!(steps[at(SEND_ENDS)..], [SEND_ENDS, EXTENSION_NEXT, FROZEN]);
        assert_eq!(rows(&world).await, round, "while the instance is frozen");
    }
    assert!(!function.log().contains("AUDIT_NOT_SENT"));
}

#[tokio::test]
async fn each_event_of_a_batch_is_sent_before_the_instance_is_frozen() {
    let world = World::start().await;
    let key = world.full_key().await;
    let one = |id: u32| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "list_knowledge_bases" } })
    };
    let batch: Vec<Value> = (1..=20).map(one).collect();
    let request = Request::post(Value::from(batch).to_string()).key(&key);
    let mut function = Environment::start(&world, Extensions::Served, &[]).await;
    let answer = function.invoke_to_the_end(&request).await;
    assert_eq!(answer.json().as_array().unwrap().len(), 20);
    assert_eq!(rows(&world).await, 20);
}

#[tokio::test]
async fn a_queue_that_takes_its_time_or_refuses_at_first_gets_the_event_before_the_freeze() {
    let (world, request) = world_and_request().await;
    let mut function = Environment::start(&world, Extensions::Served, &[]).await;
    let troubles: [&[Mood]; 4] = [
        &[Mood::Slow(Duration::from_millis(700))],
        // More than the SDK's own three attempts.
        &[Mood::Refuses(503, "ServiceUnavailable"); 5],
        &[Mood::Refuses(403, "RequestThrottled"); 5],
        &[Mood::Hangs, Mood::Refuses(500, "InternalFailure")],
    ];
    for (round, moods) in troubles.into_iter().enumerate() {
        world.queue.next(moods.iter().copied());
        check_found(&function.invoke_to_the_end(&request).await);
        assert_eq!(rows(&world).await, round + 1, "{moods:?}");
    }
    assert!(!function.log().contains("AUDIT_NOT_SENT"));
}

#[tokio::test]
async fn what_the_queue_does_not_take_in_time_is_in_the_log_in_full() {
    let (world, request) = world_and_request().await;
    let mut function = Environment::start(&world, Extensions::Served, &[]).await;
    let troubles = [
        Mood::Refuses(503, "ServiceUnavailable"),
        Mood::Refuses(400, "QueueDoesNotExist"),
        Mood::Hangs,
    ];
    for (round, mood) in troubles.into_iter().enumerate() {
        world.queue.always(mood);
        let frozen = function.timeline.count(FROZEN);
        check_found(&function.invoke(&request, Duration::from_secs(2)).await);
        function.timeline.reach(FROZEN, frozen + 1).await;
        let events = function.events_in_log();
        assert_eq!(events.len(), round + 1, "{mood:?}");
        assert_eq!(events[round]["tool"], "retrieve");
        assert_eq!(events[round]["key_id"], "key-full");
        assert_eq!(
            events[round]["parameters"],
            r#"{"query":"annual leave","kb_id":"handbook"}"#
        );
    }
    world.queue.always(Mood::Takes);
    check_found(&function.invoke_to_the_end(&request).await);
    assert_eq!(rows(&world).await, 1, "the next event goes its usual way");
}

#[tokio::test]
async fn the_end_of_the_process_waits_for_events_and_writes_down_what_cannot_be_sent() {
    let (world, request) = world_and_request().await;
    for (mood, sent, logged) in [(Mood::Held, 1, 0), (Mood::Hangs, 0, 1)] {
        let before = rows(&world).await;
        let mut function = Environment::start(&world, Extensions::Served, &[]).await;
        world.queue.next([mood]);
        world.queue.always(if mood == Mood::Held {
            Mood::Takes
        } else {
            mood
        });
        check_found(&function.invoke(&request, LONG).await);
        function.timeline.reach(SEND_BEGINS, 1).await;
        let status = function.terminate().await;
        assert!(status.success(), "{status}");
        assert_eq!(function.events_in_log().len(), logged, "{mood:?}");
        world.queue.release();
        assert_eq!(rows(&world).await - before, sent, "{mood:?}");
    }
}

#[tokio::test]
async fn without_extensions_the_event_is_sent_before_the_answer_and_the_start_says_so() {
    let (world, request) = world_and_request().await;
    let mut function = Environment::start(&world, Extensions::Missing, &[]).await;
    let said = "audit events are sent before the answer";
    assert_eq!(
        function.log().matches(said).count(),
        1,
        "{}",
        function.log()
    );
    check_found(&function.invoke_to_the_end(&request).await);
    let expected = [SEND_BEGINS, SEND_ENDS, ANSWERED, RUNTIME_NEXT, FROZEN];
    assert_eq!(function.timeline.steps(), expected);
    assert_eq!(rows(&world).await, 1);
}

#[tokio::test]
async fn in_strict_mode_the_intent_comes_before_the_work_and_the_outcome_before_the_answer() {
    let (world, request) = world_and_request().await;
    let strict = [("AUDIT_MODE", "strict")];
    let mut function = Environment::start(&world, Extensions::Served, &strict).await;
    check_found(&function.invoke_to_the_end(&request).await);
    let expected = [
        SEND_BEGINS,
        SEND_ENDS,
        SEND_BEGINS,
        SEND_ENDS,
        ANSWERED,
        RUNTIME_NEXT,
        FROZEN,
    ];
    assert_eq!(function.timeline.steps(), expected);
    assert_eq!(rows(&world).await, 2);
}

/// Prints what callers wait, by mode and by what the queue takes. Run it with
/// `cargo test -p raglan-tests --test product -- --ignored --nocapture what_the_trail_costs`.
#[tokio::test]
#[ignore = "a measurement"]
async fn what_the_trail_costs_a_caller() {
    const CALLS: usize = 40;
    let (world, request) = world_and_request().await;
    println!("mode, queue: median and 95th percentile of {CALLS} calls, ms until the answer");
    for (name, extensions, mode) in [
        ("deferred", Extensions::Served, "deferred"),
        ("deferred, no extension", Extensions::Missing, "deferred"),
        ("strict", Extensions::Served, "strict"),
    ] {
        let variables = [("AUDIT_MODE", mode), ("METRICS_ENABLED", "true")];
        let mut function = Environment::start(&world, extensions, &variables).await;
        for delay_ms in [0, 200] {
            world.queue.always(match delay_ms {
                0 => Mood::Takes,
                delay_ms => Mood::Slow(Duration::from_millis(delay_ms)),
            });
            let mut waits = Vec::new();
            for call in 0..=CALLS {
                let frozen = function.timeline.count(FROZEN);
                let began = Instant::now();
                check_found(&function.invoke(&request, LONG).await);
                let wait = began.elapsed();
                function.timeline.reach(FROZEN, frozen + 1).await;
                // Idle machines answer later: both rounds are idle equally long.
                tokio::time::sleep(Duration::from_millis(200 - delay_ms)).await;
                // The first one opens connections.
                if call > 0 {
                    waits.push(wait.as_secs_f64() * 1000.0);
                }
            }
            waits.sort_by(f64::total_cmp);
            let (median, slow) = (waits[CALLS / 2], waits[CALLS * 95 / 100]);
            println!("{name}, SQS at {delay_ms} ms: {median:.1} {slow:.1}");
        }
    }
}
