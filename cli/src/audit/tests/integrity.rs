//! Closing days, and finding what was done to them.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use aws_sdk_dynamodb::types::AttributeValue;
use raglan_audit::closing::ClosingError;
use raglan_core::audit_chain::DayRoot;
use raglan_core::clock::Clock as _;
use serde_json::Value;

use crate::Outcome;
use crate::system::AUDIT_ROOTS_FOLDER;
use crate::testing::{DAY, Ran, World};

type Item = HashMap<String, AttributeValue>;

const FIRST_DAY: &str = "2027-01-15";

struct Trail {
    world: World,
    key: String,
}

impl Trail {
    /// Five calls of one key and what was done to make it, on a day that is over and closed.
    async fn closed() -> Self {
        let world = World::start().await;
        let (key_id, key) = world.key(&["--tools", "all", "--kb", "all"]).await;
        for _ in 0..5 {
            world.clock.advance_seconds(1);
            world.ask(&key).await;
        }
        world.trail().await;
        world.clock.advance_seconds(DAY);
        let trail = Self { world, key: key_id };
        assert_eq!(trail.close().await.unwrap().len(), 1);
        trail
    }

    async fn close(&self) -> Result<Vec<DayRoot>, ClosingError> {
        let system = self.world.target.local_system().unwrap();
        system.closer().close_days().await
    }

    fn root_file(&self, closing: u32) -> PathBuf {
        let state = self.world.folder.path().join("state");
        let day = state.join(AUDIT_ROOTS_FOLDER).join(FIRST_DAY);
        day.join(format!("{closing:06}.json"))
    }

    async fn verify(&self) -> Ran {
        self.world.run(&["audit", "verify", "--json"]).await
    }

    /// What verification finds: the word for the fault.
    async fn faults(&self) -> Vec<String> {
        let ran = self.verify().await;
        let json = ran.json();
        let findings = json["findings"].as_array().unwrap();
        let is_clean = findings.is_empty();
        assert_eq!(ran.outcome == Outcome::Failed, !is_clean, "{ran:?}");
        let words = findings
            .iter()
            .map(|finding| finding["fault"].as_str().unwrap());
        words.map(ToOwned::to_owned).collect()
    }

    fn table(&self) -> &str {
        self.world.target.tables()[3].1.unwrap()
    }

    fn client(&self) -> aws_sdk_dynamodb::Client {
        self.world.target.clients().dynamodb.sdk()
    }

    async fn items(&self, partition: &str) -> Vec<Item> {
        let scan = self.client().scan().table_name(self.table()).send().await;
        let items = scan.unwrap().items.unwrap().into_iter();
        let mut items: Vec<_> = items
            .filter(|item| item["partition"].as_s().unwrap().starts_with(partition))
            .collect();
        items.sort_by_key(|item| item["event_id"].as_s().unwrap().clone());
        items
    }

    async fn events(&self) -> Vec<Item> {
        self.items(&self.key).await
    }

    async fn put(&self, item: Item) {
        let put = self.client().put_item().table_name(self.table());
        put.set_item(Some(item)).send().await.unwrap();
    }

    async fn delete(&self, item: &Item) {
        let mut delete = self.client().delete_item().table_name(self.table());
        for name in ["partition", "event_id"] {
            delete = delete.key(name, item[name].clone());
        }
        delete.send().await.unwrap();
    }
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

#[tokio::test]
async fn a_closed_day_without_changes_has_no_faults() {
    let trail = Trail::closed().await;
    let ran = trail.verify().await;
    assert_eq!(ran.outcome, Outcome::Done, "{ran:?}");
    let days = ran.json()["days"].clone();
    let day = days
        .as_array()
        .unwrap()
        .iter()
        .find(|day| day["day"] == FIRST_DAY);
    let day = day.unwrap();
    assert_eq!(
        (&day["state"], &day["events"]),
        (&"closed".into(), &7.into())
    );
    // Nothing new: nothing to close.
    assert_eq!(trail.close().await.unwrap(), []);
    let text = trail.world.run(&["audit", "verify"]).await.out;
    assert!(
        text.contains("2027-01-15  closed     1         1       7"),
        "{text}"
    );
}

/// What the thousand manipulations of `raglan_core` do to records, here through the table's own API.
#[tokio::test]
async fn manipulations_of_the_table_are_found() {
    let trail = Trail::closed().await;
    let events = trail.events().await;

    let mut changed = events[3].clone();
    changed.insert("decision".to_owned(), text("denied"));
    trail.put(changed).await;
    assert_eq!(trail.faults().await, ["altered"]);
    trail.put(events[3].clone()).await;
    assert_eq!(trail.faults().await, [""; 0]);

    trail.delete(&events[2]).await;
    assert_eq!(trail.faults().await, ["missing"]);
    trail.put(events[2].clone()).await;

    let mut added = events[2].clone();
    added.insert(
        "event_id".to_owned(),
        text("01943b5c-0000-7000-8000-000000000000"),
    );
    trail.put(added.clone()).await;
    assert_eq!(trail.faults().await, ["altered"]);
    trail.delete(&added).await;

    // The order is in the records: two of them exchange their places.
    let (mut one, mut other) = (events[4].clone(), events[5].clone());
    for name in ["chain_sequence", "chain_previous", "chain_hash"] {
        one.insert(name.to_owned(), events[5][name].clone());
        other.insert(name.to_owned(), events[4][name].clone());
    }
    trail.put(one).await;
    trail.put(other).await;
    assert_eq!(trail.faults().await, ["altered", "altered"]);
    trail.put(events[4].clone()).await;
    trail.put(events[5].clone()).await;

    // In another chain.
    let mut moved = events[6].clone();
    moved.insert(
        "partition".to_owned(),
        text(&format!("key-other#{FIRST_DAY}")),
    );
    trail.delete(&events[6]).await;
    trail.put(moved.clone()).await;
    let mut faults = trail.faults().await;
    faults.sort_unstable();
    assert!(faults.contains(&"missing".to_owned()), "{faults:?}");
    assert!(faults.contains(&"altered".to_owned()), "{faults:?}");
    trail.delete(&moved).await;
    trail.put(events[6].clone()).await;

    // The newest records are cut off, and the head is moved back to what is left.
    let heads = trail.items("heads#").await;
    let mut head = heads[0].clone();
    head.insert("sequence".to_owned(), AttributeValue::N("5".to_owned()));
    head.insert("hash".to_owned(), events[4]["chain_hash"].clone());
    trail.put(head).await;
    trail.delete(&events[5]).await;
    trail.delete(&events[6]).await;
    assert_eq!(trail.faults().await, ["missing"]);

    // Nothing of the day is left.
    for item in trail.events().await.iter().chain(&heads) {
        trail.delete(item).await;
    }
    let ran = trail.verify().await;
    assert_eq!(ran.outcome, Outcome::Failed);
    let finding = &ran.json()["findings"][0];
    assert_eq!(
        (&finding["key"], &finding["day"]),
        (&trail.key.as_str().into(), &FIRST_DAY.into())
    );
    assert_eq!(finding["text"], "the events at places 1 to 7 are missing");
}

#[tokio::test]
async fn a_day_with_late_events_is_closed_again_and_every_root_is_a_witness() {
    let trail = Trail::closed().await;
    let system = trail.world.target.local_system().unwrap();
    let late = serde_json::json!({
        "schema_version": 2, "event_id": "01943b5c-0000-7000-8000-000000000001",
        "at": "2027-01-15T23:59:59.999Z", "request_id": "late", "phase": "outcome",
        "decision": "allowed", "http_status": 200, "key_id": trail.key, "duration_ms": 3,
    });
    let file = trail.world.folder.path().join("late");
    fs::write(&file, late.to_string()).unwrap();
    let recover = ["audit", "recover", file.to_str().unwrap()];
    assert_eq!(trail.world.run(&recover).await.outcome, Outcome::Done);
    system.store_audit_events().await.unwrap();
    let roots = trail.close().await.unwrap();
    assert_eq!((roots[0].closing, roots[0].event_count), (2, 8));
    assert_eq!(trail.faults().await, [""; 0]);

    // The first root alone knows the record at place 7.
    fs::remove_file(trail.root_file(2)).unwrap();
    assert_eq!(trail.faults().await, [""; 0]);
    fs::remove_file(trail.root_file(1)).unwrap();
    let mut root: Value = serde_json::to_value(&roots[0]).unwrap();
    fs::write(trail.root_file(2), root.to_string()).unwrap();
    assert_eq!(trail.faults().await, ["root_missing"]);
    root["event_count"] = 9.into();
    fs::remove_file(trail.root_file(2)).unwrap();
    fs::write(trail.root_file(1), root.to_string()).unwrap();
    assert_eq!(trail.faults().await, ["root_altered"]);
}

#[tokio::test]
async fn a_closing_that_ended_before_its_last_step_makes_no_second_root() {
    let world = World::start().await;
    let (key, _) = world.key(&["--tools", "ask"]).await;
    world.trail().await;
    world.clock.advance_seconds(DAY);
    let trail = Trail { world, key };
    let marks = trail.items("open#").await;
    assert_eq!(marks.len(), 1);
    assert_eq!(trail.close().await.unwrap().len(), 1);
    assert!(trail.items("open#").await.is_empty());
    trail.put(marks[0].clone()).await;
    assert_eq!(trail.close().await.unwrap(), []);
    assert!(trail.items("open#").await.is_empty());
    assert!(!trail.root_file(2).exists());
}

#[tokio::test]
async fn a_day_stays_open_until_its_root_is_kept() {
    let world = World::start().await;
    let (key, _) = world.key(&["--tools", "ask"]).await;
    world.trail().await;
    let trail = Trail { world, key };
    // The day is not over before its last events had time to come.
    assert_eq!(trail.close().await.unwrap(), []);
    let to_midnight = DAY - trail.world.clock.now().epoch_seconds() % DAY;
    trail.world.clock.advance_seconds(to_midnight + 60);
    assert_eq!(trail.close().await.unwrap(), []);
    trail.world.clock.advance_seconds(3_600);
    let in_the_way = trail
        .world
        .folder
        .path()
        .join("state")
        .join(AUDIT_ROOTS_FOLDER);
    fs::write(&in_the_way, "a file").unwrap();
    trail.close().await.unwrap_err();
    assert_eq!(trail.items("open#").await.len(), 1);
    fs::remove_file(&in_the_way).unwrap();
    assert_eq!(trail.close().await.unwrap().len(), 1);
    assert_eq!(trail.items("open#").await.len(), 0);
}

#[tokio::test]
async fn what_no_root_bears_witness_to_is_not_called_verified() {
    let trail = Trail::closed().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().display().to_string();
    let verify = async |options: &[&str]| {
        let line = [&["audit", "verify", "--json"], options].concat();
        trail.world.run(&line).await
    };
    // Yesterday may still be closed; the day before should have been.
    assert_eq!(verify(&["--roots", &path]).await.outcome, Outcome::Done);
    trail.world.clock.advance_seconds(DAY);
    let ran = verify(&["--roots", &path]).await;
    assert_eq!(ran.json()["findings"][0]["fault"], "not_closed");
    assert_eq!(
        verify(&["--roots", "/no/such"]).await.outcome,
        Outcome::NotFound
    );
    assert_eq!(
        verify(&["--roots", "s3://bucket"]).await.outcome,
        Outcome::Usage
    );
    trail.world.clock.advance_seconds(400 * DAY);
    let expired = verify(&["--from", FIRST_DAY, "--to", FIRST_DAY]).await;
    assert_eq!(expired.outcome, Outcome::Incomplete);
    assert_eq!(expired.json()["days"][0]["state"], "expired");
}
