use raglan_engines::configuration::answers::{Model, parse};
use raglan_rag::generate::Turn;
use serde_json::{Value, json};

use super::*;
use crate::testing::{FakeBedrock, Reply, call, clock};

const MODEL: &str = "eu.anthropic.claude-haiku-4-5-20251001-v1:0";
const LINE: &str = "POST /model/eu.anthropic.claude-haiku-4-5-20251001-v1%3A0/converse";

fn generator(fake: &FakeBedrock, settings: &Value) -> ConverseGenerator {
    let mut answers = json!({ "type": "bedrock", "model": MODEL });
    for (name, value) in settings.as_object().unwrap() {
        answers[name] = value.clone();
    }
    let configuration = parse(&answers.to_string()).unwrap().unwrap();
    let Model::Bedrock(settings) = configuration.model else {
        panic!("{answers}");
    };
    ConverseGenerator::of_account(settings, configuration.temperature, fake.account(), clock())
}

fn request() -> GenerationRequest {
    GenerationRequest {
        system: "Answer from the passages.".to_owned(),
        earlier: vec![Turn {
            question: "Who may take leave?".to_owned(),
            answer: "Everybody [1].".to_owned(),
        }],
        passages: "<passage id=\"1\">Thirty days.</passage>".to_owned(),
        question: "How many days?".to_owned(),
        max_tokens: 300,
    }
}

fn reply(content: &Value, stop_reason: &str) -> Reply {
    Reply::Json(json!({
        "output": { "message": { "role": "assistant", "content": content } },
        "stopReason": stop_reason,
        "usage": { "inputTokens": 120, "outputTokens": 9, "totalTokens": 129 },
        "metrics": { "latencyMs": 400 },
    }))
}

#[tokio::test]
async fn passages_and_question_are_the_users_and_the_system_prompt_is_ours_alone() {
    let fake = FakeBedrock::start().await;
    fake.on(
        LINE,
        [reply(&json!([{ "text": "Thirty [1]." }]), "end_turn")],
    );
    let generator = generator(&fake, &json!({ "temperature": 0.5 }));
    let written = generator.generate(&request(), &call()).await.unwrap();
    assert_eq!(
        written,
        Generation {
            text: "Thirty [1].".to_owned(),
            stopped: Stopped::Finished,
            model: MODEL.to_owned(),
            usage: Some(Usage {
                input_tokens: 120,
                output_tokens: 9
            }),
        }
    );
    let asked = fake.asked("/converse").pop().unwrap();
    assert_eq!(
        asked.body,
        json!({
            "system": [{ "text": "Answer from the passages." }],
            "messages": [
                { "role": "user", "content": [{ "text": "Who may take leave?" }] },
                { "role": "assistant", "content": [{ "text": "Everybody [1]." }] },
                { "role": "user", "content": [
                    { "text": "<passage id=\"1\">Thirty days.</passage>\n\nHow many days?" }
                ] },
            ],
            "inferenceConfig": { "maxTokens": 300, "temperature": 0.5 },
        })
    );
}

#[tokio::test]
async fn a_guardrail_is_told_which_part_is_the_source_and_which_the_question() {
    let fake = FakeBedrock::start().await;
    fake.on(
        LINE,
        [reply(
            &json!([{ "text": "Sorry." }]),
            "guardrail_intervened",
        )],
    );
    let settings = json!({ "guardrail": { "id": "gr1", "version": "DRAFT" } });
    let generator = generator(&fake, &settings);
    let written = generator.generate(&request(), &call()).await.unwrap();
    assert_eq!(written.stopped, Stopped::Withheld);
    let asked = fake.asked("/converse").pop().unwrap().body;
    assert_eq!(
        asked["guardrailConfig"],
        json!({ "guardrailIdentifier": "gr1", "guardrailVersion": "DRAFT", "trace": "disabled" })
    );
    assert_eq!(
        asked["messages"][2]["content"],
        json!([
            { "guardContent": { "text": {
                "text": "<passage id=\"1\">Thirty days.</passage>",
                "qualifiers": ["grounding_source", "guard_content"],
            } } },
            { "guardContent": { "text": {
                "text": "How many days?", "qualifiers": ["query", "guard_content"],
            } } },
        ])
    );
}

#[tokio::test]
async fn what_the_model_thought_is_never_part_of_its_text() {
    let fake = FakeBedrock::start().await;
    let content = json!([
        { "reasoningContent": { "reasoningText": { "text": "The user wants…", "signature": "s" } } },
        { "text": "Thirty" },
        { "toolUse": { "toolUseId": "t", "name": "search", "input": {} } },
        { "text": " days [1]." },
    ]);
    fake.on(LINE, [reply(&content, "end_turn")]);
    let generator = generator(&fake, &json!({}));
    let written = generator.generate(&request(), &call()).await.unwrap();
    assert_eq!(written.text, "Thirty days [1].");
}

#[tokio::test]
async fn why_a_text_ends_is_told() {
    let fake = FakeBedrock::start().await;
    let generator = generator(&fake, &json!({}));
    for (reason, expected) in [
        ("end_turn", Stopped::Finished),
        ("stop_sequence", Stopped::Finished),
        ("max_tokens", Stopped::TooLong),
        ("model_context_window_exceeded", Stopped::TooLong),
        ("guardrail_intervened", Stopped::Withheld),
        ("content_filtered", Stopped::Withheld),
        ("tool_use", Stopped::Otherwise),
        ("something_new", Stopped::Otherwise),
    ] {
        fake.on(LINE, [reply(&json!([{ "text": "Thirty." }]), reason)]);
        let written = generator.generate(&request(), &call()).await.unwrap();
        assert_eq!(written.stopped, expected, "{reason}");
    }
}

#[tokio::test]
async fn only_a_model_that_throttles_is_asked_again() {
    let good = || reply(&json!([{ "text": "Thirty." }]), "end_turn");
    for (status, code, attempts) in [
        (429, "ThrottlingException", 2),
        (500, "InternalServerException", 1),
        (408, "ModelTimeoutException", 1),
        (403, "AccessDeniedException", 1),
        (400, "ValidationException", 1),
    ] {
        let fake = FakeBedrock::start().await;
        fake.on(LINE, [Reply::Error(status, code, "no"), good()]);
        let generator = generator(&fake, &json!({}));
        let written = generator.generate(&request(), &call()).await;
        assert_eq!(written.is_ok(), attempts == 2, "{code}: {written:?}");
        assert_eq!(fake.asked("/converse").len(), attempts, "{code}");
    }
}

#[tokio::test]
async fn a_reply_that_cannot_be_read_is_an_error() {
    for reply in [
        Reply::Json(json!({ "stopReason": "end_turn" })),
        Reply::Html,
        Reply::HalfABody,
    ] {
        let fake = FakeBedrock::start().await;
        fake.on(LINE, [reply.clone()]);
        let generator = generator(&fake, &json!({}));
        let written = generator.generate(&request(), &call()).await;
        assert!(written.is_err(), "{reply:?}: {written:?}");
    }
}

#[tokio::test]
async fn a_model_that_says_nothing_is_given_up_at_the_callers_deadline() {
    let fake = FakeBedrock::start().await;
    fake.on(LINE, [Reply::Hang]);
    let generator = generator(&fake, &json!({}));
    let call = EngineCall::within(Duration::from_millis(400));
    let request = request();
    let written =
        tokio::time::timeout(Duration::from_secs(30), generator.generate(&request, &call));
    let error = written.await.unwrap().unwrap_err();
    assert!(matches!(error, GenerationError::TimedOut(_)), "{error}");
}
