//! Who changed what: the audit trail of the commands.

use raglan_core::audit::{AuditEvent, Phase};
use serde_json::{Value, json};

use crate::Outcome;
use crate::testing::World;

#[tokio::test]
async fn every_change_is_written_down_before_and_after_with_who_made_it() {
    let world = World::start().await;
    world
        .run(&["kb", "add", "a", "--description", "d", "--owner", "anna"])
        .await;
    world.run(&["kb", "owner", "a", "bo"]).await;
    let (id, _) = world.key(&["--tools", "ask", "--owner", "anna"]).await;
    world
        .run(&["key", "grant", &id, "--tools", "retrieve"])
        .await;
    // A change that changes nothing is none.
    world
        .run(&["key", "grant", &id, "--tools", "retrieve"])
        .await;
    world.run(&["key", "enable", &id]).await;
    world.run(&["key", "rotate", &id, "--yes", "--print"]).await;

    let trail = world.trail().await;
    let administration = |event: &AuditEvent| event.administration.clone().unwrap();
    let count = |phase| {
        let events = trail.iter().map(administration);
        events.filter(|change| change.phase == phase).count()
    };
    assert_eq!(
        (
            count(Phase::Intent),
            count(Phase::Done),
            count(Phase::Failed)
        ),
        (6, 6, 0)
    );
    let mut actions: Vec<_> = trail
        .iter()
        .map(administration)
        .filter(|change| change.phase == Phase::Done)
        .map(|change| change.action)
        .collect();
    actions.sort_unstable();
    assert_eq!(
        actions,
        [
            "key.create",
            "key.create",
            "key.grant",
            "key.rotate",
            "knowledge_base.add",
            "knowledge_base.move"
        ]
    );
    for event in &trail {
        let change = administration(event);
        assert!(change.operator.starts_with("local:"), "{event:?}");
        assert!(event.parameters.is_some() && event.http_status == 0);
        let partner = trail.iter().filter(|other| {
            other.request_id == event.request_id && administration(other).subject == change.subject
        });
        assert_eq!(partner.count(), 2, "{event:?}");
    }
    let grant = trail
        .iter()
        .find(|event| administration(event).action == "key.grant")
        .unwrap();
    assert_eq!(grant.key_id.as_deref(), Some(id.as_str()));
    assert_eq!(grant.owner.as_deref(), Some("anna"));
    let details: Value = serde_json::from_str(grant.parameters.as_deref().unwrap()).unwrap();
    assert_eq!(
        details,
        json!({"before": {"tools": ["ask"]}, "after": {"tools": ["retrieve"]}})
    );
}

#[tokio::test]
async fn what_the_audit_trail_cannot_be_told_is_not_done() {
    let mut world = World::start().await;
    world.run(&["kb", "add", "a", "--description", "d"]).await;
    let (id, key) = world.key(&["--tools", "all"]).await;
    let before = world.run(&["key", "show", &id, "--json"]).await.out;
    let path = world.folder.path().join("new.key");
    let path = path.to_str().unwrap();
    for queue in [Some("http://127.0.0.1:9/1/nobody"), None] {
        world.target = world.target.with_audit_queue(queue);
        for line in [
            &["key", "create", "x", "--out", path][..],
            &["key", "rotate", &id, "--yes", "--out", path],
            &["key", "grant", &id, "--tools", "none"],
            &["key", "revoke", &id, "--yes"],
            &["key", "disable", &id],
            &["key", "expire", &id, "1d"],
            &["kb", "add", "b", "--description", "d"],
            &["kb", "edit", "a", "--name", "b"],
            &["kb", "remove", "a", "--yes"],
        ] {
            let ran = world.run(line).await;
            assert_eq!(ran.outcome, Outcome::Refused, "{line:?} {ran:?}");
            assert!(ran.err.contains("nothing was changed"), "{ran:?}");
        }
        assert!(!std::path::Path::new(path).exists());
        assert_eq!(world.run(&["key", "show", &id, "--json"]).await.out, before);
        assert_eq!(
            world.run(&["kb", "show", "b"]).await.outcome,
            Outcome::NotFound
        );
    }

    // Closing a key must not wait for a queue; the event is kept by whoever closed it.
    for line in [
        ["key", "disable", &id, "--allow-unaudited"],
        ["key", "revoke", &id, "--allow-unaudited"],
    ] {
        let ran = world.run_on_terminal(&line, "yes\n").await;
        assert_eq!(ran.outcome, Outcome::Incomplete, "{ran:?}");
        let event = ran.err.lines().last().unwrap();
        let event = &event[event.find('{').unwrap()..];
        let event: AuditEvent = serde_json::from_str(event).unwrap();
        assert_eq!(event.administration.unwrap().phase, Phase::Done);
    }
    assert_eq!(world.status(&key).await, 401);
}
