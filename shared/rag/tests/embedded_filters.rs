//! What the index lets through is what the check of a passage's own metadata lets through.

#![expect(clippy::unwrap_used, reason = "in a test a failure is a failed test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::Timestamp;
use raglan_rag::backend::{
    Backend as _, Comparison, Condition, Document, EngineCall, Filters, RetrieveRequest,
};
use raglan_rag::embedded::EmbeddedBackend;
use raglan_rag::embedded::layout::{self, Generation};
use raglan_rag::embedded::writer::{IndexWriter, NewDocument, NewPassage};
use raglan_rag::filter_check::keeps;
use serde_json::{Value, json};

type Metadata = BTreeMap<String, Value>;

/// Values that stand close together: equal, neighbours, and the same number written otherwise.
fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        (-3_i64..4).prop_map(Value::from),
        (-6_i32..6).prop_map(|half| json!(f64::from(half) / 2.0)),
        Just(json!(-0.0)),
        Just(json!(u64::MAX)),
        Just(json!(i64::MIN)),
        Just(json!(1e300)),
        prop::sample::select(vec![
            "",
            "2",
            "-2.5",
            " 2 ",
            "02",
            "2.0",
            "1e0",
            "NaN",
            "inf",
            "true",
            "false",
            "b",
            "B",
            "bb",
            "税",
            "2026-03-01",
            "2026-03-01T10:00:00Z",
        ])
        .prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => scalar(),
        2 => vec(scalar(), 0..4).prop_map(Value::from),
        1 => Just(Value::Null),
        1 => Just(json!({ "a": 1 })),
        1 => Just(json!([[2], null, { "a": 2 }])),
    ]
}

fn field() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "ab", "domain", "document_type", "doc_type"])
        .prop_map(str::to_owned)
}

fn condition() -> impl Strategy<Value = Condition> {
    (field(), 0..6, vec(scalar(), 1..4)).prop_map(|(field, operator, values)| {
        let bound = values[0].clone();
        let comparison = match operator {
            0 => Comparison::OneOf(values),
            1 => Comparison::NoneOf(values),
            2 => Comparison::Greater(bound),
            3 => Comparison::GreaterOrEqual(bound),
            4 => Comparison::Less(bound),
            _ => Comparison::LessOrEqual(bound),
        };
        Condition { field, comparison }
    })
}

fn filters() -> impl Strategy<Value = Filters> {
    let names = || vec(prop::sample::select(vec!["b", "2", "true"]), 0..3);
    let moment = || prop::option::weighted(0.2, 0_i64..5);
    let reserved = (
        prop_oneof![4 => Just(Vec::new()), 1 => names()],
        prop_oneof![4 => Just(Vec::new()), 1 => names()],
    );
    (reserved, moment(), moment(), vec(condition(), 0..3)).prop_map(
        |((domain, document_type), after, before, metadata)| Filters {
            domain: domain.into_iter().map(str::to_owned).collect(),
            document_type: document_type.into_iter().map(str::to_owned).collect(),
            updated_after: after.map(Timestamp::from_epoch_seconds),
            updated_before: before.map(Timestamp::from_epoch_seconds),
            metadata,
        },
    )
}

fn document(number: usize, metadata: Metadata) -> NewDocument {
    let updated_at = Timestamp::from_epoch_seconds(i64::try_from(number % 5).unwrap());
    NewDocument {
        document: Document {
            id: format!("d{number}"),
            filename: format!("{number}.md"),
            title: String::new(),
            format: "markdown".to_owned(),
            size_bytes: 1,
            status: "indexed".to_owned(),
            chunk_count: 0,
            created_at: updated_at,
            updated_at,
            guard_findings: BTreeMap::new(),
        },
        uri: None,
        metadata,
        passages: vec![NewPassage {
            id: format!("d{number}-0"),
            content: "word".to_owned(),
            section: None,
            page: None,
        }],
    }
}

fn engine(root: &Path, documents: &[Metadata]) -> EmbeddedBackend {
    let kb_id = KnowledgeBaseId::parse("kb").unwrap();
    let directory = layout::knowledge_base_dir(root, &kb_id);
    let generation = Generation::parse("idx-01").unwrap();
    let folder = directory.join(generation.as_str());
    std::fs::create_dir_all(&folder).unwrap();
    let mut writer = IndexWriter::create(&folder).unwrap();
    for (number, metadata) in documents.iter().enumerate() {
        writer.add(document(number, metadata.clone())).unwrap();
    }
    let now = Timestamp::from_epoch_seconds(0);
    writer.finish(&kb_id, Vec::new(), now).unwrap();
    layout::publish(&directory, &generation).unwrap();
    EmbeddedBackend::new(root)
}

async fn found(engine: &EmbeddedBackend, filters: Filters) -> (Vec<String>, u64) {
    let request = RetrieveRequest {
        query: "word".to_owned(),
        top_k: 50,
        min_score: None,
        filters,
    };
    let call = EngineCall::within(Duration::from_mins(1));
    let retrieval = engine.retrieve("kb", &request, &call).await.unwrap();
    let ids = retrieval.passages.into_iter().map(|passage| passage.id);
    (ids.collect(), retrieval.matched)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn the_index_lets_through_what_the_metadata_says(
        documents in vec(btree_map(field(), value(), 0..4), 1..12),
        many in vec(filters(), 40),
    ) {
        let root = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let engine = engine(root.path(), &documents);
        runtime.block_on(async {
            let request = RetrieveRequest {
                query: "word".to_owned(),
                top_k: 50,
                min_score: None,
                filters: Filters::default(),
            };
            let call = EngineCall::within(Duration::from_mins(1));
            let all = engine.retrieve("kb", &request, &call).await.unwrap().passages;
            assert_eq!(all.len(), documents.len());
            for filters in many {
                let expected: Vec<String> = all
                    .iter()
                    .filter(|passage| keeps(&filters, true, passage))
                    .map(|passage| passage.id.clone())
                    .collect();
                let (ids, matched) = found(&engine, filters.clone()).await;
                assert_eq!(ids, expected, "{filters:?}");
                assert_eq!(matched, expected.len() as u64);
            }
        });
    }
}
