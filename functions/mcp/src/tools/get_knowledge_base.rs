//! `get_knowledge_base`: what one knowledge base covers.

use raglan_core::catalog::KnowledgeBase;
use raglan_core::clock::Timestamp;
use raglan_core::tool::Tool;
use raglan_guard::SecuritySummary;
use raglan_rag::backend::{Backend, Statistics};
use raglan_texts::{Language, text};
use serde_json::{Map, Value, json};

use super::arguments::Arguments;
use super::passages::{Labels, findings_by_rule};
use super::search::{KB_ID_MAX_CHARS, QUERY_MAX_CHARS, TOP_K_MAX};
use super::{Definition, ToolCall, ToolError, ToolOutput, job_id, knowledge_base};

/// Sources that are named; an engine may have thousands of pages as its sources.
const SOURCES_MAX: usize = 20;
const DAY_MS: i64 = 86_400_000;

pub const DEFINITION: Definition = Definition {
    tool: Tool::GetKnowledgeBase,
    title: |language| text!(language, "Describe a knowledge base"),
    description: |language| {
        text!(
            language,
            "Tells what one knowledge base covers: sources, counts, how it is searched, its \
             limits and its age."
        )
    },
    input_schema,
    output_schema,
};

fn input_schema(language: Language) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["kb_id"],
        "properties": {
            "kb_id": { "type": "string", "minLength": 1, "maxLength": KB_ID_MAX_CHARS,
                "description": text!(
                    language,
                    "The id, as list_knowledge_bases tells it."
                ) }
        }
    })
}

fn output_schema(language: Language) -> Value {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let mut properties = knowledge_base::properties(language);
    properties["statistics"] = json!({
        "type": "object",
        "required": ["sources", "source_count", "top_k_limit"],
        "properties": {
            "sources": { "type": "array", "items": { "type": "string" },
                "description": text!(
                    language,
                    "Where the documents come from, at most {most} names.",
                    most = SOURCES_MAX
                ) },
            "source_count": { "type": "integer", "minimum": 0 },
            "embedding_model": { "type": "string" },
            "embedding_dimension": { "type": "integer" },
            "similarity_threshold": { "type": "number" },
            "top_k_limit": { "type": "integer", "minimum": 1 },
            "indexed_at": { "type": "string" },
            "index_age_days": { "type": "integer", "minimum": 0,
                "description": text!(
                    language,
                    "Whole days since the content was last indexed."
                ) }
        }
    });
    properties["abilities"] = json!({
        "type": "object",
        "required": ["operations", "query_max_chars", "filters", "metadata_operators"],
        "properties": {
            "operations": { "type": "array", "items": { "type": "string" },
                "description": text!(
                    language,
                    "What works with this knowledge base; read_document is resources/read."
                ) },
            "query_max_chars": { "type": "integer", "minimum": 1,
                "description": text!(
                    language,
                    "A longer query is cut."
                ) },
            "filters": { "type": "array", "items": { "type": "string" },
                "description": text!(
                    language,
                    "The filters that work; with another one a search is an error."
                ) },
            "metadata_operators": texts
        }
    });
    properties["task_id"] = json!({ "type": "string",
        "description": text!(
            language,
            "The task that indexes it right now, for get_task."
        ) });
    properties["warnings"] = texts;
    json!({ "type": "object", "required": knowledge_base::REQUIRED, "properties": properties })
}

pub async fn run(
    call: &ToolCall<'_>,
    arguments: &Map<String, Value>,
) -> Result<ToolOutput, ToolError> {
    let mut reader = Arguments::new(arguments, "", call.services.language);
    let kb_id = reader.required_text("kb_id", KB_ID_MAX_CHARS);
    reader.finish()?;
    let scope = call.scope().await?;
    let entry = scope.find(&kb_id)?;

    let mut structured = match knowledge_base::present(entry) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let mut security = SecuritySummary::new(call.services.language);
    let described = match call.services.backends.of(entry) {
        Ok(backend) => {
            structured.insert("abilities".to_owned(), abilities(backend));
            let (described, task_id) = tokio::join!(
                describe(call, entry, backend),
                running(call, entry, backend)
            );
            if let Some(task_id) = task_id {
                structured.insert("task_id".to_owned(), task_id.into());
            }
            described
        }
        Err(error) => Err(error),
    };
    match described {
        Ok(statistics) => {
            if let Some(count) = statistics.document_count {
                structured.insert("document_count".to_owned(), count.into());
            }
            if let Some(count) = statistics.chunk_count {
                structured.insert("chunk_count".to_owned(), count.into());
            }
            let mut labels = Labels::new(call.services.guard, &mut security);
            let now = call.services.clock.now();
            let shown = present(&mut labels, &statistics, now);
            structured.insert("statistics".to_owned(), shown);
        }
        Err(error) => {
            tracing::warn!(kb_id = %entry.id, %error, "a knowledge base could not be described");
            let warning = text!(
                call.services.language,
                "The engine behind this knowledge base did not answer; its statistics are missing \
                 here."
            );
            structured.insert("warnings".to_owned(), json!([warning]));
        }
    }
    Ok(ToolOutput {
        structured: structured.into(),
        knowledge_bases: vec![entry.id.to_string()],
        result_count: 1,
        guard_findings: findings_by_rule(&security),
    })
}

async fn describe(
    call: &ToolCall<'_>,
    entry: &KnowledgeBase,
    backend: &dyn Backend,
) -> Result<Statistics, ToolError> {
    let engine_call = call.engine_call();
    let work = backend.describe(&entry.backend.id, &engine_call);
    let mut statistics = call.wait_for(work).await?;
    let most = TOP_K_MAX.min(backend.abilities().top_k_limit as u64);
    statistics.top_k_limit = match statistics.top_k_limit {
        0 => most,
        limit => limit.min(most),
    };
    Ok(statistics)
}

/// The task that indexes the knowledge base; a failure to find out is not worth a warning.
async fn running(
    call: &ToolCall<'_>,
    entry: &KnowledgeBase,
    backend: &dyn Backend,
) -> Option<String> {
    let engine_call = call.engine_call();
    let work = backend.running_job(&entry.backend.id, &engine_call);
    match call.wait_for(work).await {
        Ok(job) => job_id::seal(&call.services.cursor_secret, &entry.id, &job?),
        Err(error) => {
            tracing::info!(kb_id = %entry.id, %error, "the running job is not known");
            None
        }
    }
}

fn abilities(backend: &dyn Backend) -> Value {
    let abilities = backend.abilities();
    let filters = backend.filters();
    let mut operations = vec![Tool::Retrieve.name(), Tool::Ask.name()];
    if abilities.lists_documents {
        operations.push(Tool::ListDocuments.name());
    }
    if abilities.reads_documents {
        operations.push("read_document");
    }
    let query_max_chars = abilities.query_max_chars.unwrap_or(QUERY_MAX_CHARS);
    json!({
        "operations": operations,
        "query_max_chars": query_max_chars.min(QUERY_MAX_CHARS),
        "filters": filters.fields,
        "metadata_operators": filters.operators,
    })
}

fn present(labels: &mut Labels<'_>, statistics: &Statistics, now: Timestamp) -> Value {
    let sources = statistics.sources.iter().take(SOURCES_MAX);
    let sources: Vec<String> = sources.map(|source| labels.clean(source)).collect();
    let mut fields = json!({
        "sources": sources,
        "source_count": statistics.sources.len(),
        "top_k_limit": statistics.top_k_limit,
    });
    if let Some(model) = &statistics.embedding_model {
        fields["embedding_model"] = labels.clean(model).into();
    }
    if let Some(dimension) = statistics.embedding_dimension {
        fields["embedding_dimension"] = dimension.into();
    }
    if let Some(threshold) = statistics.similarity_threshold {
        fields["similarity_threshold"] = threshold.into();
    }
    if let Some(indexed_at) = statistics.indexed_at {
        fields["indexed_at"] = indexed_at.to_string().into();
        let age_ms = now.epoch_ms() - indexed_at.epoch_ms();
        fields["index_age_days"] = (age_ms / DAY_MS).max(0).into();
    }
    fields
}
