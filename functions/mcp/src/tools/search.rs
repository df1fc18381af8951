//! What `retrieve` and `ask` have in common: the arguments that say where to look, and the looking.

use futures::future::join_all;
use raglan_core::catalog::KnowledgeBase;
use raglan_rag::backend::{BackendError, Filters, RetrieveRequest};
use raglan_rag::merge::{Merged, merge};
use raglan_texts::{Language, text};
use serde_json::{Value, json};

use super::arguments::Arguments;
use super::{ToolCall, ToolError, filters};

/// Longest query or question, in characters.
pub const QUERY_MAX_CHARS: usize = 8_000;
/// Passages when the caller does not say.
pub const TOP_K_DEFAULT: u64 = 5;
/// Most passages; more is clamped.
pub const TOP_K_MAX: u64 = 50;
const KB_IDS_MAX: usize = 100;
/// Longest identifier that is looked at, in characters.
pub const KB_ID_MAX_CHARS: usize = 200;

/// JSON Schema of `kb_id`.
pub fn kb_id_schema(language: Language) -> Value {
    json!({
        "description": text!(
            language,
            "Search only this knowledge base, or these. Default: all that you may use."
        ),
        "anyOf": [
            { "type": "string", "minLength": 1 },
            { "type": "array", "items": { "type": "string", "minLength": 1 }, "maxItems": KB_IDS_MAX }
        ]
    })
}

/// JSON Schema of `top_k`.
pub fn top_k_schema(language: Language) -> Value {
    json!({
        "type": "integer", "minimum": 1, "default": TOP_K_DEFAULT,
        "description": text!(language, "How many passages at most; more than 50 counts as 50.")
    })
}

/// Where to look and for what.
#[derive(Debug)]
pub struct Search {
    /// The query.
    pub query: String,
    /// The knowledge bases; empty for all in scope.
    pub kb_ids: Vec<String>,
    /// How many passages.
    pub top_k: usize,
    /// Whether the caller asked for more than [`TOP_K_MAX`].
    pub top_k_clamped: bool,
    /// Conditions on documents.
    pub filters: Filters,
    /// The lowest score.
    pub min_score: Option<f32>,
}

impl Search {
    /// Reads the arguments that the two tools share; the query is called `query_name`.
    pub fn read(arguments: &mut Arguments<'_>, query_name: &'static str) -> Self {
        let query = arguments.required_text(query_name, QUERY_MAX_CHARS);
        let kb_ids = read_kb_ids(arguments);
        let asked = arguments.whole_number("top_k", 1).unwrap_or(TOP_K_DEFAULT);
        let filters = filters::read(arguments);
        Self {
            query,
            kb_ids,
            top_k: usize::try_from(asked.min(TOP_K_MAX)).unwrap_or(usize::MAX),
            top_k_clamped: asked > TOP_K_MAX,
            filters,
            min_score: None,
        }
    }

    /// Asks the engines of all selected knowledge bases at the same time.
    ///
    /// # Errors
    /// [`ToolError`] when the caller may not, or when no engine gave an answer. Where some did and
    /// some did not, the latter are in [`Found::warnings`].
    pub async fn run(&self, call: &ToolCall<'_>) -> Result<Found, ToolError> {
        let scope = call.scope().await?;
        let selected = scope.select(&self.kb_ids)?;
        if selected.is_empty() {
            return Err(raglan_core::access::Denial::KnowledgeBase.into());
        }
        let request = RetrieveRequest {
            query: self.query.clone(),
            top_k: self.top_k,
            min_score: self.min_score,
            filters: self.filters.clone(),
        };
        let asked = selected.iter().map(|kb| kb.id.to_string()).collect();
        let answers = join_all(selected.iter().map(|kb| ask_one(call, kb, &request))).await;
        let (mut results, mut warnings, mut first_error) = (Vec::new(), Vec::new(), None);
        for (knowledge_base, answer) in selected.iter().zip(answers) {
            match answer {
                Ok(retrieval) => results.push((knowledge_base.id.clone(), retrieval)),
                // Leaving a filter out would widen the result: the whole call ends.
                Err(error @ ToolError::Backend(BackendError::UnsupportedFilter(_))) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(kb_id = %knowledge_base.id, %error, "a knowledge base did not answer");
                    warnings.push(text!(
                        call.services.language,
                        "Knowledge base `{kb_id}` did not answer; its passages are missing here.",
                        kb_id = knowledge_base.id
                    ));
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            Some(error) if results.is_empty() => Err(error),
            _ => Ok(Found {
                merged: merge(results, self.top_k),
                asked,
                warnings,
            }),
        }
    }
}

/// What the engines found.
#[derive(Debug)]
pub struct Found {
    /// The passages in one list.
    pub merged: Merged,
    /// The knowledge bases that were asked.
    pub asked: Vec<String>,
    /// One sentence for each knowledge base that did not answer.
    pub warnings: Vec<String>,
}

/// Reads `kb_id`: one identifier or several.
pub fn read_kb_ids(arguments: &mut Arguments<'_>) -> Vec<String> {
    arguments.texts("kb_id", KB_IDS_MAX, KB_ID_MAX_CHARS)
}

async fn ask_one(
    call: &ToolCall<'_>,
    knowledge_base: &KnowledgeBase,
    request: &RetrieveRequest,
) -> Result<raglan_rag::backend::Retrieval, ToolError> {
    let backend = call.services.backends.of(knowledge_base)?;
    call.wait_for(backend.retrieve(&knowledge_base.backend.id, request, &call.engine_call()))
        .await
}
