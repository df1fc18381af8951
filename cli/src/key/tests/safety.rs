//! What keeps a key secret and an operator from slips.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::json;

use crate::Outcome;
use crate::testing::World;

#[tokio::test]
async fn a_key_that_leaked_is_revoked_by_itself_and_never_on_the_command_line() {
    let world = World::start().await;
    let (_, key) = world.key(&["--tools", "all"]).await;
    let typed = world.run(&["key", "revoke", &key, "--yes"]).await;
    assert_eq!(typed.outcome, Outcome::Usage);
    assert!(!typed.err.contains(&key[4..]), "{typed:?}");
    assert_eq!(world.status(&key).await, 200);
    let piped = world
        .run_at(&["key", "revoke", "-", "--yes"], false, &format!("{key}\n"))
        .await;
    assert_eq!(piped.outcome, Outcome::Done, "{piped:?}");
    assert_eq!(world.status(&key).await, 401);
    for nonsense in ["", "no key", "rgl_short"] {
        let piped = world.run_at(&["key", "show", "-"], false, nonsense).await;
        assert_eq!(piped.outcome, Outcome::NotFound, "{nonsense}");
    }
}

#[tokio::test]
async fn what_cannot_be_undone_is_not_done_unconfirmed() {
    let world = World::start().await;
    world.run(&["kb", "add", "a", "--description", "d"]).await;
    let (id, key) = world.key(&["--tools", "all"]).await;
    for line in [
        &["key", "revoke", &id][..],
        &["key", "rotate", &id, "--print"],
        &["key", "expire", &id, "now"],
        &["kb", "remove", "a"],
    ] {
        for (is_terminal, typed) in [(false, "yes\n"), (true, "no\n"), (true, "")] {
            let ran = world.run_at(line, is_terminal, typed).await;
            assert_eq!(ran.outcome, Outcome::Refused, "{line:?} {ran:?}");
            assert_eq!(ran.out, "", "{line:?}");
        }
    }
    assert_eq!(world.status(&key).await, 200);
    let items = world.run(&["key", "list", "--all", "--json"]).await.json();
    assert_eq!(items["items"].as_array().unwrap().len(), 1);
    assert_eq!(world.run(&["kb", "show", "a"]).await.outcome, Outcome::Done);
    let agreed = world
        .run_on_terminal(&["key", "revoke", &id], "yes\n")
        .await;
    assert_eq!(agreed.outcome, Outcome::Done, "{agreed:?}");
    assert_eq!(world.status(&key).await, 401);
}

#[tokio::test]
async fn without_a_reader_no_key_is_made() {
    let world = World::start().await;
    let ran = world.run(&["key", "create", "x", "--tools", "all"]).await;
    assert_eq!(ran.outcome, Outcome::Usage, "{ran:?}");
    let path = world.folder.path().join("taken");
    std::fs::write(&path, "mine").unwrap();
    let taken = ["key", "create", "x", "--out", path.to_str().unwrap()];
    assert_eq!(world.run(&taken).await.outcome, Outcome::Refused);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    let items = world.run(&["key", "list", "--all", "--json"]).await.json();
    assert_eq!(items["items"], json!([]));
}

#[tokio::test]
async fn a_file_holds_the_key_on_its_first_line_and_is_for_its_owner_alone() {
    let world = World::start().await;
    let path: PathBuf = world.folder.path().join("new.key");
    let ran = world
        .run(&[
            "key",
            "create",
            "x",
            "--tools",
            "list_knowledge_bases",
            "--out",
            path.to_str().unwrap(),
            "--url",
            "https://mcp.example/mcp",
        ])
        .await;
    assert_eq!(ran.outcome, Outcome::Done, "{ran:?}");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let content = std::fs::read_to_string(&path).unwrap();
    let key = content.lines().next().unwrap();
    assert_eq!(world.status(key).await, 200);
    let (recipes, others) = crate::connect::first_recipes("https://mcp.example/mcp", key);
    for recipe in recipes {
        assert!(content.contains(&recipe.text), "{}", recipe.client);
    }
    assert!(content.contains(&others));
    assert!(!ran.out.contains(key) && !ran.err.contains(key));
}

#[tokio::test]
async fn no_key_and_no_hash_leaves_the_moment_of_its_creation() {
    let world = World::start().await;
    let (id, old) = world.key(&["--tools", "all", "--kb", "all"]).await;
    let rotated = world
        .run(&["key", "rotate", &id, "--yes", "--print", "--json"])
        .await;
    let new = rotated.text("/key");
    let mut outputs = String::new();
    for line in [
        &["key", "list", "--all"][..],
        &["key", "list", "--all", "--json"],
        &["key", "show", &id],
        &["key", "show", &id, "--json"],
        &["key", "grant", &id, "--tools", "ask", "--json"],
        &["key", "disable", &id],
        &["key", "enable", &id, "--json"],
        &["key", "expire", &id, "3h"],
        &["key", "revoke", &id, "--yes"],
        &["key", "rotate", &id, "--yes", "--print"],
    ] {
        let ran = world.run(line).await;
        outputs.push_str(&[ran.out, ran.err].concat());
    }
    for event in world.trail().await {
        outputs += &serde_json::to_string(&event).unwrap();
    }
    for key in [&old, &new] {
        let hash = raglan_core::key::PlainKey::parse(key).unwrap().hash();
        for secret in [
            &key[4..53],
            &key[10..40],
            hash.as_str(),
            &hash.as_str()[12..40],
        ] {
            assert!(!outputs.contains(secret), "{secret}");
        }
    }
    assert!(outputs.contains(&id));
}
