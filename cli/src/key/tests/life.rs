//! A key from its creation to its end, seen by the operator and by the client.

use raglan_core::key::KeyHash;

use crate::Outcome;
use crate::testing::{DAY, World};

#[tokio::test]
async fn a_key_lives_from_its_creation_to_its_revocation() {
    let world = World::start().await;
    let (old_id, old) = world
        .key(&["--tools", "list_knowledge_bases", "--kb", "all"])
        .await;
    assert_eq!(world.status(&old).await, 200);

    let rotated = world
        .run(&[
            "key", "rotate", &old_id, "--grace", "2d", "--yes", "--print", "--json",
        ])
        .await;
    assert_eq!(rotated.outcome, Outcome::Done, "{rotated:?}");
    let (new_id, new) = (rotated.text("/key_id"), rotated.text("/key"));
    assert_eq!(rotated.text("/replaces/state"), "in_grace");
    assert_eq!(
        (world.status(&old).await, world.status(&new).await),
        (200, 200)
    );

    world.clock.advance_seconds(2 * DAY - 1);
    assert_eq!(
        (world.status(&old).await, world.status(&new).await),
        (200, 200)
    );
    world.clock.advance_seconds(1);
    assert_eq!(
        (world.status(&old).await, world.status(&new).await),
        (401, 200)
    );

    let again = world
        .run(&["key", "rotate", &old_id, "--yes", "--print"])
        .await;
    assert_eq!(again.outcome, Outcome::Refused, "{again:?}");

    let revoked = world.run(&["key", "revoke", &new_id, "--yes"]).await;
    assert_eq!(revoked.outcome, Outcome::Done, "{revoked:?}");
    assert_eq!(world.status(&new).await, 401);
    for line in [
        &["key", "enable", &new_id][..],
        &["key", "disable", &new_id],
        &["key", "expire", &new_id, "30d"],
        &["key", "grant", &new_id, "--tools", "all"],
        &["key", "rotate", &new_id, "--yes", "--print"],
    ] {
        let ran = world.run(line).await;
        assert_eq!(ran.outcome, Outcome::Refused, "{line:?} {ran:?}");
    }
    let again = world.run(&["key", "revoke", &new_id]).await;
    assert_eq!(again.outcome, Outcome::Done, "{again:?}");
}

#[tokio::test]
async fn what_switches_a_key_off_works_with_its_next_request() {
    let world = World::start().await;
    let (id, key) = world.key(&["--tools", "all", "--kb", "all"]).await;
    for (line, status) in [
        (&["key", "disable", &id][..], 401),
        (&["key", "enable", &id], 200),
        (&["key", "expire", &id, "1h"], 200),
        (&["key", "expire", &id, "never"], 200),
        (&["key", "expire", &id, "now", "--yes"], 401),
    ] {
        assert_eq!(world.run(line).await.outcome, Outcome::Done, "{line:?}");
        assert_eq!(world.status(&key).await, status, "{line:?}");
    }
    let back = world.run(&["key", "expire", &id, "1h"]).await;
    assert_eq!(back.outcome, Outcome::Refused);
    let (_, short) = world.key(&["--tools", "all", "--expires", "12h"]).await;
    assert_eq!(world.status(&short).await, 200);
    world.clock.advance_seconds(DAY / 2);
    assert_eq!(world.status(&short).await, 401);
}

#[tokio::test]
async fn a_narrowed_grant_holds_for_the_next_call() {
    let world = World::start().await;
    for id in ["a", "b"] {
        world.run(&["kb", "add", id, "--description", "d"]).await;
    }
    let (id, key) = world.key(&["--tools", "all", "--kb", "a,b"]).await;
    assert_eq!(world.sees(&key).await, ["a", "b"]);
    world.run(&["key", "grant", &id, "--remove-kb", "a"]).await;
    assert_eq!(world.sees(&key).await, ["b"]);
    world
        .run(&[
            "key",
            "grant",
            &id,
            "--remove-tools",
            "list_knowledge_bases",
        ])
        .await;
    assert_eq!(world.ask(&key).await.1["error"]["code"], -32001);
}

#[tokio::test]
async fn a_moved_knowledge_base_changes_sides_with_the_next_call() {
    let world = World::start().await;
    world
        .run(&[
            "kb",
            "add",
            "notes",
            "--description",
            "d",
            "--owner",
            "anna",
        ])
        .await;
    let (_, of_anna) = world
        .key(&["--tools", "all", "--kb", "all", "--owner", "anna"])
        .await;
    let (_, of_bo) = world
        .key(&["--tools", "all", "--kb", "all", "--owner", "bo"])
        .await;
    let nobody = Vec::<String>::new();
    assert_eq!(world.sees(&of_anna).await, ["notes"]);
    assert_eq!(world.sees(&of_bo).await, nobody);
    let moved = world.run(&["kb", "owner", "notes", "bo"]).await;
    assert_eq!(moved.outcome, Outcome::Done, "{moved:?}");
    assert_eq!(world.sees(&of_anna).await, nobody);
    assert_eq!(world.sees(&of_bo).await, ["notes"]);
    world.run(&["kb", "owner", "notes", "--none"]).await;
    assert_eq!(world.sees(&of_bo).await, nobody);
    world.run(&["kb", "remove", "notes", "--yes"]).await;
    let gone = world.run(&["kb", "show", "notes"]).await;
    assert_eq!(gone.outcome, Outcome::NotFound);
}

#[tokio::test]
async fn a_key_that_was_issued_elsewhere_works_by_its_hash_alone() {
    let world = World::start().await;
    let foreign = "mk_live_0123456789abcdef";
    let hash = raglan_core::key::PlainKey::parse(foreign).unwrap().hash();
    let upper = hash.as_str().to_uppercase();
    assert_eq!(world.status(foreign).await, 401);
    let line = [
        "key",
        "import",
        "old gateway",
        "--sha256",
        &upper,
        "--tools",
        "all",
        "--json",
    ];
    let imported = world.run(&line).await;
    assert_eq!(imported.outcome, Outcome::Done, "{imported:?}");
    assert_eq!(world.status(foreign).await, 200);
    assert_eq!(world.run(&line).await.outcome, Outcome::Refused);
    let bad = world
        .run(&["key", "import", "x", "--sha256", &upper[1..]])
        .await;
    assert_eq!(bad.outcome, Outcome::Usage);
}

#[tokio::test]
async fn what_an_oauth_subject_may_do_is_stored_under_its_issuer_and_name_and_audited() {
    let world = World::start().await;
    let (issuer, subject) = ("https://id.example", "anna");
    let of_subject = ["--oauth-issuer", issuer, "--oauth-subject", subject];
    let line = [
        &["key", "import", "anna"],
        &of_subject[..],
        &["--tools", "retrieve", "--kb", "all", "--json"],
    ]
    .concat();
    let imported = world.run(&line).await;
    assert_eq!(imported.outcome, Outcome::Done, "{imported:?}");
    let hash = KeyHash::of_subject(issuer, subject);
    assert_eq!(imported.text("/fingerprint"), hash.subject_fingerprint());
    let events = world.trail().await;
    assert!(!events.is_empty());
    for event in events {
        let details = event.parameters.unwrap();
        for named in [issuer, subject] {
            assert!(details.contains(&format!("\"{named}\"")), "{details}");
        }
    }
    assert_eq!(world.run(&line).await.outcome, Outcome::Refused);
    // There is no key to rotate.
    let id = imported.text("/key_id");
    let rotated = world.run(&["key", "rotate", &id, "--yes", "--print"]).await;
    assert_eq!(rotated.outcome, Outcome::Refused);
    assert!(rotated.err.contains("OAuth subject"), "{rotated:?}");
}

#[tokio::test]
async fn of_two_operators_at_once_one_rotates_and_the_other_is_told() {
    let world = World::start().await;
    let (id, _) = world.key(&["--tools", "all"]).await;
    let line = ["key", "rotate", &id, "--yes", "--print", "--json"];
    let (one, two) = tokio::join!(world.run(&line), world.run(&line));
    let mut outcomes = [one.outcome, two.outcome].map(|outcome| outcome == Outcome::Done);
    outcomes.sort_unstable();
    assert_eq!(outcomes, [false, true], "{one:?} {two:?}");
    assert!([one.outcome, two.outcome].contains(&Outcome::Refused));
    let items = world.run(&["key", "list", "--json"]).await.json();
    assert_eq!(items["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_revocation_wins_against_whatever_else_is_changed() {
    let world = World::start().await;
    let (id, key) = world.key(&["--tools", "all"]).await;
    let (revoke, grant) = (
        ["key", "revoke", &id, "--yes"],
        ["key", "grant", &id, "--rate-limit", "60/10"],
    );
    let (revoked, _) = tokio::join!(world.run(&revoke), world.run(&grant));
    assert_eq!(revoked.outcome, Outcome::Done, "{revoked:?}");
    assert_eq!(world.status(&key).await, 401);
}
