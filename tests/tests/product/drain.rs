//! The audit function: from the queue into the table, each event once, in the chain of its key and day.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_lambda_events::sqs::SqsEvent;
use raglan_cli::system::AUDIT_TIMEOUT;
use raglan_core::audit_chain::verify;
use raglan_core::random::{Random as _, SequenceRandom};
use raglan_mcp::config::AuditMode;
use raglan_store::dead_letters::{MESSAGE_ID, REASON};
use serde_json::{Value, json};

use crate::support::{World, call};

const DAY: &str = "2026-11-29";

fn event(id: &str, key: &str) -> String {
    let event = json!({
        "schema_version": 2, "event_id": id, "at": format!("{DAY}T23:59:59.999Z"),
        "request_id": "r", "decision": "allowed", "http_status": 200, "key_id": key,
        "duration_ms": 3,
    });
    event.to_string()
}

fn batch(bodies: &[String]) -> SqsEvent {
    let records = bodies.iter().enumerate();
    let records: Vec<Value> = records
        .map(|(n, body)| json!({"messageId": format!("m{n}"), "body": body}))
        .collect();
    serde_json::from_value(json!({ "Records": records })).unwrap()
}

/// Hands a batch to the audit function and returns the identifiers that it wants again.
async fn handle(world: &World, bodies: &[String]) -> Vec<String> {
    let handler = world.audit_handler();
    let response = handler.handle(batch(bodies), AUDIT_TIMEOUT).await;
    let failures = response.batch_item_failures.into_iter();
    failures.map(|failure| failure.item_identifier).collect()
}

/// The chain's length, after it was verified.
async fn verified(world: &World, key: &str, day: &str) -> u64 {
    let table = world.audit_table();
    let head = table.head(key, day).await.unwrap();
    let records = table.chain(key, day).await.unwrap();
    assert_eq!(verify(&records, head, head, &[]), []);
    head.sequence
}

#[tokio::test]
async fn what_is_no_event_becomes_a_dead_letter_with_the_reason_and_holds_back_nobody() {
    let world = World::start().await;
    let bodies = [
        event("e1", "key-1"),
        "no json".to_owned(),
        event("e2", "key-1"),
        json!({"event_id": "e3"}).to_string(),
    ];
    assert_eq!(handle(&world, &bodies).await, [""; 0]);
    assert_eq!(verified(&world, "key-1", DAY).await, 2);
    let url = &world.resources.audit_dead_letter_queue_url;
    let receive = world.clients.sqs.sdk().receive_message().queue_url(url);
    let receive = receive.max_number_of_messages(10);
    let received = receive.message_attribute_names("All").send().await;
    let letters = received.unwrap().messages.unwrap();
    let letters: BTreeSet<_> = letters
        .iter()
        .map(|letter| {
            let attributes = letter.message_attributes().unwrap();
            let text = |name| attributes[name].string_value().unwrap();
            (text(MESSAGE_ID), text(REASON), letter.body().unwrap())
        })
        .collect();
    let no_json = "not an audit event: not a JSON object";
    let no_event = "not an audit event: a field is missing or of an unexpected kind";
    let expected = [
        ("m1", no_json, "no json"),
        ("m3", no_event, r#"{"event_id":"e3"}"#),
    ];
    assert_eq!(letters, BTreeSet::from(expected));
}

#[tokio::test]
async fn whatever_comes_in_whatever_order_and_how_often_is_stored_once_and_linked() {
    let world = World::start().await;
    let keys = ["key-1", "key-2", "key-3"];
    let all: Vec<String> = (0..30)
        .map(|n| event(&format!("e{n:02}"), keys[n % keys.len()]))
        .collect();
    let random = SequenceRandom::seeded(7);
    let below = |limit: usize| {
        let mut byte = [0];
        random.fill(&mut byte).unwrap();
        usize::from(byte[0]) % limit
    };
    // Drains at the same time, whose batches overlap, and repeat what they hold themselves.
    let batches: Vec<Vec<String>> = (0..24)
        .map(|_| (0..10).map(|_| all[below(all.len())].clone()).collect())
        .collect();
    for at_once in batches.chunks(4) {
        let handled = at_once.iter().map(|bodies| handle(&world, bodies));
        for failed in futures::future::join_all(handled).await {
            assert_eq!(failed, [""; 0]);
        }
    }
    let sent: BTreeSet<_> = batches.iter().flatten().collect();
    let mut stored = 0;
    for key in keys {
        stored += verified(&world, key, DAY).await;
    }
    assert_eq!(stored, sent.len() as u64);
    assert_eq!(world.audit_items().await.len(), sent.len());
}

#[tokio::test]
async fn what_the_table_is_away_for_is_tried_again_and_comes_again_when_there_is_no_time_left() {
    let world = World::start().await;
    let bodies = [event("e1", "key-1"), event("e2", "key-2")];
    let handler = world.gated_audit_handler();
    world.dynamodb.close();
    let response = handler.handle(batch(&bodies), Duration::from_millis(1_200));
    assert_eq!(response.await.batch_item_failures.len(), 2);

    let comes_back = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.dynamodb.open();
    };
    let settling = handler.handle(batch(&bodies), AUDIT_TIMEOUT);
    let (response, ()) = futures::join!(settling, comes_back);
    assert_eq!(response.batch_item_failures.len(), 0);
    assert_eq!(world.audit_items().await.len(), 2);
}

#[tokio::test]
async fn an_event_belongs_to_the_chain_of_the_day_on_which_it_happened() {
    let world = World::start().await;
    assert!(crate::support::NOW > DAY, "the event comes on a later day");
    assert_eq!(handle(&world, &[event("late", "key-1")]).await, [""; 0]);
    assert_eq!(verified(&world, "key-1", DAY).await, 1);
    let table = world.audit_table();
    // No root can cover the day yet.
    let open = table.open_before("2026-11-30").await.unwrap();
    assert_eq!((&*open[0].key, &*open[0].day), ("key-1", DAY));
}

#[tokio::test]
async fn an_intent_and_its_outcome_are_neighbours_in_one_chain() {
    let world = World::configured(|config| config.audit_mode = AuditMode::Strict).await;
    let key = world.full_key().await;
    let arguments = json!({ "query": "leave", "kb_id": "script" });
    call("retrieve", arguments).key(&key).send(&world).await;
    let events = world.audit_events().await;
    assert_eq!(events.len(), 2);
    assert_eq!(events[0].request_id, events[1].request_id);
    assert_eq!(events[0].partition(), events[1].partition());
    let day = events[0].at.day();
    assert_eq!(verified(&world, "key-full", &day).await, 2);
}
