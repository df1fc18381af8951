//! Finding events, and sending again what is only in a log.

use std::collections::BTreeSet;
use std::fs;

use raglan_core::audit_chain::{HASH, hash_of};
use raglan_core::clock::Clock as _;
use raglan_store::audit_table::{Bounds, Slice};
use serde_json::{Value, json};

use crate::Outcome;
use crate::audit::tail::Follower;
use crate::testing::World;

/// Three calls on one day: two of a key, one of another key that belongs to somebody and may not do it;
/// and one of an unknown key on the next day.
async fn world_with_calls() -> (World, String, String) {
    let world = World::start().await;
    let (first, first_key) = world.key(&["--tools", "all", "--kb", "all"]).await;
    let (second, second_key) = world.key(&["--tools", "ask", "--owner", "anna"]).await;
    for key in [&first_key, &first_key, &second_key] {
        world.clock.advance_seconds(60);
        world.ask(key).await;
    }
    world.trail().await;
    world.clock.advance_seconds(86_460);
    world.ask("rgl_nobody_has_this_key").await;
    world.trail().await;
    (world, first, second)
}

async fn found(world: &World, options: &[&str]) -> Vec<Value> {
    let line = [&["audit", "query", "--since", "3d", "--json"], options].concat();
    let ran = world.run(&line).await;
    assert_eq!(ran.outcome, Outcome::Done, "{ran:?}");
    let events = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    events.collect()
}

#[tokio::test]
async fn events_are_found_by_key_owner_tool_decision_and_time() {
    let (world, first, second) = world_with_calls().await;
    let count = async |options: &[&str]| found(&world, options).await.len();
    let tool = ["--tool", "list_knowledge_bases"];
    assert_eq!(count(&tool).await, 3);
    assert_eq!(count(&["--key", &first]).await, 4);
    assert_eq!(count(&[&["--key", &*first], &tool[..]].concat()).await, 2);
    assert_eq!(count(&["--owner", "anna"]).await, 3);
    assert_eq!(count(&["--owner", "bo"]).await, 0);
    assert_eq!(count(&["--key", &second, "--decision", "denied"]).await, 1);
    assert_eq!(count(&["--decision", "unauthenticated"]).await, 1);
    assert_eq!(count(&["--key", "key-000000000000"]).await, 0);
    let fingerprint = world.run(&["key", "show", &first, "--json"]).await;
    let fingerprint = fingerprint.text("/fingerprint");
    assert_eq!(count(&["--key", &fingerprint]).await, 4);

    let lines = async |options: &[&str]| {
        let ran = world
            .run(&[&["audit", "query", "--json"], options].concat())
            .await;
        ran.out.lines().count()
    };
    assert_eq!(lines(&[]).await, 1);
    assert_eq!(
        lines(&["--from", "2027-01-15", "--to", "2027-01-15"]).await,
        7
    );
    let (from, to) = ("2027-01-15T08:01:30Z", "2027-01-15T08:02:30Z");
    assert_eq!(lines(&["--from", from, "--to", to]).await, 1);
    let backwards = ["audit", "query", "--from", to, "--to", from];
    assert_eq!(world.run(&backwards).await.outcome, Outcome::Usage);
}

#[tokio::test]
async fn the_latest_events_are_shown_oldest_first_and_what_is_left_out_is_said() {
    let (world, ..) = world_with_calls().await;
    let ran = world
        .run(&["audit", "query", "--since", "2d", "--limit", "2"])
        .await;
    let lines: Vec<_> = ran.out.lines().collect();
    assert!(lines[0].starts_with("TIME (UTC)"), "{ran:?}");
    assert!(lines[1].contains("denied") && lines[1].contains("list_knowledge_bases"));
    assert!(lines[2].contains("unauthenticated"), "{ran:?}");
    assert!(ran.err.contains("2 of 8 events"), "{ran:?}");
    let ran = world
        .run(&["audit", "query", "--since", "2d", "--csv"])
        .await;
    assert_eq!(ran.out.matches("\r\n").count(), 9);
    assert!(ran.out.starts_with("at,event_id,phase,decision,"));
}

#[tokio::test]
async fn an_export_has_every_event_once_with_all_that_its_hash_is_made_of() {
    let (world, ..) = world_with_calls().await;
    let file = world.folder.path().join("events.jsonl");
    let path = file.display().to_string();
    let line = ["audit", "export", "--since", "3d", "--out", &path];
    let ran = world.run(&line).await;
    assert_eq!((ran.outcome, &*ran.err), (Outcome::Done, "8 events\n"));
    let text = fs::read_to_string(&file).unwrap();
    let mut ids = BTreeSet::new();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let fields = event.as_object().unwrap();
        assert_eq!(fields[HASH], hash_of(fields).to_string());
        ids.insert(fields["event_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 8);
    // A file that is there is not written over.
    assert_eq!(world.run(&line).await.outcome, Outcome::Failed);
    let csv = world
        .run(&["audit", "export", "--since", "3d", "--csv"])
        .await;
    assert_eq!(csv.out.matches("\r\n").count(), 9);
}

#[tokio::test]
async fn a_follower_shows_each_event_once_also_one_that_came_late() {
    let world = World::start().await;
    let (_, key) = world.key(&["--tools", "all", "--kb", "all"]).await;
    world.trail().await;
    let table = world.target.audit_table().unwrap();
    let mut follower = Follower::of_all(table, world.clock.now());
    let new = async |follower: &mut Follower| {
        let events = follower.new_events(world.clock.as_ref()).await.unwrap();
        events.len()
    };
    let before = new(&mut follower).await;
    world.ask(&key).await;
    // The second call is stored before the first one, which still lies in the queue.
    world.clock.advance_seconds(30);
    assert_eq!(new(&mut follower).await, 0);
    world.trail().await;
    assert_eq!((before, new(&mut follower).await), (2, 1));
    world.ask(&key).await;
    world.trail().await;
    assert_eq!(new(&mut follower).await, 1);
    world.clock.advance_seconds(600);
    assert_eq!(new(&mut follower).await, 0);
}

fn event(id: &str) -> Value {
    json!({
        "schema_version": 2, "event_id": id, "at": "2027-01-15T07:00:00.000Z",
        "request_id": "r", "phase": "outcome", "decision": "allowed", "http_status": 200,
        "key_id": "key-lost", "duration_ms": 3, "unknown": {"kept": true},
    })
}

#[tokio::test]
async fn events_of_a_log_are_stored_once_however_often_they_are_recovered() {
    let world = World::start().await;
    let entry = |event: &Value| json!({"level": "ERROR", "marker": "AUDIT_NOT_SENT", "event": event.to_string()});
    let one = event("01a31825-6180-7000-8000-000000000001");
    let two = event("01a31825-6180-7000-8000-000000000002");
    // Nothing of ours, and nothing that could be found by its time.
    let foreign = event("event-3");
    let log = [
        "START RequestId: 1".to_owned(),
        entry(&one).to_string(),
        format!("2027-01-15T07:00:00.000Z {}", entry(&two)),
        entry(&one).to_string(),
        entry(&foreign).to_string(),
        "{\"marker\":\"AUDIT_NOT_SENT\",\"event\":\"{".to_owned(),
    ];
    let file = world.folder.path().join("log");
    fs::write(&file, log.join("\n")).unwrap();
    let path = file.display().to_string();
    for _ in 0..2 {
        let ran = world.run(&["audit", "recover", &path, "--json"]).await;
        assert_eq!(ran.outcome, Outcome::Incomplete, "{ran:?}");
        let expected = json!({"sent": 2, "repeated": 1, "other_lines": 1, "unreadable": 2});
        assert_eq!(ran.json(), expected);
        let stored = world.trail().await;
        assert_eq!(stored.len(), 2);
    }
    let events = found(&world, &["--key", "key-lost"]).await;
    assert_eq!(events.len(), 2);
    let table = world.target.audit_table().unwrap();
    let day = Slice::Key("key-lost", "2027-01-15");
    let records = table.all(day, Bounds::default()).await.unwrap();
    assert_eq!(records[0].fields()["unknown"]["kept"], true);
}
