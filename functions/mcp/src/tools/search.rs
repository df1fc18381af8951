//! What `retrieve` and `ask` have in common: the arguments that say where to look, and the looking.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures::FutureExt as _;
use futures::future::join_all;
use raglan_core::access::EffectiveScope;
use raglan_core::catalog::{KnowledgeBase, KnowledgeBaseId};
use raglan_rag::backend::{BackendError, EngineAnswer, Filters, Note, Retrieval, RetrieveRequest};
use raglan_rag::filter_check::drop_what_breaks;
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
/// Warnings in one result.
const WARNINGS_MAX: usize = 20;
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
        "description": text!(
            language,
            "How many passages at most; more than 50, or than the engine gives, is clamped."
        )
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
    /// Whether an engine that is the only one asked may answer the query itself.
    pub wants_answer: bool,
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
            wants_answer: false,
        }
    }

    /// Everything that decides what is found, as text: what a cursor is bound to.
    pub fn question(&self) -> String {
        let mut kb_ids = self.kb_ids.clone();
        kb_ids.sort();
        let (query, filters) = (&self.query, &self.filters);
        format!(
            "{query:?} {kb_ids:?} {} {:?} {filters:?}",
            self.top_k, self.min_score
        )
    }

    /// Asks the engines of all selected knowledge bases at the same time.
    ///
    /// # Errors
    /// [`ToolError`] when the caller may not, when an engine cannot apply a filter, or when no engine
    /// gave an answer. Where some did and some did not, the latter are in [`Found::warnings`].
    ///
    /// # Panics
    /// When an engine panics and no other one gave an answer.
    pub async fn run(&self, call: &ToolCall<'_>) -> Result<Found, ToolError> {
        let scope = call.scope().await?;
        self.run_in(call, &scope).await
    }

    /// The same where the scope was read a moment ago.
    ///
    /// # Errors
    /// Those of [`Search::run`].
    pub async fn run_in(
        &self,
        call: &ToolCall<'_>,
        scope: &EffectiveScope,
    ) -> Result<Found, ToolError> {
        let language = call.services.language;
        let selected = scope.select(&self.kb_ids)?;
        if selected.is_empty() {
            return Err(raglan_core::access::Denial::KnowledgeBase.into());
        }
        let wants_answer = self.wants_answer && selected.len() == 1;
        let ask = |&kb| AssertUnwindSafe(self.ask_one(call, kb, wants_answer)).catch_unwind();
        let answers = join_all(selected.iter().map(ask)).await;
        let mut found = Found {
            top_k_clamped: self.top_k_clamped,
            asked: selected.iter().map(|kb| kb.id.to_string()).collect(),
            ..Found::default()
        };
        let (mut results, mut failures, mut panicked) = (Vec::new(), Vec::new(), None);
        let mut written = None;
        for (knowledge_base, answer) in selected.iter().zip(answers) {
            let kb_id = &knowledge_base.id;
            let answer = match answer {
                Ok(answer) => answer,
                Err(panic) => {
                    tracing::error!(%kb_id, "an engine panicked");
                    found.partial = true;
                    found.warnings.push(no_answer(kb_id, language));
                    panicked = Some(panic);
                    continue;
                }
            };
            match answer {
                Ok(answer) => {
                    found.top_k_clamped |= answer.top_k_clamped;
                    for note in &answer.retrieval.notes {
                        found.partial |= matches!(
                            note,
                            Note::FilteredAgain(_) | Note::Withheld | Note::WordsOnly
                        );
                        found.warnings.push(told(kb_id, note, language));
                    }
                    written = answer
                        .written
                        .map(|text| (text, answer.retrieval.passages.len()));
                    results.push((kb_id.clone(), answer.retrieval));
                }
                // Leaving a filter out would widen the result: the whole call ends.
                Err(ToolError::Backend(BackendError::UnsupportedFilter(filter))) => {
                    return Err(ToolError::UnsupportedFilter {
                        kb_id: kb_id.clone(),
                        filter,
                    });
                }
                Err(error) => {
                    found.partial = true;
                    found.warnings.push(did_not_answer(kb_id, &error, language));
                    failures.push((kb_id, error));
                }
            }
        }
        if let (true, Some(panic)) = (results.is_empty(), panicked) {
            resume_unwind(panic);
        }
        cut_warnings(&mut found.warnings, language);
        let mut failures = failures.into_iter().peekable();
        // What ends the call is logged where the caller is told.
        let ends_the_call = failures.next_if(|_| results.is_empty());
        for (kb_id, error) in failures {
            tracing::warn!(%kb_id, %error, "a knowledge base did not answer");
        }
        if let Some((_, error)) = ends_the_call {
            return Err(error);
        }
        found.merged = merge(results, self.top_k);
        // Where passages were left out, the numbers in the text stand for others.
        found.written = written
            .filter(|(_, count)| *count == found.merged.passages.len())
            .map(|(text, _)| text);
        Ok(found)
    }

    /// Asks one engine for no more than it gives, and does not trust it with the filters.
    async fn ask_one(
        &self,
        call: &ToolCall<'_>,
        knowledge_base: &KnowledgeBase,
        wants_answer: bool,
    ) -> Result<Answer, ToolError> {
        let backend = call.services.backends.of(knowledge_base)?;
        let abilities = backend.abilities();
        let request = RetrieveRequest {
            query: self.query.clone(),
            top_k: self.top_k.min(abilities.top_k_limit).max(1),
            min_score: self.min_score,
            filters: self.filters.clone(),
        };
        let engine_call = call.engine_call();
        let id = &knowledge_base.backend.id;
        let answer = if wants_answer {
            let work = backend.answer(id, &request, &engine_call);
            answered(call.wait_for(work).await, &knowledge_base.id)?
        } else {
            None
        };
        let (mut retrieval, mut written) = if let Some(answer) = answer {
            let model = answer.model;
            let written = answer.text.map(|text| EngineText { text, model });
            (answer.retrieval, written)
        } else {
            let work = backend.retrieve(id, &request, &engine_call);
            (call.wait_for(work).await?, None)
        };
        let given = retrieval.passages.len();
        drop_what_breaks(&self.filters, abilities.tells_metadata, &mut retrieval);
        drop_what_scores_below(self.min_score, &mut retrieval);
        retrieval.passages.truncate(request.top_k);
        // More of a text than a result may have is never shown.
        let most_bytes = call.services.max_result.bytes;
        for passage in &mut retrieval.passages {
            let shown = passage.content.floor_char_boundary(most_bytes);
            passage.content.truncate(shown);
        }
        if retrieval.passages.len() < given {
            // The text rests on passages that must not be seen, and its numbers stand for others.
            written = None;
        }
        Ok(Answer {
            retrieval,
            written,
            top_k_clamped: request.top_k < self.top_k,
        })
    }
}

/// Leaves out what the engine should have left out.
fn drop_what_scores_below(min_score: Option<f32>, retrieval: &mut Retrieval) {
    let Some(least) = min_score else { return };
    let given = retrieval.passages.len();
    retrieval.passages.retain(|passage| passage.score >= least);
    retrieval.below_threshold += (given - retrieval.passages.len()) as u64;
}

/// The engine's own answer, where it has one; where it failed, its passages may still be found.
fn answered(
    outcome: Result<Option<EngineAnswer>, ToolError>,
    kb_id: &KnowledgeBaseId,
) -> Result<Option<EngineAnswer>, ToolError> {
    match outcome {
        Err(ToolError::Backend(error)) if !matches!(error, BackendError::UnsupportedFilter(_)) => {
            tracing::warn!(%kb_id, %error, "an engine wrote no answer; its passages are asked for");
            Ok(None)
        }
        outcome => outcome,
    }
}

/// What one engine found.
struct Answer {
    retrieval: Retrieval,
    written: Option<EngineText>,
    /// Whether the engine gives fewer passages than were asked for.
    top_k_clamped: bool,
}

/// An answer that an engine wrote itself.
#[derive(Debug)]
pub struct EngineText {
    /// The text; `[n]` stands for the passage at `n - 1`.
    pub text: String,
    /// The model that wrote it.
    pub model: String,
}

/// What the engines found.
#[derive(Debug, Default)]
pub struct Found {
    /// What the only engine that was asked answers itself.
    pub written: Option<EngineText>,
    /// The passages in one list.
    pub merged: Merged,
    /// The knowledge bases that were asked.
    pub asked: Vec<String>,
    /// Whether passages are missing that another call may find: a knowledge base did not answer, or
    /// its engine gave passages that break the filters.
    pub partial: bool,
    /// One sentence for each knowledge base that did not answer, or not quite as asked.
    pub warnings: Vec<String>,
    /// Whether more passages were asked for than raglan, or one of the engines, gives.
    pub top_k_clamped: bool,
}

/// Leaves out what nobody reads to the end, and says so.
pub fn cut_warnings(warnings: &mut Vec<String>, language: Language) {
    let left_out = warnings.len().saturating_sub(WARNINGS_MAX);
    if left_out > 0 {
        warnings.truncate(WARNINGS_MAX);
        warnings.push(text!(
            language,
            "{left_out} more warnings are left out.",
            left_out
        ));
    }
}

/// A warning about a knowledge base that did not answer.
fn did_not_answer(kb_id: &KnowledgeBaseId, error: &ToolError, language: Language) -> String {
    if matches!(error, ToolError::Backend(BackendError::TimedOut(_))) {
        text!(
            language,
            "Knowledge base `{kb_id}` did not answer in time; its passages are missing here.",
            kb_id
        )
    } else {
        no_answer(kb_id, language)
    }
}

fn no_answer(kb_id: &KnowledgeBaseId, language: Language) -> String {
    text!(
        language,
        "Knowledge base `{kb_id}` did not answer; its passages are missing here.",
        kb_id
    )
}

/// A warning about what an engine did otherwise than asked.
fn told(kb_id: &KnowledgeBaseId, note: &Note, language: Language) -> String {
    match note {
        Note::QueryCut { max_chars } => text!(
            language,
            "Knowledge base `{kb_id}` takes queries of {max_chars} characters: only the beginning of \
             this one was searched for.",
            kb_id,
            max_chars
        ),
        Note::WithoutSetting(setting) => text!(
            language,
            "Knowledge base `{kb_id}` was searched without its setting `{setting}`, which its engine \
             refused.",
            kb_id,
            setting
        ),
        Note::Withheld => text!(
            language,
            "A guardrail of knowledge base `{kb_id}` stepped in: what its engine found is withheld.",
            kb_id
        ),
        Note::FilteredAgain(count) => text!(
            language,
            "The engine of knowledge base `{kb_id}` gave {count} passages that break the filters; \
             they were left out, and others that fit may be missing.",
            kb_id,
            count
        ),
        Note::WordsOnly => text!(
            language,
            "Knowledge base `{kb_id}` was searched by words only, because its embedding model did not \
             answer; passages that say the same in other words or another language may be missing.",
            kb_id
        ),
    }
}

/// Reads `kb_id`: one identifier or several.
pub fn read_kb_ids(arguments: &mut Arguments<'_>) -> Vec<String> {
    arguments.texts("kb_id", KB_IDS_MAX, KB_ID_MAX_CHARS)
}
