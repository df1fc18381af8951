//! Each thing is broken on purpose; the doctor names it and says what to do.

use std::sync::Arc;

use raglan_core::clock::{Clock as _, SystemClock};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::Outcome;
use crate::dev::serve::serve;
use crate::testing::{Ran, World};

/// A local system whose endpoint answers on a port of its own until this is dropped.
struct Patient {
    world: World,
    url: String,
    _stop: watch::Sender<bool>,
}

impl Patient {
    async fn admit() -> Self {
        let world = World::start().await;
        // The endpoint tells the real time.
        let ahead = SystemClock.now().epoch_seconds() - world.clock.now().epoch_seconds();
        world.clock.advance_seconds(ahead);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let app = Arc::new(world.target.local_system().unwrap().app().unwrap());
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(serve(listener, app, stopped));
        Self {
            world,
            url,
            _stop: stop,
        }
    }

    async fn examine(&self, options: &[&str]) -> Ran {
        let line = [&["doctor", "--json", "--url", &self.url], options].concat();
        self.world.run(&line).await
    }
}

/// The finding about that, the first one that is not ok if there is one.
fn finding(ran: &Ran, check: &str) -> Value {
    let report = ran.json();
    let of_check = report["findings"].as_array().unwrap().iter();
    let mut of_check = of_check.filter(|finding| finding["check"] == check);
    let first = of_check
        .clone()
        .next()
        .unwrap_or_else(|| panic!("{check}: {ran:?}"));
    let broken = of_check.find(|finding| finding["state"] != "ok");
    broken.unwrap_or(first).clone()
}

fn assert_broken(ran: &Ran, check: &str, state: &str, words: &str) {
    let found = finding(ran, check);
    assert_eq!(found["state"], state, "{found}");
    let detail = found["detail"].as_str().unwrap();
    assert!(detail.contains(words), "{detail}");
    assert!(found["advice"].is_string(), "{found}");
    let expected = if state == "failed" {
        Outcome::Failed
    } else {
        Outcome::Incomplete
    };
    assert_eq!(ran.outcome, expected, "{ran:?}");
}

#[tokio::test]
async fn a_healthy_system_passes_and_the_temporary_key_is_gone_afterwards() {
    let patient = Patient::admit().await;
    patient.world.key(&["--tools", "all", "--kb", "all"]).await;
    let add = ["kb", "add", "notes", "--description", "Notes"];
    assert_eq!(patient.world.run(&add).await.outcome, Outcome::Done);
    let ran = patient.examine(&["--temporary-key"]).await;
    for check in [
        "endpoint",
        "clock",
        "no_key",
        "key",
        "table",
        "audit_queue",
        "dead_letters",
        "keys",
    ] {
        assert_eq!(finding(&ran, check)["state"], "ok", "{ran:?}");
    }
    let keys = patient.world.target.keys().unwrap().list().await.unwrap();
    let temporary = keys.iter().find(|key| key.name == "raglan doctor").unwrap();
    assert!(temporary.revoked_at.is_some());
    let trail = patient.world.trail().await;
    let of_doctor = trail
        .iter()
        .filter(|event| event.key_id.as_ref() == Some(&temporary.key_id));
    assert!(of_doctor.count() >= 4, "made, revoked, and what it called");
}

#[tokio::test]
async fn a_knowledge_base_without_an_index_is_named() {
    let patient = Patient::admit().await;
    let add = ["kb", "add", "notes", "--description", "Notes"];
    assert_eq!(patient.world.run(&add).await.outcome, Outcome::Done);
    let ran = patient.examine(&["--temporary-key"]).await;
    assert_broken(&ran, "knowledge", "failed", "notes cannot be searched");
}

#[tokio::test]
async fn an_endpoint_that_nobody_answers_at_is_named() {
    let patient = Patient::admit().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", closed.local_addr().unwrap());
    drop(closed);
    let ran = patient
        .world
        .run(&["doctor", "--json", "--url", &url])
        .await;
    assert_broken(&ran, "endpoint", "failed", "does not answer");
}

#[tokio::test]
async fn a_wrong_path_is_named() {
    let patient = Patient::admit().await;
    let url = patient.url.replace("/mcp", "/elsewhere");
    let ran = patient
        .world
        .run(&["doctor", "--json", "--url", &url])
        .await;
    assert_broken(&ran, "no_key", "failed", "another path");
}

#[tokio::test]
async fn a_clock_that_is_off_is_named() {
    let patient = Patient::admit().await;
    patient.world.clock.advance_seconds(600);
    let ran = patient.examine(&[]).await;
    assert_broken(&ran, "clock", "failed", "ahead of the endpoint");
}

#[tokio::test]
async fn a_key_that_does_not_work_or_may_not_is_named() {
    let patient = Patient::admit().await;
    let (id, key) = patient.world.key(&["--tools", "ask", "--kb", "all"]).await;
    let ran = patient.examine(&["--key", &key]).await;
    assert_broken(&ran, "key", "failed", "list_knowledge_bases is refused");
    patient.world.run(&["key", "revoke", &id, "--yes"]).await;
    let ran = patient.examine(&["--key", &key]).await;
    assert_broken(&ran, "key", "failed", "the key is refused");
    assert!(!ran.out.contains(&key) && !ran.err.contains(&key));
}

#[tokio::test]
async fn a_lost_table_is_named() {
    let patient = Patient::admit().await;
    patient.world.key(&["--tools", "all", "--kb", "all"]).await;
    let target = &patient.world.target;
    let (_, table) = target.tables()[3];
    let clients = target.clients();
    let delete = clients
        .dynamodb
        .sdk()
        .delete_table()
        .table_name(table.unwrap());
    delete.send().await.unwrap();
    let ran = patient.examine(&[]).await;
    assert_broken(&ran, "table", "failed", "the audit table");
}

#[tokio::test]
async fn a_lost_queue_is_named() {
    let mut patient = Patient::admit().await;
    patient.world.key(&["--tools", "all", "--kb", "all"]).await;
    let url = patient.world.target.audit_queue_url().unwrap();
    let gone = format!("{url}-gone");
    patient.world.target = patient.world.target.with_audit_queue(Some(&gone));
    let ran = patient.examine(&[]).await;
    assert_broken(&ran, "audit_queue", "failed", "cannot be looked at");
}

#[tokio::test]
async fn dead_letters_are_counted() {
    let patient = Patient::admit().await;
    patient.world.key(&["--tools", "all", "--kb", "all"]).await;
    let system = patient.world.target.local_system().unwrap();
    let url = &system.resources.audit_dead_letter_queue_url;
    let send = system.clients.sqs.sdk().send_message().queue_url(url);
    send.message_body("{}").send().await.unwrap();
    let ran = patient.examine(&[]).await;
    assert_broken(&ran, "dead_letters", "failed", "1 audit events");
}

#[tokio::test]
async fn a_key_near_its_quota_or_its_end_is_named() {
    let patient = Patient::admit().await;
    let options = [
        "--tools",
        "all",
        "--kb",
        "all",
        "--expires",
        "3d",
        "--quota",
        "retrieve=5",
    ];
    let (id, key) = patient.world.key(&options).await;
    for _ in 0..4 {
        patient
            .world
            .run(&["doctor", "--url", &patient.url, "--key", &key])
            .await;
        patient.world.ask(&key).await;
    }
    let ran = patient.examine(&[]).await;
    assert_broken(&ran, "keys", "warning", &id);
}

#[tokio::test]
async fn people_read_a_table_with_the_advice_below_each_finding() {
    let world = World::start().await;
    let ran = world.run(&["doctor"]).await;
    assert_eq!(ran.outcome, Outcome::Incomplete, "no key works: {ran:?}");
    assert!(ran.out.starts_with("STATE    CHECK"), "{}", ran.out);
    assert!(
        ran.out.contains("→ Make one with `raglan key create`."),
        "{}",
        ran.out
    );
}
