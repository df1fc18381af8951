//! The sample knowledge base through the whole function: what a first user asks is found and answered,
//! and what the documents do not hold is not made up.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use raglan_core::catalog::BackendReference;
use raglan_core::clock::{ManualClock, Timestamp};
use raglan_core::key::PlainKey;
use raglan_ingest::build::{IndexOptions, Reading, index_folder};
use serde_json::{Value, json};

use crate::support::{NOW, World, call, id};

/// Reached on 2026-11-30: see the assertions' texts when they fail.
const FOUND_PERCENT: usize = 95;
const ANSWERED_PERCENT: usize = 80;

/// The sample's index, built once for all tests of this program.
static INDEX: LazyLock<PathBuf> = LazyLock::new(|| {
    let index_root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sample-index");
    let options = IndexOptions {
        source_dir: examples().join("knowledge"),
        index_root: index_root.clone(),
        kb_id: id("sample"),
        reading: Reading::Changed,
    };
    let clock = ManualClock::at(Timestamp::parse(NOW).unwrap());
    let report = index_folder(&options, &clock, &mut |_| {}).unwrap();
    assert_eq!(report.failed, []);
    index_root
});

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

fn queries() -> Value {
    serde_json::from_slice(&std::fs::read(examples().join("queries.json")).unwrap()).unwrap()
}

async fn world_with_sample() -> (World, PlainKey) {
    let index_dir = INDEX.clone();
    let world = World::without_knowledge(|config| config.index_dir = index_dir).await;
    world
        .add_knowledge_base("sample", None, BackendReference::EMBEDDED)
        .await;
    let key = world.full_key().await;
    (world, key)
}

/// Whether one of the items or sources is from this file.
fn is_in(filename: &Value, list: &Value) -> bool {
    let entries = list.as_array().unwrap();
    entries
        .iter()
        .any(|e| e["filename"] == *filename || e["metadata"]["filename"] == *filename)
}

#[tokio::test]
async fn what_a_first_user_asks_is_found_and_answered_from_the_right_document() {
    let (world, key) = world_with_sample().await;
    let queries = queries();
    let questions = queries["questions"].as_array().unwrap();
    let (mut not_found, mut not_answered, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for row in questions {
        let (question, filename) = (&row["question"], &row["filename"]);
        let found = call("retrieve", json!({ "query": question }))
            .key(&key)
            .send(&world)
            .await;
        if !is_in(filename, &found.structured()["items"]) {
            not_found.push(question);
        }
        let answer = call("ask", json!({ "question": question }))
            .key(&key)
            .send(&world)
            .await;
        let answer = answer.structured();
        if answer["grounded"] != true {
            not_answered.push(question);
        } else if !is_in(filename, &answer["sources"]) {
            wrong.push(question);
        }
    }
    let asked = questions.len();
    let found = asked - not_found.len();
    let answered = asked - not_answered.len() - wrong.len();
    println!("{asked} asked, {found} found, {answered} answered from the right document");
    println!("not found: {not_found:#?}\nnot answered: {not_answered:#?}\nwrong: {wrong:#?}");
    assert!(
        found * 100 >= asked * FOUND_PERCENT,
        "not found: {not_found:?}"
    );
    assert!(
        answered * 100 >= asked * ANSWERED_PERCENT,
        "not answered: {not_answered:?}; answered from elsewhere: {wrong:?}"
    );
}

#[tokio::test]
async fn what_the_documents_do_not_hold_is_not_made_up() {
    let (world, key) = world_with_sample().await;
    for question in queries()["off_topic"].as_array().unwrap() {
        let answer = call("ask", json!({ "question": question }))
            .key(&key)
            .send(&world)
            .await;
        let answer = answer.structured();
        assert_eq!(answer["grounded"], false, "{question}: {answer}");
        assert_eq!(answer["answer"], Value::Null, "{question}");
        assert_eq!(answer["sources"], json!([]), "{question}");
    }
}

#[tokio::test]
async fn every_sentence_of_an_answer_stands_in_a_passage_that_is_cited() {
    let (world, key) = world_with_sample().await;
    for question in [
        "How long can the old key stay valid after a rotation?",
        "成都员工入职满一年有多少天年假？",
    ] {
        let answer = call("ask", json!({ "question": question }))
            .key(&key)
            .send(&world)
            .await;
        let answer = answer.structured();
        let text = answer["answer"].as_str().unwrap();
        let sources = answer["sources"].as_array().unwrap();
        let found = call("retrieve", json!({ "query": question }))
            .key(&key)
            .send(&world)
            .await;
        let found = found.structured();
        let passages: Vec<_> = found["items"].as_array().unwrap().iter().collect();
        for (number, source) in (1..).zip(sources) {
            assert_eq!(source["n"], number);
            assert!(text.contains(&format!("[{number}]")), "{question}: {text}");
            let passage = passages
                .iter()
                .find(|passage| passage["id"] == source["id"])
                .unwrap();
            assert_eq!(source.get("content"), None, "sources hold no full text");
            assert_eq!(source["title"], passage["metadata"]["title"]);
        }
        assert!(
            !text.contains(&format!("[{}]", sources.len() + 1)),
            "{question}: {text}"
        );
    }
}

#[tokio::test]
async fn filters_narrow_by_what_the_documents_say_of_themselves() {
    let (world, key) = world_with_sample().await;
    let search = async |filters: Value| {
        let arguments =
            json!({ "query": "leave vacation policy", "filters": filters, "top_k": 50 });
        call("retrieve", arguments)
            .key(&key)
            .send(&world)
            .await
            .structured()
    };
    let all = search(json!({})).await;
    let items = all["items"].as_array().unwrap();
    let domains: Vec<_> = items
        .iter()
        .map(|i| &i["metadata"]["attributes"]["domain"])
        .collect();
    let domain = domains.iter().find(|domain| domain.is_string()).unwrap();
    let narrowed = search(json!({ "domain": domain })).await;
    let kept = narrowed["items"].as_array().unwrap();
    let matched = |found: &Value| found["matched"].as_u64().unwrap();
    assert!(!kept.is_empty() && matched(&narrowed) < matched(&all));
    assert!(
        kept.iter()
            .all(|item| &item["metadata"]["attributes"]["domain"] == *domain)
    );
    let none = search(json!({ "domain": "no-such-domain" })).await;
    assert_eq!(
        (&none["status"], &none["items"]),
        (&json!("empty"), &json!([]))
    );
    let none = search(json!({ "updated_after": "2099-01-01" })).await;
    assert_eq!(none["status"], "empty");
}

#[tokio::test]
async fn the_poisoned_document_is_marked_and_what_it_orders_is_only_text() {
    let (world, key) = world_with_sample().await;
    let arguments = json!({ "query": "service partner note discount Norway", "top_k": 10 });
    let found = call("retrieve", arguments)
        .key(&key)
        .send(&world)
        .await
        .structured();
    let items = found["items"].as_array().unwrap();
    let poisoned: Vec<_> = items
        .iter()
        .filter(|item| item["metadata"]["filename"] == "support/partner-note-poisoned.md")
        .collect();
    assert!(!poisoned.is_empty());
    assert!(
        poisoned.iter().any(|item| item["suspicious"] == true),
        "{poisoned:#?}"
    );
    assert!(items.iter().all(|item| item["trust"] == "untrusted"));
    assert!(found["security"]["suspicious"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn documents_are_listed_once_each_over_all_pages() {
    let (world, key) = world_with_sample().await;
    let described = call("get_knowledge_base", json!({ "kb_id": "sample" }))
        .key(&key)
        .send(&world)
        .await;
    let described = described.structured();
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let arguments = json!({ "limit": 10, "cursor": cursor });
        let page = call("list_documents", arguments)
            .key(&key)
            .send(&world)
            .await
            .structured();
        for item in page["items"].as_array().unwrap() {
            names.push(item["filename"].as_str().unwrap().to_owned());
        }
        match page["next_cursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    assert_eq!(described["document_count"], count);
    assert!(count >= 15, "{count}");
}
