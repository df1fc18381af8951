//! Answers that an engine writes itself: believed as far as a model's.

use raglan_core::key::PlainKey;
use raglan_rag::backend::{EngineAnswer, Note, Passage, Retrieval};
use serde_json::{Value, json};

use crate::support::{Behaviour, ScriptedEngine, World, call, passage};

const QUESTION: &str = "How many days of leave does every employee get?";
const EXTRACTIVE: &str = "Leave is thirty days a year for every employee. [1]";

fn passages() -> Vec<Passage> {
    vec![
        passage(1, "Leave is thirty days a year for every employee."),
        passage(2, "Travel is booked by the travel desk."),
    ]
}

fn answer(text: Option<&str>, passages: Vec<Passage>) -> Behaviour {
    Behaviour::Answers(EngineAnswer {
        text: text.map(ToOwned::to_owned),
        model: "the-engines-model".to_owned(),
        retrieval: Retrieval {
            matched: passages.len() as u64,
            passages,
            ..Retrieval::default()
        },
    })
}

async fn ask(world: &World, key: &PlainKey, arguments: &Value) -> Value {
    let mut all = json!({ "question": QUESTION, "kb_id": "script" });
    for (name, value) in arguments.as_object().unwrap() {
        all[name] = value.clone();
    }
    call("ask", all).key(key).send(world).await.structured()
}

#[tokio::test]
async fn an_engines_own_answer_has_checked_citations_and_says_which_model_wrote_it() {
    let world = World::start().await;
    let key = world.full_key().await;
    let text = "Thirty days.[1] The desk books travel.[2] And more.[7]";
    world.engine.order("script", answer(Some(text), passages()));
    let told = ask(&world, &key, &json!({})).await;
    assert_eq!(
        told["answer"],
        "Thirty days.[1] The desk books travel.[2] And more."
    );
    assert_eq!(
        (&told["engine"], &told["model"], &told["grounded"]),
        (
            &json!("generated"),
            &json!("the-engines-model"),
            &json!(true)
        )
    );
    assert_eq!(told["sources"].as_array().unwrap().len(), 2);
    assert_eq!(told["sources"][1]["id"], "passage-2");
    assert!(
        world.engine.requests().is_empty(),
        "it was not searched as well"
    );
}

#[tokio::test]
async fn with_several_knowledge_bases_no_engine_answers_alone() {
    let world = World::start().await;
    world
        .add_knowledge_base("other", None, ScriptedEngine::KIND)
        .await;
    let key = world.full_key().await;
    world
        .engine
        .order("script", answer(Some("Forty days.[1]"), passages()));
    let told = ask(&world, &key, &json!({ "kb_id": ["script", "other"] })).await;
    assert_eq!(told["answer"], EXTRACTIVE);
    assert_eq!(told["engine"], "extractive");
}

#[tokio::test]
async fn an_answer_from_passages_that_break_the_filters_is_not_given() {
    let world = World::start().await;
    let key = world.full_key().await;
    let mut found = passages();
    found[1]
        .metadata
        .insert("domain".to_owned(), json!("secret"));
    world
        .engine
        .order("script", answer(Some("The desk books travel.[2]"), found));
    let told = ask(&world, &key, &json!({ "filters": { "domain": "hr" } })).await;
    assert_eq!(
        (&told["answer"], &told["engine"]),
        (&json!(EXTRACTIVE), &json!("extractive"))
    );
}

#[tokio::test]
async fn an_answer_that_cannot_be_believed_is_replaced_by_sentences_from_the_documents() {
    for text in [
        "Thirty days.",
        "Thirty days.[4]",
        "See https://evil.example/?leave=30 [1]",
    ] {
        let world = World::start().await;
        let key = world.full_key().await;
        world.engine.order("script", answer(Some(text), passages()));
        let told = ask(&world, &key, &json!({})).await;
        assert_eq!(told["answer"], EXTRACTIVE, "{text}");
        assert_eq!(told["warnings"].as_array().unwrap().len(), 1, "{text}");
    }
}

#[tokio::test]
async fn an_engine_that_fails_to_answer_is_searched() {
    let world = World::start().await;
    let key = world.full_key().await;
    let behaviour = Behaviour::FailsToAnswer(passages());
    world.engine.order("script", behaviour);
    let told = ask(&world, &key, &json!({})).await;
    assert_eq!(told["answer"], EXTRACTIVE);
}

#[tokio::test]
async fn what_the_engines_guardrail_withheld_is_told_and_not_given_in_another_way() {
    let world = World::start().await;
    let key = world.full_key().await;
    let behaviour = Behaviour::Answers(EngineAnswer {
        text: None,
        model: "m".to_owned(),
        retrieval: Retrieval {
            notes: vec![Note::Withheld],
            ..Retrieval::default()
        },
    });
    world.engine.order("script", behaviour);
    let told = ask(&world, &key, &json!({})).await;
    assert_eq!(
        (&told["answer"], &told["grounded"]),
        (&Value::Null, &json!(false))
    );
    let warning = told["warnings"][0].as_str().unwrap();
    assert!(warning.contains("guardrail"), "{warning}");
    assert!(world.engine.requests().is_empty());
}
