//! Step 5 of a request: the tools. One tool, one file: what it is, its input, its output, its work.

pub(crate) mod arguments;
mod ask;
mod document_listing;
mod filters;
mod get_knowledge_base;
mod get_task;
mod job_id;
pub(crate) mod knowledge_base;
mod list_documents;
mod list_knowledge_bases;
mod paging;
pub(crate) mod passages;
mod retrieve;
pub(crate) mod search;
pub mod size;
pub mod written;

use std::collections::BTreeMap;
use std::time::Duration;

use raglan_core::access::{Denial, EffectiveScope};
use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::Clock;
use raglan_core::random::{Random, RandomUnavailable};
use raglan_core::tool::Tool;
use raglan_guard::Guard;
use raglan_rag::backend::{BackendError, EngineCall};
use raglan_store::{CatalogStore, SessionStore, StoreError};
use raglan_texts::Language;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

pub use arguments::InvalidArguments;
pub use size::Size;
pub use written::Structured;

use crate::answers::Answers;
use crate::ask_gate::{AskGate, AskRefused};
use crate::authenticate::Caller;
use crate::backends::Backends;
use crate::config::CursorSecret;
use crate::cursor::InvalidCursor;
use crate::limit::DailyQuotaUsedUp;
use crate::scopes::{EarlyReadSlot, Scopes};

/// What the tools work with.
pub struct Services {
    /// Knowledge bases and tasks.
    pub catalog: CatalogStore,
    /// Which knowledge bases a caller may use.
    pub scopes: std::sync::Arc<Scopes>,
    /// The retrieval engines.
    pub backends: Backends,
    /// Admits questions.
    pub ask_gate: AskGate,
    /// Writes answers, where a model is configured.
    pub answers: Answers,
    /// Conversations.
    pub sessions: SessionStore,
    /// How long a turn of a conversation is kept; 0: none is.
    pub session_ttl_seconds: i64,
    /// Neutralises retrieved text.
    pub guard: Guard,
    /// Signs cursors.
    pub cursor_secret: CursorSecret,
    /// The language of texts for people and models.
    pub language: Language,
    /// Results are cut to stay below it.
    pub max_result: Size,
    /// The time.
    pub clock: std::sync::Arc<dyn Clock>,
    /// The randomness.
    pub random: std::sync::Arc<dyn Random>,
}

/// One call of a tool, after the tool itself was permitted.
pub struct ToolCall<'a> {
    /// What there is to work with.
    pub services: &'a Services,
    /// Who calls.
    pub caller: &'a Caller,
    /// The part of the catalogue that was read before it was known who calls.
    pub early_read: &'a EarlyReadSlot,
    /// Until when engines are waited for: a little before the whole call ends, so that what some of
    /// them found is not lost with the one that hangs.
    pub engines_until: Instant,
    /// The trace that requests to engines belong to.
    pub traceparent: String,
}

impl ToolCall<'_> {
    /// The knowledge bases that the caller may use at this moment, read fresh.
    pub(crate) async fn scope(&self) -> Result<EffectiveScope, ToolError> {
        let scopes = &self.services.scopes;
        Ok(scopes.of(self.caller, self.early_read).await?)
    }

    /// How long engines may still take.
    pub(crate) fn time_left(&self) -> Duration {
        self.engines_until.saturating_duration_since(Instant::now())
    }

    /// What a request to an engine carries, made now.
    pub(crate) fn engine_call(&self) -> EngineCall {
        EngineCall {
            time_left: self.time_left(),
            traceparent: Some(self.traceparent.clone()),
        }
    }

    /// Waits for an engine's answer as long as the call may take.
    pub(crate) async fn wait_for<T>(
        &self,
        work: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, ToolError> {
        let time_left = self.time_left();
        match tokio::time::timeout(time_left, work).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(BackendError::TimedOut(time_left).into()),
        }
    }
}

/// What a tool answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The result; it fits the tool's output schema.
    pub structured: Structured,
    /// The knowledge bases that were asked.
    pub knowledge_bases: Vec<String>,
    /// Number of items.
    pub result_count: u64,
    /// What the guard found, by rule.
    pub guard_findings: BTreeMap<String, u64>,
}

/// Why a tool gives no result.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The caller may not.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// The tool's daily quota is used up.
    #[error(transparent)]
    QuotaUsedUp(#[from] DailyQuotaUsedUp),
    /// The question is not worked on.
    #[error(transparent)]
    AskRefused(#[from] AskRefused),
    /// The arguments break the input schema.
    #[error(transparent)]
    InvalidArguments(#[from] InvalidArguments),
    /// The cursor was altered or belongs elsewhere.
    #[error(transparent)]
    InvalidCursor(#[from] InvalidCursor),
    /// The store cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No engine gave an answer.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A knowledge base whose engine cannot apply a filter.
    #[error("the engine of {kb_id} cannot filter by {filter:?}")]
    UnsupportedFilter {
        /// The knowledge base.
        kb_id: KnowledgeBaseId,
        /// The filter, in the engine's or the caller's words.
        filter: String,
    },
    /// A knowledge base names an engine that is not configured.
    #[error("no backend with the name {0:?} is configured")]
    UnknownBackend(String),
    /// There are no random bytes.
    #[error(transparent)]
    Random(#[from] RandomUnavailable),
    /// What was kept of an earlier call cannot be read.
    #[error("the kept result of an earlier call cannot be read")]
    UnreadableResult,
    /// The result cannot be brought under the size limit.
    #[error("the result is {0} bytes after cutting")]
    ResultTooLarge(usize),
}

/// A tool as clients see it.
pub struct Definition {
    /// Which tool.
    pub tool: Tool,
    /// Name for people.
    pub title: fn(Language) -> &'static str,
    /// What it is and when to use it, for the model.
    pub description: fn(Language) -> &'static str,
    /// JSON Schema 2020-12 of the arguments.
    pub input_schema: fn(Language) -> Value,
    /// JSON Schema 2020-12 of the structured result.
    pub output_schema: fn(Language) -> Value,
}

/// Every tool, in the order of [`Tool::ALL`].
pub const DEFINITIONS: [Definition; 6] = [
    ask::DEFINITION,
    get_knowledge_base::DEFINITION,
    get_task::DEFINITION,
    list_documents::DEFINITION,
    list_knowledge_bases::DEFINITION,
    retrieve::DEFINITION,
];

/// Runs a tool. The tool itself must have been permitted; everything else is decided in here.
///
/// # Errors
/// [`ToolError`]
pub async fn run(
    tool: Tool,
    call: &ToolCall<'_>,
    arguments: &Map<String, Value>,
) -> Result<ToolOutput, ToolError> {
    match tool {
        Tool::Ask => {
            let gate = &call.services.ask_gate;
            let work = async |call: &ToolCall<'_>| ask::run(call, arguments).await;
            gate.pass(call, arguments, work).await
        }
        Tool::GetKnowledgeBase => get_knowledge_base::run(call, arguments).await,
        Tool::GetTask => get_task::run(call, arguments).await,
        Tool::ListDocuments => list_documents::run(call, arguments).await,
        Tool::ListKnowledgeBases => list_knowledge_bases::run(call, arguments).await,
        Tool::Retrieve => retrieve::run(call, arguments).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_defined_once_and_in_order() {
        assert_eq!(DEFINITIONS.map(|definition| definition.tool), Tool::ALL);
    }

    fn in_all_languages() -> impl Iterator<Item = (Definition, Language)> {
        let definitions = DEFINITIONS.into_iter();
        definitions.zip(std::iter::repeat(Language::English)).chain(
            DEFINITIONS
                .into_iter()
                .zip(std::iter::repeat(Language::Chinese)),
        )
    }

    #[test]
    fn every_schema_is_one_that_old_clients_can_compile() {
        for (definition, language) in in_all_languages() {
            for schema in [
                (definition.input_schema)(language),
                (definition.output_schema)(language),
            ] {
                assert_eq!(schema["type"], "object", "{}", definition.tool);
                assert!(schema["properties"].is_object(), "{}", definition.tool);
                assert!(
                    !schema.to_string().contains("\"$schema\""),
                    "{}",
                    definition.tool
                );
            }
            assert_eq!(
                (definition.input_schema)(language)["additionalProperties"],
                false
            );
        }
    }

    #[test]
    fn every_input_field_is_described() {
        for (definition, language) in in_all_languages() {
            let schema = (definition.input_schema)(language);
            for (name, field) in schema["properties"].as_object().unwrap() {
                assert!(
                    field["description"].is_string(),
                    "{}.{name}",
                    definition.tool
                );
            }
        }
    }
}
