use raglan_rag::backend::{Backend as _, Comparison, Condition, Filters};
use serde_json::{Value, json};

use super::*;
use crate::testing::{FakeBedrock, KB, Reply, call, request};

const MODEL: &str = "arn:aws:bedrock:eu-central-1::foundation-model/anthropic.claude-haiku-4-5";

fn reference(text: &str, chunk: &str) -> Value {
    json!({
        "content": { "text": text },
        "location": { "type": "S3", "s3Location": { "uri": "s3://handbook/hr/leave.md" } },
        "metadata": { "x-amz-bedrock-kb-chunk-id": chunk },
    })
}

fn citation(part: &str, references: &[Value]) -> Value {
    json!({
        "generatedResponsePart": { "textResponsePart": { "text": part, "span": { "start": 0, "end": 1 } } },
        "retrievedReferences": references,
    })
}

async fn fake(reply: Value) -> FakeBedrock {
    let fake = FakeBedrock::start().await;
    fake.is_of_type("VECTOR");
    fake.on("POST /retrieveAndGenerate", [Reply::Json(reply)]);
    fake
}

#[tokio::test]
async fn bedrock_is_asked_for_an_answer_with_filters_and_guardrail_and_without_a_session() {
    let text = "Thirty days. Half days count.";
    let fake = fake(json!({
        "sessionId": "s-1", "output": { "text": text },
        "citations": [
            citation("Thirty days.", &[reference("30 days of leave.", "c1")]),
            citation("Half days count.", &[reference("Half days.", "c2"), reference("30 days of leave.", "c1")]),
        ],
    }))
    .await;
    let settings = json!({ "answer_model": MODEL, "guardrail": { "id": "gr1", "version": "1" } });
    let backend = fake.backend(&settings);
    let request = RetrieveRequest {
        filters: Filters {
            metadata: vec![Condition {
                field: "team".to_owned(),
                comparison: Comparison::OneOf(vec![json!("blue")]),
            }],
            ..Filters::default()
        },
        ..request()
    };
    let answer = backend.answer(KB, &request, &call()).await.unwrap();
    let answer = answer.unwrap();
    assert_eq!(
        answer.text.as_deref(),
        Some("Thirty days.[1] Half days count.[2][1]")
    );
    assert_eq!(answer.model, MODEL);
    let passages = &answer.retrieval.passages;
    assert_eq!((passages.len(), passages[0].id.as_str()), (2, "c1"));
    assert_eq!(
        fake.asked("/retrieveAndGenerate")[0].body,
        json!({
            "input": { "text": "How many days of leave?" },
            "retrieveAndGenerateConfiguration": {
                "type": "KNOWLEDGE_BASE",
                "knowledgeBaseConfiguration": {
                    "knowledgeBaseId": KB, "modelArn": MODEL,
                    "retrievalConfiguration": { "vectorSearchConfiguration": {
                        "numberOfResults": 5,
                        "filter": { "equals": { "key": "team", "value": "blue" } },
                    } },
                    "generationConfiguration": { "guardrailConfiguration": {
                        "guardrailId": "gr1", "guardrailVersion": "1",
                    } },
                },
            },
        })
    );
}

#[tokio::test]
async fn a_part_that_is_not_in_the_text_is_not_cited() {
    let fake = fake(json!({
        "sessionId": "s", "output": { "text": "Thirty days." },
        "citations": [
            citation("Forty days.", &[reference("40", "c1")]),
            citation("", &[reference("50", "c2")]),
            citation("Thirty days. ", &[]),
        ],
    }))
    .await;
    let backend = fake.backend(&json!({ "answer_model": MODEL }));
    let answer = backend.answer(KB, &request(), &call()).await.unwrap();
    let answer = answer.unwrap();
    assert_eq!(answer.text.as_deref(), Some("Thirty days."));
    assert!(answer.retrieval.passages.is_empty());
}

#[tokio::test]
async fn what_a_guardrail_stopped_is_not_an_answer() {
    let fake = fake(json!({
        "sessionId": "s", "output": { "text": "Sorry, I cannot." }, "guardrailAction": "INTERVENED",
        "citations": [citation("Sorry", &[reference("30", "c1")])],
    }))
    .await;
    let backend = fake.backend(&json!({ "answer_model": MODEL }));
    let answer = backend.answer(KB, &request(), &call()).await.unwrap();
    let answer = answer.unwrap();
    assert_eq!(answer.text, None);
    assert_eq!(answer.retrieval.notes, [Note::Withheld]);
    assert!(answer.retrieval.passages.is_empty());
}

#[tokio::test]
async fn a_question_that_is_too_long_and_an_engine_without_a_model_search_instead() {
    let fake = fake(json!({})).await;
    let long = RetrieveRequest {
        query: "年".repeat(QUESTION_MAX_CHARS + 1),
        ..request()
    };
    let with_model = fake.backend(&json!({ "answer_model": MODEL }));
    let answer = with_model.answer(KB, &long, &call()).await.unwrap();
    assert_eq!(answer, None);
    let without = fake.backend(&json!({}));
    let answer = without.answer(KB, &request(), &call()).await.unwrap();
    assert_eq!(answer, None);
    assert!(fake.asked("").is_empty());
}

#[tokio::test]
async fn an_answer_is_never_asked_for_twice() {
    let fake = FakeBedrock::start().await;
    fake.on(
        "POST /retrieveAndGenerate",
        [Reply::Error(500, "InternalServerException", "oops")],
    );
    let settings = json!({ "answer_model": MODEL, "knowledge_base_type": "vector" });
    let backend = fake.backend(&settings);
    let error = backend.answer(KB, &request(), &call()).await.unwrap_err();
    assert!(matches!(error, BackendError::Unavailable(_)), "{error}");
    assert_eq!(fake.asked("/retrieveAndGenerate").len(), 1);
}
