//! Which language model writes answers, if any: one JSON object.

use std::time::Duration;

use raglan_telemetry::settings::Settings;
use serde_json::{Map, Value};

use super::fields::Fields;
use super::{BedrockGuardrail, EngineUrl, credential, credential_header, guardrail, url};
use crate::call::{CredentialHeader, ExchangeLimits};
use crate::credentials::CredentialReference;

/// `ANSWERS`: the JSON itself.
pub const ANSWERS: &str = "ANSWERS";
/// What the request itself is made of; [`ChatSettings::parameters`] cannot change it.
const OWN_PARAMETERS: [&str; 8] = [
    "model",
    "messages",
    "stream",
    "n",
    "tools",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
];

/// How answers are written by a model.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerConfiguration {
    /// Which model, and how it is reached.
    pub model: Model,
    /// Length of an answer in the model's tokens, thinking included, at most.
    pub max_tokens: u32,
    /// How much of the passages the model gets, in tokens as raglan estimates them.
    pub passages_max_tokens: usize,
    /// `None` leaves it to the model.
    pub temperature: Option<f32>,
}

/// The interfaces, with their own settings.
#[derive(Debug, Clone, PartialEq)]
pub enum Model {
    /// `openai`: `POST /chat/completions`, as OpenAI and many others serve it.
    Chat(ChatSettings),
    /// `bedrock`: Converse of Amazon Bedrock.
    Bedrock(ConverseSettings),
}

/// `openai`
#[derive(Debug, Clone, PartialEq)]
pub struct ChatSettings {
    /// What comes before `/chat/completions`: `https://host/v1`.
    pub url: EngineUrl,
    /// The model's name there.
    pub model: String,
    /// Where the credential is; `None` for an endpoint that asks for none.
    pub credential: Option<CredentialReference>,
    /// The header that carries the credential.
    pub credential_header: CredentialHeader,
    /// What one request may cost.
    pub limits: ExchangeLimits,
    /// The field that bounds the answer: `max_tokens`, or `max_completion_tokens` where a model takes
    /// nothing else.
    pub max_tokens_field: String,
    /// Further fields of the request, such as `{"enable_thinking": false}`.
    pub parameters: Map<String, Value>,
}

/// `bedrock`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConverseSettings {
    /// `modelId`: a model, an inference profile, or the ARN of either.
    pub model: String,
    /// The region, where it is not the function's own.
    pub region: Option<String>,
    /// The guardrail that every answer passes.
    pub guardrail: Option<BedrockGuardrail>,
    /// How long one request may take; the caller's deadline may be earlier.
    pub attempt_timeout: Duration,
}

/// Reads `ANSWERS` and notes every problem there is. `None` is for answers without a model.
pub fn from_settings<L: Fn(&str) -> Option<String>>(
    settings: &mut Settings<L>,
) -> Option<AnswerConfiguration> {
    let text = settings.get(ANSWERS)?;
    match parse(&text) {
        Ok(configuration) => configuration,
        Err(problems) => {
            for problem in problems {
                settings.problem(problem);
            }
            None
        }
    }
}

/// Reads the JSON, or the word `extractive` alone.
///
/// # Errors
/// Every problem there is, one sentence each, none with a value of the configuration in it.
pub fn parse(text: &str) -> Result<Option<AnswerConfiguration>, Vec<String>> {
    if text.trim() == "extractive" {
        return Ok(None);
    }
    let values: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        vec![format!(
            "{ANSWERS} is neither extractive nor a JSON object ({place})"
        )]
    })?;
    let mut problems = Vec::new();
    let mut fields = Fields::new(ANSWERS.to_owned(), values, &mut problems);
    let configuration = configuration(&mut fields);
    fields.finish();
    if problems.is_empty() {
        Ok(configuration)
    } else {
        Err(problems)
    }
}

fn configuration(fields: &mut Fields<'_>) -> Option<AnswerConfiguration> {
    let model = match fields.deciding_text("type")?.as_str() {
        "extractive" => return None,
        "openai" => Model::Chat(chat(fields)),
        "bedrock" => Model::Bedrock(converse(fields)),
        _ => {
            fields.give_up("type", "extractive, openai or bedrock");
            return None;
        }
    };
    let max_tokens = fields.number("max_tokens", 1_000, 16, 32_000);
    let passages_max_tokens = fields.number("passages_max_tokens", 8_000, 500, 200_000);
    Some(AnswerConfiguration {
        model,
        max_tokens: u32::try_from(max_tokens).unwrap_or(u32::MAX),
        passages_max_tokens: usize::try_from(passages_max_tokens).unwrap_or(usize::MAX),
        temperature: fields.decimal("temperature", 0.0, 2.0),
    })
}

fn chat(fields: &mut Fields<'_>) -> ChatSettings {
    ChatSettings {
        url: url(fields),
        model: fields.required_text("model").unwrap_or_default(),
        credential: credential(fields),
        credential_header: credential_header(fields),
        limits: ExchangeLimits {
            attempt_timeout: request_timeout(fields),
            // Thinking is part of the answer's body.
            response_max_bytes: 4 * 1024 * 1024,
        },
        max_tokens_field: fields.word("max_tokens_field", &["max_tokens", "max_completion_tokens"]),
        parameters: parameters(fields),
    }
}

fn converse(fields: &mut Fields<'_>) -> ConverseSettings {
    let model = fields.required_text("model").unwrap_or_default();
    ConverseSettings {
        model,
        region: fields.text("region"),
        guardrail: guardrail(fields),
        attempt_timeout: request_timeout(fields),
    }
}

fn request_timeout(fields: &mut Fields<'_>) -> Duration {
    Duration::from_secs(fields.number("request_timeout_seconds", 60, 1, 900))
}

fn parameters(fields: &mut Fields<'_>) -> Map<String, Value> {
    let parameters = fields.free_object("parameters").unwrap_or_default();
    if parameters
        .keys()
        .any(|name| OWN_PARAMETERS.contains(&name.as_str()))
    {
        let own = OWN_PARAMETERS.join(", ");
        fields.problem("parameters", &format!("must not have any of {own}"));
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        parse(text).unwrap_err()
    }

    #[test]
    fn without_a_model_answers_are_extractive() {
        for text in ["extractive", " extractive ", r#"{"type": "extractive"}"#] {
            assert_eq!(parse(text), Ok(None), "{text}");
        }
        let mut settings = Settings::new(|_: &str| None);
        assert_eq!(from_settings(&mut settings), None);
    }

    #[test]
    fn a_chat_endpoint_has_defaults_for_everything_but_where_it_is() {
        let text =
            r#"{"type": "openai", "url": "https://models.example/v1/", "model": "qwen-plus"}"#;
        let configuration = parse(text).unwrap().unwrap();
        assert_eq!(
            (configuration.max_tokens, configuration.passages_max_tokens),
            (1_000, 8_000)
        );
        assert_eq!(configuration.temperature, None);
        let Model::Chat(chat) = configuration.model else {
            panic!("no chat endpoint");
        };
        assert_eq!(chat.url.to_string(), "https://models.example/v1");
        assert_eq!(chat.credential, None);
        assert_eq!(chat.max_tokens_field, "max_tokens");
    }

    #[test]
    fn a_guardrail_has_an_identifier_and_a_version() {
        let text = r#"{"type": "bedrock", "model": "amazon.nova-lite-v1:0", "region": "eu-west-1",
            "guardrail": {"id": "gr-1", "version": "3"}, "temperature": 0.2}"#;
        let configuration = parse(text).unwrap().unwrap();
        let Model::Bedrock(converse) = configuration.model else {
            panic!("not Bedrock");
        };
        let guardrail = converse.guardrail.unwrap();
        assert_eq!(
            (guardrail.id.as_str(), guardrail.version.as_str()),
            ("gr-1", "3")
        );
        assert_eq!(
            problems(r#"{"type": "bedrock", "model": "m", "guardrail": {"id": "gr-1"}}"#),
            ["ANSWERS.guardrail.version: is missing"]
        );
    }

    #[test]
    fn every_problem_is_named_and_no_value_is_shown() {
        let text = r#"{"type": "openai", "url": "http://models.example/v1", "model": "m"}"#;
        assert_eq!(
            problems(text),
            ["ANSWERS.url: expected an https URL (http on this machine only)"]
        );
        let text = r#"{"type": "openai", "url": "https://models.example/v1", "model": "m",
            "credential": "sk-secret", "max_tokens": 1, "temperature": 9, "max_tokens_field": "n",
            "parameters": {"messages": []}, "modell": "x"}"#;
        assert_eq!(
            problems(text),
            [
                "ANSWERS.credential: expected secretsmanager:NAME, secretsmanager:NAME#FIELD, ssm:/NAME or \
                 env:NAME (never the credential itself)",
                "ANSWERS.max_tokens_field: expected one of max_tokens, max_completion_tokens",
                "ANSWERS.parameters: must not have any of model, messages, stream, n, tools, max_tokens, \
                 max_completion_tokens, temperature",
                "ANSWERS.max_tokens: expected a number from 16 to 32000",
                "ANSWERS.temperature: expected a number from 0 to 2",
                "ANSWERS.\"modell\" is not known",
            ]
        );
        assert_eq!(
            problems(r#"{"type": "magic"}"#),
            ["ANSWERS.type: expected extractive, openai or bedrock"]
        );
        assert_eq!(
            problems("sk-secret"),
            ["ANSWERS is neither extractive nor a JSON object (line 1, column 1)"]
        );
    }
}
