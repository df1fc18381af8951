//! `ask`: answers a question from the passages, in a model's words or in theirs, and says where it
//! stands.

use raglan_core::tool::Tool;
use raglan_guard::SecuritySummary;
use raglan_rag::answer::extractive_answer;
use raglan_rag::follow_up::in_context;
use raglan_rag::merge::ScoredPassage;
use raglan_store::sessions::CitedPassage;
use raglan_texts::{Language, text};
use serde_json::{Map, Value, json};

use super::arguments::Arguments;
use super::passages::{Labels, findings_by_rule, security_schema};
use super::search::{Found, Search, kb_id_schema, top_k_schema};
use super::size::{Size, beginning};
use super::{Definition, ToolCall, ToolError, ToolOutput, filters, search};
use crate::answers::conversation::{
    Conversation, ConversationArguments, HISTORY, SESSION_ID, history_schema, session_id_schema,
};
use crate::answers::prompt::Material;
use crate::answers::{self, GeneratedAnswer, Origin, Written};
use crate::ask_gate::{Asked, IDEMPOTENCY_KEY, IDEMPOTENCY_KEY_MAX_CHARS};

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
            SESSION_ID: session_id_schema(language),
            HISTORY: history_schema(language),
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
        "required": ["answer", "sources", "grounded", "engine", "trust", "security"],
        "properties": {
            "answer": { "anyOf": [{ "type": "string" }, { "type": "null" }],
                "description": text!(
                    language,
                    "The answer, made of the documents; [1] points to the source with n = 1."
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
            "engine": { "type": "string", "enum": ["extractive", "generated"],
                "description": text!(
                    language,
                    "extractive: sentences of the documents. generated: written by a language model from \
                     the sources."
                ) },
            "model": { "type": "string" },
            "usage": {
                "type": "object",
                "required": ["input_tokens", "output_tokens"],
                "properties": {
                    "input_tokens": { "type": "integer", "minimum": 0 },
                    "output_tokens": { "type": "integer", "minimum": 0 }
                }
            },
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

/// Answers a question.
///
/// # Errors
/// [`ToolError`]
pub async fn run(call: &ToolCall<'_>, arguments: &Map<String, Value>) -> Result<Asked, ToolError> {
    let language = call.services.language;
    let mut reader = Arguments::new(arguments, "", language);
    let search = Search::read(&mut reader, "question");
    let are_kept = call.services.session_ttl_seconds > 0;
    let conversation = ConversationArguments::read(&mut reader, are_kept);
    let idempotency_key = reader.optional_text(IDEMPOTENCY_KEY, IDEMPOTENCY_KEY_MAX_CHARS);
    if idempotency_key.is_some_and(|key| key.trim().is_empty()) {
        reader.must_not_be_empty(IDEMPOTENCY_KEY);
    }
    reader.finish()?;

    let conversation = conversation.conversation(call)?;
    let (scope, earlier) = tokio::try_join!(call.scope(), conversation.earlier(call))?;
    let earlier = earlier.permitted(&scope);
    let question = search.query.clone();
    let before: Vec<&str> = earlier.iter().map(|turn| turn.question.as_str()).collect();
    let in_context = in_context(&question, &before, search::QUERY_MAX_CHARS).into_owned();
    let search = Search {
        query: in_context,
        wants_answer: true,
        ..search
    };
    let searching = ToolCall {
        engines_until: call.services.answers.search_until(call),
        traceparent: call.traceparent.clone(),
        ..*call
    };
    let mut found = search.run_in(&searching, &scope).await?;

    // Half of the result is for the answer, the other one for its sources.
    let room = call.services.max_result.divided_by(2);
    let passages = &mut found.merged.passages;
    let truncated = cut_together(passages, room.bytes.min(CONTENT_MAX_BYTES));
    let material = Material {
        question: &question,
        passages,
        earlier: &earlier,
    };
    let written = match found.written.take() {
        Some(text) => Some(answers::written_by_engine(text, call, material, room)),
        None => call.services.answers.write(call, material, room).await?,
    };
    let answer = match written {
        Some(Written::Answer(answer)) => Answer::generated(answer, truncated, language),
        Some(Written::NoAnswer(origin)) => Answer {
            engine: Engine::Generated(origin),
            ..Answer::none(language)
        },
        Some(Written::Withheld(origin)) => Answer {
            engine: Engine::Generated(origin),
            withheld: true,
            ..Answer::none(language)
        },
        unwritten => {
            let questions = [question.as_str(), search.query.as_str()];
            let mut answer = Answer::extracted(call, &questions, passages, room);
            answer.truncated |= truncated;
            if let Some(Written::Nothing(why)) = unwritten {
                answer.warnings.push(why.told(language).to_owned());
            }
            answer
        }
    };

    let cited: Vec<&ScoredPassage> = answer
        .cited
        .iter()
        .filter_map(|at| passages.get(*at))
        .collect();
    let ids = cited.iter().map(|scored| CitedPassage {
        kb_id: scored.kb_id.to_string(),
        id: scored.passage.id.clone(),
    });
    let turn = conversation.new_turn(call, &question, answer.text.as_deref(), ids.collect())?;
    let mut security = answer.security.clone();
    let mut labels = Labels::new(call.services.guard, &mut security);
    let sources: Vec<Value> = cited
        .into_iter()
        .enumerate()
        .map(|(at, passage)| source(&mut labels, at + 1, passage))
        .collect();
    let output = output(call, &found, &answer, &conversation, sources, &security);
    Ok(Asked { output, turn })
}

/// What is answered.
struct Answer {
    text: Option<String>,
    /// Indexes of the passages that the text cites.
    cited: Vec<usize>,
    engine: Engine,
    withheld: bool,
    truncated: bool,
    warnings: Vec<String>,
    security: SecuritySummary,
}

/// Who answers.
enum Engine {
    Extractive,
    Generated(Origin),
}

impl Answer {
    /// No answer.
    fn none(language: Language) -> Self {
        Self {
            text: None,
            cited: Vec::new(),
            engine: Engine::Extractive,
            withheld: false,
            truncated: false,
            warnings: Vec::new(),
            security: SecuritySummary::new(language),
        }
    }

    /// What the model wrote.
    fn generated(answer: GeneratedAnswer, passages_cut: bool, language: Language) -> Self {
        let mut warnings = Vec::new();
        if answer.invented > 0 {
            warnings.push(text!(
                language,
                "Citations that named no passage were taken out of the answer ({count} in all).",
                count = answer.invented
            ));
        }
        Self {
            text: Some(answer.text),
            cited: answer.cited,
            engine: Engine::Generated(answer.origin),
            withheld: false,
            truncated: answer.truncated || passages_cut,
            warnings,
            security: answer.security,
        }
    }

    /// Sentences of the passages: for the first of the questions that they answer.
    fn extracted(
        call: &ToolCall<'_>,
        questions: &[&str],
        passages: &[ScoredPassage],
        room: Size,
    ) -> Self {
        let guard = call.services.guard;
        let mut passages = passages.to_vec();
        let mut most_bytes: usize = passages.iter().map(|one| one.passage.content.len()).sum();
        let mut result = Self::none(call.services.language);
        loop {
            let extract = |question: &&str| extractive_answer(question, &passages);
            let Some(answer) = questions.iter().find_map(extract) else {
                return result;
            };
            let guarded = guard.sanitize(&answer.text);
            // A sentence may be as long as a passage.
            if room.without(Size::of(guarded.text.as_str())).is_some() {
                result.security.add(&guarded);
                result.text = Some(guarded.text);
                result.cited = answer.citations;
                return result;
            }
            most_bytes /= 2;
            result.truncated |= cut_together(&mut passages, most_bytes);
        }
    }
}

fn output(
    call: &ToolCall<'_>,
    found: &Found,
    answer: &Answer,
    conversation: &Conversation,
    sources: Vec<Value>,
    security: &SecuritySummary,
) -> ToolOutput {
    let language = call.services.language;
    let grounded = answer.text.is_some();
    let count = sources.len() as u64;
    let mut structured = Map::new();
    let mut put = |name: &str, value: Value| structured.insert(name.to_owned(), value);
    put("answer", answer.text.clone().into());
    put("sources", sources.into());
    put("grounded", grounded.into());
    if let Some(session_id) = conversation.session_id() {
        put(SESSION_ID, session_id.into());
    }
    match &answer.engine {
        Engine::Extractive => {
            put("engine", "extractive".into());
        }
        Engine::Generated(origin) => {
            put("engine", "generated".into());
            put("model", origin.model.as_str().into());
            if let Some(usage) = origin.usage {
                let usage = json!({
                    "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens
                });
                put("usage", usage);
            }
        }
    }
    put("trust", "untrusted".into());
    if !grounded {
        put(
            "hint",
            hint(found.partial, answer.withheld, language).into(),
        );
    }
    if found.top_k_clamped {
        put("top_k_clamped", true.into());
    }
    if answer.truncated {
        put("truncated", true.into());
    }
    let warnings: Vec<&String> = found.warnings.iter().chain(&answer.warnings).collect();
    if !warnings.is_empty() {
        put("warnings", json!(warnings));
    }
    put(
        "security",
        serde_json::to_value(security).unwrap_or_default(),
    );
    ToolOutput {
        structured: structured.into(),
        knowledge_bases: found.asked.clone(),
        result_count: count,
        guard_findings: findings_by_rule(security),
    }
}

/// What to do without an answer.
fn hint(partial: bool, withheld: bool, language: Language) -> &'static str {
    if withheld {
        return text!(
            language,
            "A content filter of the language model withheld the answer. Repeating the call will not help: \
             ask in other words."
        );
    }
    if partial {
        return text!(
            language,
            "No answer was found where passages came from, and the warnings say what is missing: the \
             same call may find one a little later."
        );
    }
    text!(
        language,
        "The documents do not answer this question. Repeating the call will not help: ask in \
         other words or in the documents' language, or say that the answer is not there."
    )
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
