//! The embedded engine from the outside: what is found, what is filtered, what happens when the
//! files are not as they should be.

#![expect(clippy::unwrap_used, reason = "in a test a failure is a failed test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::Timestamp;
use raglan_rag::backend::{
    Backend, BackendError, Comparison, Condition, Document, EngineCall, Filters, Passage,
    Retrieval, RetrieveRequest,
};
use raglan_rag::embedded::EmbeddedBackend;
use raglan_rag::embedded::layout::{self, Generation};
use raglan_rag::embedded::writer::{IndexWriter, NewDocument, NewPassage};
use serde_json::{Value, json};

const KB: &str = "handbook";

/// What is done to a generation's folder.
type Damage = Box<dyn Fn(&Path)>;

fn moment(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn document(
    id: &str,
    title: &str,
    updated_at: &str,
    metadata: Value,
    texts: &[&str],
) -> NewDocument {
    let metadata: BTreeMap<String, Value> = serde_json::from_value(metadata).unwrap();
    NewDocument {
        document: Document {
            id: id.to_owned(),
            filename: format!("{id}.md"),
            title: title.to_owned(),
            format: "markdown".to_owned(),
            size_bytes: 10,
            status: "indexed".to_owned(),
            chunk_count: 0,
            created_at: moment("2026-01-01"),
            updated_at: moment(updated_at),
            guard_findings: std::collections::BTreeMap::new(),
        },
        uri: Some(format!("https://example.com/{id}")),
        metadata,
        passages: (0..)
            .zip(texts)
            .map(|(n, text)| NewPassage {
                id: format!("{id}-{n}"),
                content: (*text).to_owned(),
                section: Some("Guide › Part".to_owned()),
                page: Some(n + 1),
            })
            .collect(),
    }
}

fn handbook() -> Vec<NewDocument> {
    vec![
        document(
            "a",
            "Refunds",
            "2026-02-01",
            json!({"domain": "sales", "document_type": "policy", "year": 2026, "tags": ["x", "y"]}),
            &[
                "A refund takes thirty days.",
                "Shipping is not refunded: AND OR NOT (quotes).",
            ],
        ),
        document(
            "b",
            "Leave",
            "2026-03-01",
            json!({"domain": "hr"}),
            &["Annual leave is 25 days."],
        ),
        document(
            "c",
            "增值税发票",
            "2025-01-01",
            json!({"domain": "finance", "document_type": "policy", "year": "2025"}),
            &[
                "纳税人应当使用 SQS 队列报销差旅费。",
                "报销单在十天内提交。",
            ],
        ),
    ]
}

/// Builds and publishes a generation; its folder.
fn publish(root: &Path, digits: &str, documents: Vec<NewDocument>) -> PathBuf {
    let kb_id = KnowledgeBaseId::parse(KB).unwrap();
    let directory = layout::knowledge_base_dir(root, &kb_id);
    let generation = Generation::parse(&format!("idx-{digits}")).unwrap();
    let folder = directory.join(generation.as_str());
    fs::create_dir_all(&folder).unwrap();
    let mut writer = IndexWriter::create(&folder).unwrap();
    for document in documents {
        writer.add(document).unwrap();
    }
    writer
        .finish(&kb_id, vec!["docs".to_owned()], moment("2026-04-01"))
        .unwrap();
    layout::publish(&directory, &generation).unwrap();
    folder
}

fn call() -> EngineCall {
    EngineCall::within(Duration::from_mins(1))
}

fn request(query: &str) -> RetrieveRequest {
    RetrieveRequest {
        query: query.to_owned(),
        top_k: 10,
        min_score: None,
        filters: Filters::default(),
    }
}

fn filtered(query: &str, filters: Filters) -> RetrieveRequest {
    RetrieveRequest {
        filters,
        ..request(query)
    }
}

fn ids(retrieval: &Retrieval) -> Vec<&str> {
    retrieval
        .passages
        .iter()
        .map(|passage| passage.id.as_str())
        .collect()
}

async fn search(engine: &EmbeddedBackend, query: &str) -> Retrieval {
    engine.retrieve(KB, &request(query), &call()).await.unwrap()
}

async fn unusable(engine: &EmbeddedBackend) -> String {
    match engine.retrieve(KB, &request("refund"), &call()).await {
        Err(BackendError::UnusableIndex(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_passage_comes_back_whole() {
    let root = tempfile::tempdir().unwrap();
    publish(root.path(), "01", handbook());
    let found = search(&EmbeddedBackend::new(root.path()), "annual leave").await;
    let score = found.passages[0].score;
    assert!(score > 0.0);
    let expected = Passage {
        id: "b-0".to_owned(),
        document_id: "b".to_owned(),
        chunk_index: 0,
        score,
        content: "Annual leave is 25 days.".to_owned(),
        title: "Leave".to_owned(),
        filename: "b.md".to_owned(),
        uri: Some("https://example.com/b".to_owned()),
        section: Some("Guide › Part".to_owned()),
        page: Some(1),
        updated_at: Some(moment("2026-03-01")),
        metadata: BTreeMap::from([("domain".to_owned(), json!("hr"))]),
    };
    assert_eq!(found.passages, [expected]);
    assert_eq!(found.matched, 1);
}

#[tokio::test]
async fn chinese_mixed_full_width_and_inflected_queries_find_what_they_name() {
    let root = tempfile::tempdir().unwrap();
    publish(root.path(), "01", handbook());
    let engine = EmbeddedBackend::new(root.path());
    for (query, first) in [
        ("税", "c-0"),
        ("报销单", "c-1"),
        ("SQS队列怎么用", "c-0"),
        ("ＳＱＳ", "c-0"),
        ("REFUND", "a-0"),
        ("refunding", "a-0"),
    ] {
        assert_eq!(
            ids(&search(&engine, query).await).first(),
            Some(&first),
            "{query}"
        );
    }
    assert!(search(&engine, "珠穆朗玛峰").await.passages.is_empty());
}

#[tokio::test]
async fn a_title_match_counts_for_every_passage_of_the_document() {
    let root = tempfile::tempdir().unwrap();
    publish(root.path(), "01", handbook());
    let found = search(&EmbeddedBackend::new(root.path()), "refunds").await;
    assert_eq!(ids(&found), ["a-0", "a-1"]);
}

#[tokio::test]
async fn the_characters_of_a_query_syntax_are_plain_text() {
    let root = tempfile::tempdir().unwrap();
    publish(root.path(), "01", handbook());
    let engine = EmbeddedBackend::new(root.path());
    for query in [
        "\"refund",
        "title:leave",
        "refund AND NOT (",
        "+refund -days",
        "a\\:b*",
        "refund~2^9",
    ] {
        engine.retrieve(KB, &request(query), &call()).await.unwrap();
    }
    assert_eq!(ids(&search(&engine, "NOT").await), ["a-1"]);
    assert_eq!(ids(&search(&engine, "-leave").await), ["b-0"]);
}

#[tokio::test]
async fn a_query_without_words_finds_nothing_and_a_huge_one_is_answered() {
    let root = tempfile::tempdir().unwrap();
    publish(root.path(), "01", handbook());
    let engine = EmbeddedBackend::new(root.path());
    for query in ["", " \n\t", "。？！", "::"] {
        assert_eq!(
            search(&engine, query).await,
            Retrieval::default(),
            "{query:?}"
        );
    }
    let huge = "refund 报销 ".repeat(80_000);
    assert!(huge.len() > 1 << 20);
    assert!(!search(&engine, &huge).await.passages.is_empty());
}

#[tokio::test]
async fn every_filter_narrows_and_all_of_them_must_hold() {
    let root = tempfile::tempdir().unwrap();
    publish(root.path(), "01", handbook());
    let engine = EmbeddedBackend::new(root.path());
    let everything = "refund shipping leave 报销";
    assert_eq!(search(&engine, everything).await.matched, 5);
    let metadata = |name: &str, values: Vec<Value>| Filters {
        metadata: vec![Condition {
            field: name.to_owned(),
            comparison: Comparison::OneOf(values),
        }],
        ..Filters::default()
    };
    let domain = |names: &[&str]| Filters {
        domain: names.iter().map(|&name| name.to_owned()).collect(),
        ..Filters::default()
    };
    let cases = [
        (domain(&["hr"]), vec!["b-0"]),
        (domain(&["hr", "finance"]), vec!["b-0", "c-0", "c-1"]),
        (domain(&["nothing"]), vec![]),
        (
            Filters {
                document_type: vec!["policy".to_owned()],
                ..domain(&["sales"])
            },
            vec!["a-0", "a-1"],
        ),
        (
            Filters {
                document_type: vec!["policy".to_owned()],
                ..domain(&["hr"])
            },
            vec![],
        ),
        (metadata("year", vec![json!("2026")]), vec!["a-0", "a-1"]),
        (metadata("year", vec![json!(2025)]), vec!["c-0", "c-1"]),
        (metadata("tags", vec![json!("y")]), vec!["a-0", "a-1"]),
        (
            metadata("tags", vec![]),
            vec!["a-0", "a-1", "b-0", "c-0", "c-1"],
        ),
        (metadata("year", vec![json!(null)]), vec![]),
        (metadata("absent", vec![json!("x")]), vec![]),
        // Both ends are exclusive.
        (
            Filters {
                updated_after: Some(moment("2026-02-01")),
                ..Filters::default()
            },
            vec!["b-0"],
        ),
        (
            Filters {
                updated_after: Some(moment("2025-12-31")),
                updated_before: Some(moment("2026-03-01")),
                ..Filters::default()
            },
            vec!["a-0", "a-1"],
        ),
    ];
    for (filters, expected) in cases {
        let found = engine
            .retrieve(KB, &filtered(everything, filters.clone()), &call())
            .await
            .unwrap();
        let mut found_ids = ids(&found);
        found_ids.sort_unstable();
        assert_eq!(found_ids, expected, "{filters:?}");
        assert_eq!(found.matched, expected.len() as u64, "{filters:?}");
    }
}

#[tokio::test]
async fn a_filter_does_not_change_scores() {
    let root = tempfile::tempdir().unwrap();
    publish(root.path(), "01", handbook());
    let engine = EmbeddedBackend::new(root.path());
    let plain = search(&engine, "annual leave").await;
    let filters = Filters {
        domain: vec!["hr".to_owned()],
        ..Filters::default()
    };
    let narrowed = engine
        .retrieve(KB, &filtered("annual leave", filters), &call())
        .await
        .unwrap();
    assert_eq!(plain, narrowed);
}

#[tokio::test]
async fn passages_below_the_least_score_are_left_out_and_counted() {
    let root = tempfile::tempdir().unwrap();
    publish(root.path(), "01", handbook());
    let engine = EmbeddedBackend::new(root.path());
    let all = search(&engine, "days refund").await;
    let best = all.passages[0].score;
    assert!(all.passages.len() > 1 && all.passages[1].score < best);
    let strict = RetrieveRequest {
        min_score: Some(best),
        ..request("days refund")
    };
    let found = engine.retrieve(KB, &strict, &call()).await.unwrap();
    assert_eq!(found.passages.len(), 1);
    assert_eq!(found.below_threshold, all.matched - 1);
    assert_eq!(found.matched, all.matched);
    let one = RetrieveRequest {
        top_k: 1,
        ..request("days refund")
    };
    assert_eq!(
        engine
            .retrieve(KB, &one, &call())
            .await
            .unwrap()
            .passages
            .len(),
        1
    );
}

#[tokio::test]
async fn equal_scores_come_in_the_order_of_the_documents() {
    let root = tempfile::tempdir().unwrap();
    let same = |id: &str| document(id, "T", "2026-01-01", json!({}), &["the same words"]);
    publish(root.path(), "01", ["c", "a", "b"].map(same).to_vec());
    let engine = EmbeddedBackend::new(root.path());
    for _ in 0..3 {
        assert_eq!(
            ids(&search(&engine, "same words").await),
            ["c-0", "a-0", "b-0"]
        );
    }
}

#[tokio::test]
async fn documents_are_listed_in_pages_and_described() {
    let root = tempfile::tempdir().unwrap();
    publish(root.path(), "01", handbook());
    let engine = EmbeddedBackend::new(root.path());
    let first = engine.list_documents(KB, None, 2, &call()).await.unwrap();
    let listed: Vec<(&str, u64)> = first
        .documents
        .iter()
        .map(|d| (d.id.as_str(), d.chunk_count))
        .collect();
    assert_eq!(listed, vec![("a", 2), ("b", 1)]);
    assert_eq!(first.next.as_deref(), Some("b"));
    let rest = engine
        .list_documents(KB, Some("b"), 2, &call())
        .await
        .unwrap();
    assert_eq!((rest.documents.len(), rest.next), (1, None));
    assert!(
        engine
            .list_documents(KB, Some("zzz"), 2, &call())
            .await
            .unwrap()
            .documents
            .is_empty()
    );

    let statistics = engine.describe(KB, &call()).await.unwrap();
    assert_eq!(
        (statistics.document_count, statistics.chunk_count),
        (Some(3), Some(5))
    );
    assert_eq!(statistics.sources, ["docs"]);
    assert_eq!(statistics.indexed_at, Some(moment("2026-04-01")));
}

#[tokio::test]
async fn a_new_generation_answers_the_next_call() {
    let root = tempfile::tempdir().unwrap();
    publish(root.path(), "01", handbook());
    let engine = EmbeddedBackend::new(root.path());
    assert_eq!(search(&engine, "shipping").await.matched, 1);
    let changed = document(
        "z",
        "New",
        "2026-01-01",
        json!({}),
        &["shipping", "shipping again"],
    );
    publish(root.path(), "02", vec![changed]);
    assert_eq!(search(&engine, "shipping").await.matched, 2);
}

#[tokio::test]
async fn searching_writes_nothing_and_needs_no_lock() {
    let root = tempfile::tempdir().unwrap();
    let folder = publish(root.path(), "01", handbook());
    // Where these are folders no lock file can be made, as on a read-only file system; permissions
    // would not stop a test that runs as root.
    for lock in [".tantivy-meta.lock", ".tantivy-writer.lock"] {
        fs::create_dir(folder.join(lock)).unwrap();
    }
    let names = || -> Vec<_> {
        let mut names: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let before = names();
    let engine = EmbeddedBackend::new(root.path());
    assert!(!search(&engine, "refund").await.passages.is_empty());
    engine.list_documents(KB, None, 10, &call()).await.unwrap();
    assert_eq!(names(), before);
}

#[tokio::test]
async fn a_missing_index_is_told_with_the_command_that_builds_it() {
    let root = tempfile::tempdir().unwrap();
    let text = unusable(&EmbeddedBackend::new(root.path())).await;
    assert!(text.contains("`raglan index DIR --kb handbook`"), "{text}");
}

#[tokio::test]
async fn an_identifier_that_is_none_never_becomes_a_path() {
    let root = tempfile::tempdir().unwrap();
    publish(root.path(), "01", handbook());
    let engine = EmbeddedBackend::new(root.path().join(KB));
    for id in ["../handbook", "", "/etc", "HANDBOOK", "a/b"] {
        let error = engine.describe(id, &call()).await.unwrap_err();
        assert!(
            matches!(error, BackendError::UnknownKnowledgeBase(_)),
            "{id}: {error}"
        );
    }
}

#[tokio::test]
async fn a_foreign_or_damaged_index_is_refused_with_the_reason() {
    let change = |name: &'static str, value: Value| {
        move |folder: &Path| {
            let path = folder.join(layout::MANIFEST);
            let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            manifest[name] = value.clone();
            fs::write(path, manifest.to_string()).unwrap();
        }
    };
    let truncate = |suffix: &'static str| {
        move |folder: &Path| {
            let file = fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .find(|path| path.to_string_lossy().ends_with(suffix))
                .unwrap();
            let bytes = fs::read(&file).unwrap();
            fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
        }
    };
    let cases: Vec<(Damage, &str)> = vec![
        (Box::new(change("format_version", json!(99))), "format 99"),
        (
            Box::new(change("tantivy_version", json!("0.1"))),
            "tantivy 0.1",
        ),
        (
            Box::new(change("tokenizer", json!("jieba/1"))),
            "tokenizer jieba/1",
        ),
        (
            Box::new(|folder| fs::write(folder.join(layout::MANIFEST), "{").unwrap()),
            "damaged",
        ),
        (
            Box::new(|folder| fs::write(folder.join(layout::MANIFEST), "").unwrap()),
            "damaged",
        ),
        (
            Box::new(|folder| fs::remove_file(folder.join(layout::MANIFEST)).unwrap()),
            "cannot be read",
        ),
        (Box::new(truncate(".store")), "incomplete"),
        (
            Box::new(|folder| fs::remove_file(folder.join(layout::DOCUMENTS)).unwrap()),
            "documents.json",
        ),
        (
            Box::new(|folder| fs::remove_dir_all(folder).unwrap()),
            "cannot be read",
        ),
        (
            Box::new(|folder| fs::write(folder.join("../CURRENT"), "../../etc\n").unwrap()),
            "does not name a generation",
        ),
    ];
    for (damage, reason) in cases {
        let root = tempfile::tempdir().unwrap();
        let folder = publish(root.path(), "01", handbook());
        damage(&folder);
        let text = unusable(&EmbeddedBackend::new(root.path())).await;
        assert!(text.contains(reason), "{reason}: {text}");
        assert!(text.contains("`raglan index DIR --kb handbook`"), "{text}");
    }
}

#[tokio::test]
async fn files_with_other_content_are_an_error_and_no_panic() {
    for suffix in [
        ".idx",
        ".term",
        ".store",
        ".fast",
        ".fieldnorm",
        "meta.json",
    ] {
        let root = tempfile::tempdir().unwrap();
        let folder = publish(root.path(), "01", handbook());
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(suffix) {
                let length = fs::metadata(&path).unwrap().len();
                fs::write(&path, vec![0xA5; usize::try_from(length).unwrap()]).unwrap();
            }
        }
        unusable(&EmbeddedBackend::new(root.path())).await;
    }
}

#[tokio::test]
async fn small_words_in_a_title_do_not_outweigh_what_the_query_names() {
    let root = tempfile::tempdir().unwrap();
    let texts: &[&str] = &["Tighten the hinge bolt to 85 Nm of torque."];
    let manual = document("m", "Manual", "2026-01-01", json!({}), texts);
    let texts: &[&str] = &["The trail holds all of the calls of the day."];
    let trail = document(
        "t",
        "The end of the audit trail",
        "2026-01-01",
        json!({}),
        texts,
    );
    publish(root.path(), "01", vec![manual, trail]);
    let engine = EmbeddedBackend::new(root.path());
    let found = search(&engine, "torque of the hinge bolt").await;
    assert_eq!(ids(&found).first(), Some(&"m-0"));
}
