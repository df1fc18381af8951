//! Answers from a language model behind an endpoint that is compatible with OpenAI's Chat Completions
//! (`POST /chat/completions`, <https://platform.openai.com/docs/api-reference/chat/create>): OpenAI, Azure,
//! Qwen, `DeepSeek`, GLM, vLLM, Ollama, LiteLLM and others.

use futures::future::BoxFuture;
use raglan_rag::backend::{BackendError, EngineCall};
use raglan_rag::generate::{
    Generation, GenerationError, GenerationRequest, Generator, Stopped, Usage,
};
use serde_json::{Map, Value, json};

use crate::call::{EngineClient, EngineRequest, Surroundings};
use crate::configuration::answers::ChatSettings;

/// The name that the endpoint has in the log.
const NAME: &str = "answers";

/// A model behind a chat endpoint.
#[derive(Debug)]
pub struct ChatGenerator {
    client: EngineClient,
    settings: ChatSettings,
    temperature: Option<f32>,
}

impl ChatGenerator {
    /// The model that the settings name. Nothing is opened or read yet.
    #[must_use]
    pub fn new(
        settings: ChatSettings,
        temperature: Option<f32>,
        surroundings: Surroundings,
    ) -> Self {
        let client = EngineClient::new(
            NAME.to_owned(),
            settings.url.clone(),
            settings.credential.clone(),
            settings.credential_header.clone(),
            settings.limits,
            surroundings,
        );
        Self {
            client,
            settings,
            temperature,
        }
    }

    fn body(&self, request: &GenerationRequest) -> Value {
        let mut messages = vec![json!({ "role": "system", "content": request.system })];
        for turn in &request.earlier {
            messages.push(json!({ "role": "user", "content": turn.question }));
            messages.push(json!({ "role": "assistant", "content": turn.answer }));
        }
        let asked = format!("{}\n\n{}", request.passages, request.question);
        messages.push(json!({ "role": "user", "content": asked }));
        let mut body: Map<String, Value> = self.settings.parameters.clone();
        body.insert("model".to_owned(), self.settings.model.as_str().into());
        body.insert("messages".to_owned(), messages.into());
        body.insert("stream".to_owned(), false.into());
        body.insert(
            self.settings.max_tokens_field.clone(),
            request.max_tokens.into(),
        );
        if let Some(temperature) = self.temperature {
            // As it was written: 0.2 and not the nearest number of double width.
            let written: Option<f64> = temperature.to_string().parse().ok();
            body.insert("temperature".to_owned(), written.into());
        }
        Value::Object(body)
    }

    /// Reads the first choice. Fields for thinking (`reasoning_content`, `reasoning`) and calls of tools
    /// are not looked at.
    fn read(&self, answer: &Value) -> Result<Generation, GenerationError> {
        let choice = answer.pointer("/choices/0").ok_or_else(|| {
            let message = "the answer has no choices";
            GenerationError::UnreadableAnswer(message.to_owned())
        })?;
        let stopped = match choice.get("finish_reason").and_then(Value::as_str) {
            None | Some("stop") => Stopped::Finished,
            Some("length") => Stopped::TooLong,
            Some("content_filter") => Stopped::Withheld,
            Some(_) => Stopped::Otherwise,
        };
        Ok(Generation {
            text: text_of(choice.pointer("/message/content")),
            stopped,
            model: self.settings.model.clone(),
            usage: usage_of(answer.get("usage")),
        })
    }
}

impl Generator for ChatGenerator {
    fn generate<'a>(
        &'a self,
        request: &'a GenerationRequest,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Generation, GenerationError>> {
        Box::pin(async move {
            let request = EngineRequest::post(&["chat", "completions"], self.body(request));
            let answer = self.client.send(&request, call).await;
            self.read(&answer.map_err(BackendError::from)?)
        })
    }
}

/// A text, or a list of parts of which those of type `text` count; nothing is an empty text.
fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .filter(|part| part["type"] == "text")
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}

fn usage_of(usage: Option<&Value>) -> Option<Usage> {
    let usage = usage?;
    Some(Usage {
        input_tokens: usage.get("prompt_tokens")?.as_u64()?,
        output_tokens: usage.get("completion_tokens")?.as_u64()?,
    })
}

#[cfg(test)]
mod tests;
