//! The catalogue is read while the key's record is still on its way, and never decides by itself.

use std::collections::BTreeSet;

use raglan_core::key_record::{KeyRecord, ScopeKind};
use raglan_store::catalog::PutMode;
use serde_json::{Value, json};

use crate::support::{Request, ScriptedEngine, World, call, id};

fn search() -> Request {
    call("retrieve", json!({ "query": "leave" }))
}

/// The knowledge bases that a search found something in; none when it is refused.
async fn asked(world: &World, request: Request) -> Vec<String> {
    let answer = request.send(world).await.json();
    let items = answer.pointer("/result/structuredContent/items");
    let items = items.and_then(Value::as_array).into_iter().flatten();
    let names = items.map(|item| item["kb_id"].as_str().unwrap().to_owned());
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

#[tokio::test]
async fn from_the_second_call_on_the_catalogue_does_not_wait_for_the_key() {
    let world = World::start().await;
    let key = world.full_key().await;
    let first = asked(&world, search().key(&key)).await;
    // The key's record comes only when the catalogue is being read.
    world.steps.hold("GetItem", "Query");
    assert_eq!(asked(&world, search().key(&key)).await, first);
    let read = world.steps.begun();
    let reads = read.iter().filter(|operation| *operation == "Query");
    assert_eq!(reads.count(), 1, "read once, and not again: {read:?}");
}

#[tokio::test]
async fn a_key_whose_scope_was_changed_meanwhile_gets_what_it_may_see_now() {
    let world = World::start().await;
    let key = world.full_key().await;
    let before = asked(&world, search().key(&key)).await;
    assert!(before.contains(&"script".to_owned()) && before.contains(&"anna-notes".to_owned()));

    let only_one = |key: &mut KeyRecord| {
        key.scope = ScopeKind::List;
        key.kb_ids = [id("script")].into();
    };
    world.change_key(&key, only_one).await;
    assert_eq!(asked(&world, search().key(&key)).await, ["script"]);
    world
        .change_key(&key, |key| key.owner = Some("anna".to_owned()))
        .await;
    world
        .change_key(&key, |key| key.scope = ScopeKind::All)
        .await;
    assert_eq!(asked(&world, search().key(&key)).await, ["anna-notes"]);
    world
        .change_key(&key, |key| key.scope = ScopeKind::None)
        .await;
    assert_eq!(asked(&world, search().key(&key)).await, [""; 0]);
}

#[tokio::test]
async fn what_was_read_early_is_never_kept_for_another_call() {
    let world = World::start().await;
    let key = world
        .key("key-bo", |key| key.owner = Some("bo".to_owned()))
        .await;
    assert_eq!(asked(&world, search().key(&key)).await, ["bo-notes"]);
    let mut entry = world.catalog().get(&id("bo-notes")).await.unwrap().unwrap();
    entry.owner = Some("anna".to_owned());
    world.catalog().put(&entry, PutMode::Replace).await.unwrap();
    assert_eq!(asked(&world, search().key(&key)).await, [""; 0]);
    world
        .add_knowledge_base("bo-new", Some("bo"), ScriptedEngine::KIND)
        .await;
    let list = call("list_knowledge_bases", json!({})).key(&key);
    let listed = list.send(&world).await.structured();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
}

#[tokio::test]
async fn a_key_that_was_revoked_learns_nothing_from_what_was_read() {
    let world = World::start().await;
    let key = world.full_key().await;
    search().key(&key).send(&world).await;
    world.change_key(&key, |key| key.enabled = false).await;
    let refused = search().key(&key).send(&world).await;
    assert_eq!(refused.status, 401);
    world.steps.hold("no operation", "none");
    assert_eq!(search().key(&key).send(&world).await, refused);
    let begun = world.steps.begun();
    assert!(
        !begun.contains(&"Query".to_owned()),
        "nothing is read for it any more: {begun:?}"
    );
}

#[tokio::test]
async fn a_catalogue_that_cannot_be_read_early_ends_the_call() {
    let world = World::start().await;
    let key = world.full_key().await;
    search().key(&key).send(&world).await;
    world.dynamodb.close();
    let refused = search().key(&key).send(&world).await;
    assert_eq!(refused.status, 503);
    world.dynamodb.open();
    assert_eq!(search().key(&key).send(&world).await.status, 200);
}
