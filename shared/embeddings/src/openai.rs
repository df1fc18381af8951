//! `POST /embeddings` (OpenAI API reference, "Create embeddings").

use std::time::Duration;

use futures::future::BoxFuture;
use raglan_engines::call::{
    CredentialHeader, EngineClient, EngineRequest, ExchangeLimits, Surroundings,
};
use raglan_rag::backend::{BackendError, EngineCall};
use raglan_rag::embedded::embedding::{Embedder, Purpose};
use raglan_rag::embedded::vectors::DIMENSION_MAX;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::configuration::{EmbeddingsConfiguration, PurposeStyle};

/// How the model is called in the log.
const NAME: &str = "embeddings";
/// One request: a batch of passages takes a small machine a while.
const ATTEMPT_TIMEOUT: Duration = Duration::from_mins(1);
/// 32 vectors of 8,192 numbers of some 20 characters.
const RESPONSE_MAX_BYTES: usize = 8 << 20;

/// A model behind this interface.
pub struct OpenAiEmbedder {
    client: EngineClient,
    model: String,
    purpose: PurposeStyle,
    dimension: Option<usize>,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Datum>,
}

#[derive(Deserialize)]
struct Datum {
    index: usize,
    embedding: Vec<f32>,
}

impl OpenAiEmbedder {
    /// The configured model. Nothing is asked yet.
    #[must_use]
    pub fn new(configuration: EmbeddingsConfiguration, surroundings: Surroundings) -> Self {
        let limits = ExchangeLimits {
            attempt_timeout: ATTEMPT_TIMEOUT,
            response_max_bytes: RESPONSE_MAX_BYTES,
        };
        Self {
            client: EngineClient::new(
                NAME.to_owned(),
                configuration.url,
                configuration.credential,
                CredentialHeader::Bearer,
                limits,
                surroundings,
            ),
            model: configuration.model,
            purpose: configuration.purpose,
            dimension: configuration.dimension,
        }
    }

    fn body(&self, texts: &[String], purpose: Purpose) -> Value {
        let prefix = self.purpose.prefix(purpose);
        let input: Vec<String> = texts.iter().map(|text| format!("{prefix}{text}")).collect();
        let mut body = json!({
            "model": self.model,
            "input": input,
            "encoding_format": "float",
        });
        if let Some(input_type) = self.purpose.input_type(purpose) {
            body["input_type"] = input_type.into();
        }
        if let Some(dimension) = self.dimension {
            body["dimensions"] = dimension.into();
        }
        body
    }
}

impl Embedder for OpenAiEmbedder {
    fn model(&self) -> &str {
        &self.model
    }

    fn prefix(&self, purpose: Purpose) -> &str {
        self.purpose.prefix(purpose)
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        purpose: Purpose,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, BackendError>> {
        Box::pin(async move {
            let request = EngineRequest::post(&["embeddings"], self.body(texts, purpose));
            let answer = self.client.send(&request, call).await;
            let answer = answer.map_err(|error| error.or_unsupported("make embeddings"))?;
            vectors(answer, texts.len(), self.dimension)
        })
    }
}

/// One vector for each text, in the order of the texts.
fn vectors(
    answer: Value,
    count: usize,
    dimension: Option<usize>,
) -> Result<Vec<Vec<f32>>, BackendError> {
    let unreadable = |text: String| BackendError::UnreadableAnswer(text);
    // The parser names a position and never quotes the text.
    let answer: Answer =
        serde_json::from_value(answer).map_err(|error| unreadable(error.to_string()))?;
    let mut data = answer.data;
    data.sort_by_key(|datum| datum.index);
    let in_order = data.iter().enumerate().all(|(at, datum)| datum.index == at);
    if data.len() != count || !in_order {
        return Err(unreadable(format!(
            "{} vectors for {count} texts, or not one for each",
            data.len()
        )));
    }
    let length = data.first().map_or(0, |datum| datum.embedding.len());
    let of_one_length = data.iter().all(|datum| datum.embedding.len() == length);
    let as_asked = dimension.is_none_or(|dimension| dimension == length);
    if count > 0 && !(of_one_length && as_asked && (1..=DIMENSION_MAX).contains(&length)) {
        return Err(unreadable(format!("vectors of {length} dimensions")));
    }
    Ok(data.into_iter().map(|datum| datum.embedding).collect())
}

#[cfg(test)]
mod tests;
