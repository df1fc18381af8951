use std::time::Duration;

use raglan_rag::generate::Turn;

use crate::configuration::answers::{Model, parse};
use crate::testing::{Behaviour, FakeEngine, SECRET, clock, surroundings};

use super::*;

const PATIENCE: Duration = Duration::from_millis(700);

fn generator(url: &str, more: &str) -> ChatGenerator {
    let text = format!(
        r#"{{"type": "openai", "url": "{url}/v1", "model": "qwen-plus", "credential": "env:ENGINE_KEY"{more}}}"#
    );
    let configuration = parse(&text).unwrap().unwrap();
    let Model::Chat(settings) = configuration.model else {
        panic!("no chat endpoint");
    };
    ChatGenerator::new(settings, configuration.temperature, surroundings(&clock()))
}

fn request() -> GenerationRequest {
    GenerationRequest {
        system: "The system prompt.".to_owned(),
        earlier: vec![Turn {
            question: "Earlier?".to_owned(),
            answer: "Yes.".to_owned(),
        }],
        passages: "PASSAGES".to_owned(),
        question: "QUESTION".to_owned(),
        max_tokens: 300,
    }
}

async fn written(answer: Behaviour) -> Result<Generation, GenerationError> {
    let engine = FakeEngine::start([answer]).await;
    let generator = generator(&engine.url, "");
    generator
        .generate(&request(), &EngineCall::within(PATIENCE))
        .await
}

/// An answer as OpenAI's API reference shows it.
fn completion(choice: &Value) -> Behaviour {
    Behaviour::json(&json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_796_026_500,
        "model": "qwen-plus-2026-09-01", "choices": [choice],
        "usage": { "prompt_tokens": 900, "completion_tokens": 40, "total_tokens": 940 }
    }))
}

fn said(content: &Value, finish_reason: &str) -> Behaviour {
    let message = json!({ "role": "assistant", "content": content, "refusal": null });
    completion(&json!({ "index": 0, "message": message, "finish_reason": finish_reason }))
}

#[tokio::test]
async fn the_request_holds_what_was_asked_in_its_order_and_the_settings() {
    let engine = FakeEngine::start([said(&json!("Yes [1]."), "stop")]).await;
    let more = r#", "temperature": 0.2, "max_tokens_field": "max_completion_tokens",
        "parameters": {"enable_thinking": false}"#;
    let generator = generator(&engine.url, more);
    let generation = generator
        .generate(&request(), &EngineCall::within(PATIENCE))
        .await;
    assert_eq!(
        generation.unwrap(),
        Generation {
            text: "Yes [1].".to_owned(),
            stopped: Stopped::Finished,
            model: "qwen-plus".to_owned(),
            usage: Some(Usage {
                input_tokens: 900,
                output_tokens: 40
            }),
        }
    );
    let received = engine.last();
    assert_eq!(received.line, "POST /v1/chat/completions");
    assert_eq!(
        received.headers["authorization"],
        format!("Bearer {SECRET}")
    );
    assert_eq!(
        received.body,
        json!({
            "model": "qwen-plus",
            "messages": [
                { "role": "system", "content": "The system prompt." },
                { "role": "user", "content": "Earlier?" },
                { "role": "assistant", "content": "Yes." },
                { "role": "user", "content": "PASSAGES\n\nQUESTION" },
            ],
            "stream": false, "max_completion_tokens": 300, "temperature": 0.2,
            "enable_thinking": false,
        })
    );
}

#[tokio::test]
async fn thinking_and_calls_of_tools_are_never_read() {
    let message = json!({
        "role": "assistant", "content": "Thirty days [1].", "reasoning_content": "SECRET",
        "reasoning": "SECRET",
        "tool_calls": [{ "id": "c", "type": "function", "function": { "name": "SECRET", "arguments": "{}" } }],
    });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "tool_calls" });
    let generation = written(completion(&choice)).await.unwrap();
    assert_eq!(generation.text, "Thirty days [1].");
    assert_eq!(generation.stopped, Stopped::Otherwise);

    let parts = json!([{ "type": "thinking", "thinking": "SECRET" }, { "type": "text", "text": "Thirty." }]);
    assert_eq!(written(said(&parts, "stop")).await.unwrap().text, "Thirty.");
    assert_eq!(written(said(&Value::Null, "stop")).await.unwrap().text, "");
}

#[tokio::test]
async fn why_a_text_ends_is_told_apart() {
    for (reason, stopped) in [
        ("stop", Stopped::Finished),
        ("length", Stopped::TooLong),
        ("content_filter", Stopped::Withheld),
        ("function_call", Stopped::Otherwise),
    ] {
        let generation = written(said(&json!("x"), reason)).await.unwrap();
        assert_eq!(generation.stopped, stopped, "{reason}");
    }
}

#[tokio::test]
async fn every_failure_has_its_cause() {
    let error = json!({ "error": { "message": "m", "type": "t", "code": "c" } });
    let no_choices = json!({ "object": "chat.completion", "choices": [] });
    for (behaviour, expected) in [
        (Behaviour::status(429, &error), "Throttled"),
        (Behaviour::status(500, &error), "Unavailable"),
        (Behaviour::status(401, &error), "Refused"),
        (Behaviour::status(404, &error), "Refused"),
        (Behaviour::status(400, &error), "Refused"),
        (Behaviour::json(&no_choices), "UnreadableAnswer"),
        // What some gateways send instead of a status.
        (Behaviour::json(&error), "UnreadableAnswer"),
        (Behaviour::html(200), "UnreadableAnswer"),
        (Behaviour::TenMegabytes, "UnreadableAnswer"),
        (Behaviour::HalfABody, "Unavailable"),
        (Behaviour::Close, "Unavailable"),
        (Behaviour::Trickle, "TimedOut"),
        (Behaviour::Hang, "TimedOut"),
    ] {
        let shown = format!("{behaviour:?}");
        let failed = written(behaviour).await.unwrap_err();
        let kind = match failed {
            GenerationError::TimedOut(_) => "TimedOut",
            GenerationError::Throttled => "Throttled",
            GenerationError::Unavailable(_) => "Unavailable",
            GenerationError::Refused(_) => "Refused",
            GenerationError::UnreadableAnswer(_) => "UnreadableAnswer",
        };
        assert_eq!(kind, expected, "{shown:.80}: {failed}");
        assert!(!failed.to_string().contains(SECRET));
    }
}
