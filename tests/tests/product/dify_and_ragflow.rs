//! One search over Dify, Dify's external interface and RAGFlow: whole requests into the function, and
//! what goes out over the wire to each.

use std::time::Duration;

use raglan_engines::configuration::parse;
use serde_json::{Value, json};

use crate::support::fake_engine::{Behaviour, FakeEngine};
use crate::support::{ENGINE_KEY, World, call};

/// The three engines, and a world in which each has one knowledge base of its own name.
struct Engines {
    dify: FakeEngine,
    external: FakeEngine,
    ragflow: FakeEngine,
    world: World,
}

impl Engines {
    async fn start(dify: Behaviour, external: Behaviour, ragflow: Vec<Behaviour>) -> Self {
        let dify = FakeEngine::start([dify]).await;
        let external = FakeEngine::start([external]).await;
        let ragflow = FakeEngine::start(ragflow).await;
        let engine = |kind: &str, url: String| {
            json!({ "type": kind, "url": url, "credential": "env:ENGINE_KEY",
                "request_timeout_seconds": 2 })
        };
        let configured = json!({
            "dify-engine": engine("dify", format!("{}/v1", dify.url)),
            "external-engine": engine("dify_external", external.url.clone()),
            "ragflow-engine": engine("ragflow", ragflow.url.clone()),
        });
        let world = World::configured(|config| {
            config.backends = parse(&configured.to_string()).unwrap();
            config.call_timeout = Duration::from_secs(6);
        })
        .await;
        for name in ["dify", "external", "ragflow"] {
            let kind = format!("{name}-engine");
            world.add_knowledge_base(name, None, &kind).await;
        }
        Self {
            dify,
            external,
            ragflow,
            world,
        }
    }

    async fn retrieve(&self, mut arguments: Value) -> Value {
        let key = self.world.full_key().await;
        arguments["query"] = "parental leave".into();
        arguments["kb_id"] = json!(["dify", "external", "ragflow"]);
        let answer = call("retrieve", arguments)
            .key(&key)
            .send(&self.world)
            .await;
        answer.structured()
    }
}

fn dify_found(passages: &[(&str, Value)]) -> Behaviour {
    let records: Vec<Value> = passages
        .iter()
        .map(|(text, metadata)| {
            json!({ "score": 0.9, "segment": {
                "id": text, "position": 1, "content": text,
                "document": { "id": format!("{text} of dify"), "name": "dify.md",
                              "doc_metadata": metadata }
            } })
        })
        .collect();
    Behaviour::json(&json!({ "query": { "content": "q" }, "records": records }))
}

fn external_found(passages: &[(&str, Value)]) -> Behaviour {
    let records: Vec<Value> = passages
        .iter()
        .map(|(text, metadata)| {
            json!({ "content": text, "score": 0.5, "title": "external.md", "metadata": metadata })
        })
        .collect();
    Behaviour::json(&json!({ "records": records }))
}

/// As a version that sends no metadata along.
fn ragflow_found(passages: &[(&str, &str)]) -> Behaviour {
    let chunks: Vec<Value> = passages
        .iter()
        .map(|(text, document_id)| {
            json!({ "id": text, "content": text, "document_id": document_id, "similarity": 0.4,
                "document_keyword": "ragflow.pdf", "kb_id": "ragflow",
                "positions": [[7, 1, 2, 3, 4]] })
        })
        .collect();
    let total = chunks.len();
    Behaviour::json(&json!({ "code": 0,
        "data": { "chunks": chunks, "doc_aggs": [], "total": total } }))
}

fn ragflow_document(id: &str, metadata: &Value) -> Behaviour {
    Behaviour::json(&json!({ "code": 0, "data": { "total": 1, "docs": [
        { "id": id, "name": "ragflow.pdf", "run": "DONE", "status": "1", "meta_fields": metadata }
    ] } }))
}

fn texts(found: &Value) -> Vec<String> {
    let items = found["items"].as_array().unwrap();
    let mut texts: Vec<String> = items
        .iter()
        .map(|item| format!("{}: {}", item["kb_id"].as_str().unwrap(), item["content"]))
        .collect();
    texts.sort_unstable();
    texts
}

/// The knowledge bases that the passages are from.
fn sources(found: &Value) -> Vec<&str> {
    let items = found["items"].as_array().unwrap();
    let mut sources: Vec<&str> = items
        .iter()
        .map(|item| item["kb_id"].as_str().unwrap())
        .collect();
    sources.sort_unstable();
    sources
}

#[tokio::test]
async fn three_engines_with_three_interfaces_are_one_search() {
    let engines = Engines::start(
        dify_found(&[("Dify says thirty days.", json!({ "page": 3 }))]),
        external_found(&[("Another says twenty.", json!(null))]),
        vec![ragflow_found(&[("RAGFlow says ten.", "r1")])],
    )
    .await;
    let found = engines.retrieve(json!({})).await;
    assert_eq!(found["status"], "success", "{found}");
    assert_eq!(sources(&found), ["dify", "external", "ragflow"]);
    let of = |kb_id: &str| {
        let mut items = found["items"].as_array().unwrap().iter();
        items.find(|item| item["kb_id"] == kb_id).unwrap()
    };
    assert_eq!(of("dify")["metadata"]["page"], 3);
    assert_eq!(of("ragflow")["metadata"]["page"], 7);
    assert_eq!(of("ragflow")["metadata"]["filename"], "ragflow.pdf");

    let lines = [
        (&engines.dify, "POST /v1/datasets/dify/retrieve"),
        (&engines.external, "POST /retrieval"),
        (&engines.ragflow, "POST /api/v1/retrieval"),
    ];
    for (engine, line) in lines {
        let received = engine.received();
        assert_eq!(received.len(), 1, "{line}");
        assert_eq!(received[0].line, line);
        let credential = &received[0].headers["authorization"];
        assert_eq!(credential, &format!("Bearer {ENGINE_KEY}"));
    }
}

#[tokio::test]
async fn engines_that_fail_open_give_nothing_that_breaks_the_filters() {
    let engines = Engines::start(
        dify_found(&[
            ("Dify fits.", json!({ "domain": "hr" })),
            ("Dify does not.", json!({ "domain": "it" })),
            ("Dify does not tell.", json!(null)),
        ]),
        external_found(&[
            ("External fits.", json!({ "domain": "hr" })),
            ("External does not.", json!({})),
        ]),
        vec![
            ragflow_found(&[("RAGFlow does not.", "r1")]),
            ragflow_document("r1", &json!({ "domain": "it" })),
        ],
    )
    .await;
    let found = engines
        .retrieve(json!({ "filters": { "domain": "hr" } }))
        .await;
    assert_eq!(sources(&found), ["dify", "external"], "{found}");
    let all = texts(&found).join(" ");
    assert!(!all.contains("does not"), "{all}");
    assert_eq!(found["status"], "partial");
    assert_eq!(found["warnings"].as_array().unwrap().len(), 3, "{found}");

    let condition = json!([{ "name": "domain", "comparison_operator": "is", "value": "hr" }]);
    let dify = engines.dify.last().body;
    assert_eq!(
        dify["retrieval_model"]["metadata_filtering_conditions"]["conditions"],
        condition
    );
    let external = engines.external.last().body;
    assert_eq!(external["metadata_condition"]["conditions"], condition);
    let ragflow = &engines.ragflow.received()[0].body;
    assert_eq!(
        ragflow["metadata_condition"],
        json!({ "logic": "and", "conditions": [
            { "name": "domain", "comparison_operator": "=", "value": "hr" }
        ] })
    );
}

#[tokio::test]
async fn an_error_that_ragflow_sends_as_success_makes_the_result_partial() {
    let refusal =
        json!({ "code": 109, "data": false, "message": format!("{ENGINE_KEY} is invalid") });
    let engines = Engines::start(
        dify_found(&[("Dify says thirty days.", json!({}))]),
        external_found(&[]),
        vec![Behaviour::json(&refusal)],
    )
    .await;
    let found = engines.retrieve(json!({})).await;
    assert_eq!(found["status"], "partial", "{found}");
    assert_eq!(sources(&found), ["dify"]);
    let warnings = found["warnings"].to_string();
    assert!(warnings.contains("`ragflow`"), "{warnings}");
    assert!(!warnings.contains(ENGINE_KEY), "{warnings}");
}

#[tokio::test]
async fn a_filter_that_one_of_them_cannot_apply_ends_the_search_and_names_it() {
    let engines = Engines::start(
        dify_found(&[]),
        external_found(&[]),
        vec![ragflow_found(&[])],
    )
    .await;
    let key = engines.world.full_key().await;
    let arguments = json!({
        "query": "leave", "kb_id": ["dify", "external", "ragflow"],
        "filters": { "domain": ["hr", "it"], "metadata": { "year": { "gte": 2024 } } }
    });
    let answer = call("retrieve", arguments)
        .key(&key)
        .send(&engines.world)
        .await;
    let (text, error) = answer.tool_error();
    assert_eq!(error["code"], "unsupported_filter", "{error}");
    assert!(
        text.contains("`ragflow`") && text.contains("domain in"),
        "{text}"
    );
    assert!(engines.ragflow.received().is_empty());
}
