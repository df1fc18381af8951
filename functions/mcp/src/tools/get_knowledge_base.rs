//! `get_knowledge_base`: what one knowledge base covers.

use raglan_core::tool::Tool;
use raglan_rag::backend::Statistics;
use raglan_texts::{Language, text};
use serde_json::{Map, Value, json};

use super::arguments::Arguments;
use super::{Definition, ToolCall, ToolError, ToolOutput, knowledge_base};

const KB_ID_MAX_CHARS: usize = 200;

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
                "description": text!(language, "The id, as list_knowledge_bases tells it.") }
        }
    })
}

fn output_schema(language: Language) -> Value {
    let mut properties = knowledge_base::properties(language);
    properties["statistics"] = json!({
        "type": "object",
        "required": ["sources", "top_k_limit"],
        "properties": {
            "sources": { "type": "array", "items": { "type": "string" } },
            "embedding_model": { "type": "string" },
            "embedding_dimension": { "type": "integer" },
            "similarity_threshold": { "type": "number" },
            "top_k_limit": { "type": "integer" },
            "indexed_at": { "type": "string" }
        }
    });
    properties["warnings"] = json!({ "type": "array", "items": { "type": "string" } });
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
    let described = match call.services.backends.of(entry) {
        Ok(backend) => {
            let engine_call = call.engine_call();
            call.wait_for(backend.describe(&entry.backend.id, &engine_call))
                .await
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
            structured.insert("statistics".to_owned(), present(&statistics));
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
        structured,
        knowledge_bases: vec![entry.id.to_string()],
        result_count: 1,
        guard_findings: std::collections::BTreeMap::new(),
    })
}

fn present(statistics: &Statistics) -> Value {
    let mut fields = json!({
        "sources": statistics.sources,
        "top_k_limit": statistics.top_k_limit,
    });
    if let Some(model) = &statistics.embedding_model {
        fields["embedding_model"] = model.as_str().into();
    }
    if let Some(dimension) = statistics.embedding_dimension {
        fields["embedding_dimension"] = dimension.into();
    }
    if let Some(threshold) = statistics.similarity_threshold {
        fields["similarity_threshold"] = threshold.into();
    }
    if let Some(indexed_at) = statistics.indexed_at {
        fields["indexed_at"] = indexed_at.to_string().into();
    }
    fields
}
