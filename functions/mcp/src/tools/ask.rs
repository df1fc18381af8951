//! `ask`: answers a question with sentences from the passages, and says where they stand.

use raglan_core::ids;
use raglan_core::tool::Tool;
use raglan_guard::SecuritySummary;
use raglan_rag::answer::extractive_answer;
use raglan_rag::merge::ScoredPassage;
use raglan_texts::{Language, text};
use serde_json::{Map, Value, json};

use super::arguments::Arguments;
use super::passages::{Labels, findings_by_rule, security_schema};
use super::search::{Search, kb_id_schema, top_k_schema};
use super::size::{Size, beginning};
use super::{Definition, ToolCall, ToolError, ToolOutput, filters, search};
use crate::ask_gate::{IDEMPOTENCY_KEY, IDEMPOTENCY_KEY_MAX_CHARS};

const SESSION_ID_MAX_CHARS: usize = 64;
/// Passage text that an answer is looked for in, whatever the engines gave.
const CONTENT_MAX_BYTES: usize = 64 * 1024;

pub const DEFINITION: Definition = Definition {
    tool: Tool::Ask,
    title: |language| text!(language, "Ask knowledge bases"),
    description: |language| {
        text!(
            language,
            "Answers a question from the documents, with numbered sources. Use it for a quick, \
             cited answer; use retrieve to read the evidence yourself. grounded is false when the \
             documents do not answer the question."
        )
    },
    input_schema,
    output_schema,
};

fn input_schema(language: Language) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["question"],
        "properties": {
            "question": {
                "type": "string", "minLength": 1, "maxLength": search::QUERY_MAX_CHARS,
                "description": text!(
                    language,
                    "One question, in the documents' language, that stands on its own."
                )
            },
            "kb_id": kb_id_schema(language),
            "session_id": {
                "type": "string", "minLength": 1, "maxLength": SESSION_ID_MAX_CHARS,
                "description": text!(
                    language,
                    "A name for this conversation; it is given back."
                )
            },
            "top_k": top_k_schema(language),
            "filters": filters::schema(language),
            "idempotency_key": {
                "type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_MAX_CHARS,
                "description": text!(
                    language,
                    "A new random text for each question: the same call again within 15 \
                     minutes gives the same answer."
                )
            }
        }
    })
}

fn output_schema(language: Language) -> Value {
    json!({
        "type": "object",
        "required": ["answer", "sources", "grounded", "session_id", "engine", "trust", "security"],
        "properties": {
            "answer": { "anyOf": [{ "type": "string" }, { "type": "null" }],
                "description": text!(
                    language,
                    "Sentences from the documents; [1] points to the source with n = 1."
                ) },
            "sources": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["n", "id", "kb_id", "title", "filename", "score"],
                    "properties": {
                        "n": { "type": "integer", "minimum": 1 },
                        "id": { "type": "string" },
                        "kb_id": { "type": "string" },
                        "title": { "type": "string" },
                        "filename": { "type": "string" },
                        "uri": { "type": "string" },
                        "section": { "type": "string" },
                        "page": { "type": "integer", "minimum": 1 },
                        "score": { "type": "number" }
                    }
                }
            },
            "grounded": { "type": "boolean",
                "description": text!(
                    language,
                    "Whether the documents support the answer; without it there is none."
                ) },
            "session_id": { "type": "string" },
            "engine": { "type": "string", "enum": ["extractive"] },
            "trust": { "type": "string", "enum": ["untrusted"] },
            "hint": { "type": "string" },
            "top_k_clamped": { "type": "boolean" },
            "truncated": { "type": "boolean" },
            "replayed": { "type": "boolean",
                "description": text!(
                    language,
                    "Whether this is the answer to the same call before."
                ) },
            "warnings": { "type": "array", "items": { "type": "string" } },
            "security": security_schema()
        }
    })
}

pub async fn run(
    call: &ToolCall<'_>,
    arguments: &Map<String, Value>,
) -> Result<ToolOutput, ToolError> {
    let mut reader = Arguments::new(arguments, "", call.services.language);
    let search = Search::read(&mut reader, "question");
    let session_id = reader.optional_text("session_id", SESSION_ID_MAX_CHARS);
    let idempotency_key = reader.optional_text(IDEMPOTENCY_KEY, IDEMPOTENCY_KEY_MAX_CHARS);
    if idempotency_key.is_some_and(|key| key.trim().is_empty()) {
        reader.must_not_be_empty(IDEMPOTENCY_KEY);
    }
    reader.finish()?;
    let session_id = match session_id.filter(|text| !text.trim().is_empty()) {
        Some(session_id) => session_id,
        None => ids::time_sortable(call.services.clock.now(), call.services.random.as_ref())?,
    };

    let mut found = search.run(call).await?;
    let passages = &mut found.merged.passages;
    // Half of the result is for the answer, the other one for its sources.
    let room = call.services.max_result.divided_by(2);
    let mut most_bytes = room.bytes.min(CONTENT_MAX_BYTES);
    let mut truncated = cut_together(passages, most_bytes);
    let guard = call.services.guard;
    let mut security = SecuritySummary::new(call.services.language);
    let (answer, sources) = loop {
        let Some(answer) = extractive_answer(&search.query, passages) else {
            break (None, Vec::new());
        };
        let guarded = guard.sanitize(&answer.text);
        // A sentence may be as long as a passage.
        if room.without(Size::of(&guarded.text)).is_none() {
            most_bytes /= 2;
            truncated |= cut_together(passages, most_bytes);
            continue;
        }
        security.add(&guarded);
        let mut labels = Labels::new(guard, &mut security);
        let cited = answer.citations.iter().filter_map(|at| passages.get(*at));
        let sources: Vec<Value> = cited
            .enumerate()
            .map(|(at, passage)| source(&mut labels, at + 1, passage))
            .collect();
        break (Some(guarded.text), sources);
    };

    let grounded = answer.is_some();
    let count = sources.len() as u64;
    let mut structured = Map::new();
    let mut put = |name: &str, value: Value| structured.insert(name.to_owned(), value);
    put("answer", answer.into());
    put("sources", sources.into());
    put("grounded", grounded.into());
    put("session_id", session_id.into());
    put("engine", "extractive".into());
    put("trust", "untrusted".into());
    if !grounded {
        let hint = if found.partial {
            text!(
                call.services.language,
                "No answer was found where passages came from, and the warnings say what is missing: the \
                 same call may find one a little later."
            )
        } else {
            text!(
                call.services.language,
                "The documents do not answer this question. Repeating the call will not help: ask in \
                 other words or in the documents' language, or say that the answer is not there."
            )
        };
        put("hint", hint.into());
    }
    if found.top_k_clamped {
        put("top_k_clamped", true.into());
    }
    if truncated {
        put("truncated", true.into());
    }
    if !found.warnings.is_empty() {
        put("warnings", found.warnings.into());
    }
    put(
        "security",
        serde_json::to_value(&security).unwrap_or_default(),
    );
    Ok(ToolOutput {
        structured,
        knowledge_bases: found.asked,
        result_count: count,
        guard_findings: findings_by_rule(&security),
    })
}

/// Cuts the passages to this many bytes of text together: an answer is no longer than what it is made
/// of, and engines may send anything. True when something was cut.
fn cut_together(passages: &mut [ScoredPassage], budget_bytes: usize) -> bool {
    let mut left_bytes = budget_bytes;
    let mut cut = false;
    for scored in passages {
        let content = &mut scored.passage.content;
        let kept_bytes = beginning(content, left_bytes, usize::MAX).len();
        cut |= kept_bytes < content.len();
        content.truncate(kept_bytes);
        left_bytes -= kept_bytes;
    }
    cut
}

fn source(labels: &mut Labels<'_>, number: usize, scored: &ScoredPassage) -> Value {
    let passage = &scored.passage;
    let mut source = json!({
        "n": number,
        "id": labels.clean(&passage.id),
        "kb_id": scored.kb_id,
        "title": labels.clean(&passage.title),
        "filename": labels.clean(&passage.filename),
    });
    if let Some(uri) = &passage.uri {
        source["uri"] = labels.clean(uri).into();
    }
    if let Some(section) = &passage.section {
        source["section"] = labels.clean(section).into();
    }
    if let Some(page) = passage.page {
        source["page"] = page.into();
    }
    source["score"] = passage.score.into();
    source
}
