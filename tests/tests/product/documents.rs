//! Lists of documents over several knowledge bases: pages of engines, pages of ours, engines that fail.

use std::collections::BTreeSet;

use raglan_core::clock::Clock as _;
use raglan_core::key::PlainKey;
use raglan_rag::backend::Passage;
use serde_json::{Value, json};

use crate::support::{Behaviour, ScriptedEngine, World, call, passage};

fn passages(numbers: std::ops::Range<u16>, label: &str) -> Vec<Passage> {
    numbers
        .map(|n| {
            let mut passage = passage(n, "Leave.");
            passage.title = format!("{label} {n}");
            passage
        })
        .collect()
}

/// All pages, one after the other.
async fn pages(world: &World, key: &PlainKey, mut arguments: Value) -> Vec<Value> {
    let mut pages = Vec::new();
    loop {
        let page = call("list_documents", arguments.clone())
            .key(key)
            .send(world)
            .await
            .structured();
        let next = page.get("next_cursor").cloned();
        pages.push(page);
        assert!(pages.len() < 100, "a cursor that leads nowhere");
        match next {
            Some(next) => arguments["cursor"] = next,
            None => return pages,
        }
    }
}

/// The knowledge base and the identifier of every document, in order.
fn listed(pages: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = pages
        .iter()
        .flat_map(|page| page["items"].as_array().unwrap());
    items
        .map(|item| (text(&item["kb_id"]), text(&item["id"])))
        .collect()
}

#[tokio::test]
async fn every_document_comes_once_however_engines_and_callers_cut_their_pages() {
    let world = World::configured(|config| config.max_result_bytes = 16 * 1024).await;
    let key = world.full_key().await;
    let long_titles = passages(0..30, &"A very long title. ".repeat(30));
    let expected: Vec<_> = (0..30)
        .map(|n| ("bo-notes".to_owned(), format!("document-{n}")))
        .chain((40..45).map(|n| ("script".to_owned(), format!("document-{n}"))))
        .collect();
    for engine_page in [1, 3, 7, 100] {
        let order = |kb_id: &str, passages| {
            let behaviour = Behaviour::InPages(passages, engine_page);
            world.engine.order(kb_id, behaviour);
        };
        order("bo-notes", long_titles.clone());
        order("script", passages(40..45, "Short"));
        for limit in [1, 4, 10, 200] {
            let arguments = json!({ "kb_id": ["script", "bo-notes"], "limit": limit });
            let pages = pages(&world, &key, arguments).await;
            assert_eq!(listed(&pages), expected, "{engine_page} {limit}");
            if (engine_page, limit) == (100, 200) {
                assert_eq!(
                    pages[0]["truncated"], true,
                    "the limit of bytes cuts a page"
                );
            }
        }
    }
}

#[tokio::test]
async fn an_engine_that_is_down_is_named_and_the_others_are_listed() {
    let world = World::start().await;
    let key = world.full_key().await;
    world
        .engine
        .order("anna-notes", Behaviour::Unavailable("10.0.0.7".to_owned()));
    let pages = pages(&world, &key, json!({ "limit": 2 })).await;
    let knowledge_bases: BTreeSet<_> = listed(&pages).into_iter().map(|(kb_id, _)| kb_id).collect();
    let expected = ["bo-notes", "handbook", "script"].map(ToOwned::to_owned);
    assert_eq!(knowledge_bases, expected.into());
    assert_eq!(pages[0]["partial"], true);
    insta::assert_json_snapshot!(pages[0]["warnings"], @r#"
    [
      "Knowledge base `anna-notes` did not answer; its documents are missing here."
    ]
    "#);
    assert_eq!(pages.last().unwrap().get("partial"), None);
}

#[tokio::test]
async fn a_hanging_engine_leaves_time_for_the_others() {
    let world = World::start().await;
    let key = world.full_key().await;
    world.engine.order("anna-notes", Behaviour::Hangs);
    let request = call("list_documents", json!({})).key(&key);
    let deadline = world.clock.now().epoch_ms() + 6_000;
    let page = request
        .deadline_epoch_ms(deadline)
        .send(&world)
        .await
        .structured();
    assert_eq!(page["items"].as_array().unwrap().len(), 6);
    insta::assert_json_snapshot!(page["warnings"], @r#"
    [
      "Knowledge base `anna-notes` did not answer in time; its documents are missing here."
    ]
    "#);
}

#[tokio::test]
async fn an_engine_without_lists_is_named_beside_others_and_an_error_alone() {
    let world = World::start().await;
    let key = world.full_key().await;
    world
        .add_knowledge_base("poor", None, ScriptedEngine::POOR_KIND)
        .await;
    let list = async |kb_id: Value| {
        call("list_documents", json!({ "kb_id": kb_id }))
            .key(&key)
            .send(&world)
            .await
    };
    let page = list(json!(["poor", "script"])).await.structured();
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    insta::assert_json_snapshot!(page["warnings"], @r#"
    [
      "The engine of knowledge base `poor` cannot list documents; they are missing here. retrieve and ask find text in them."
    ]
    "#);
    let (text, meta) = list(json!("poor")).await.tool_error();
    assert_eq!(meta["code"], "unsupported_by_backend");
    assert_eq!(meta["retryable"], false);
    assert!(text.contains("retrieve"), "{text}");
    assert_eq!(world.poor_engine.calls(), 0);

    // With another failure, that one is told: it may pass.
    world
        .engine
        .order("script", Behaviour::Unavailable("10.0.0.7".to_owned()));
    let (_, meta) = list(json!(["poor", "script"])).await.tool_error();
    assert_eq!(meta["code"], "backend_unavailable");
}
