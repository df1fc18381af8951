//! `get_task`: how an indexing task stands. The task's knowledge base decides who may see it.

use raglan_core::access::Denial;
use raglan_core::task::Task;
use raglan_core::tool::Tool;
use raglan_texts::{Language, text};
use serde_json::{Map, Value, json};

use super::arguments::Arguments;
use super::{Definition, ToolCall, ToolError, ToolOutput};

const TASK_ID_MAX_CHARS: usize = 200;

pub const DEFINITION: Definition = Definition {
    tool: Tool::GetTask,
    title: |language| text!(language, "Look at an indexing task"),
    description: |language| {
        text!(
            language,
            "Tells how an indexing task stands: pending, running, succeeded, partial or failed, \
             and why. Finished tasks are kept for 30 days."
        )
    },
    input_schema,
    output_schema,
};

fn input_schema(language: Language) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["task_id"],
        "properties": {
            "task_id": { "type": "string", "minLength": 1, "maxLength": TASK_ID_MAX_CHARS,
                "description": text!(language, "The id that the indexing run printed.") }
        }
    })
}

fn output_schema(_: Language) -> Value {
    json!({
        "type": "object",
        "required": ["id", "kb_id", "status", "retry_count", "created_at", "updated_at"],
        "properties": {
            "id": { "type": "string" },
            "kb_id": { "type": "string" },
            "document_id": { "type": "string" },
            "status": { "type": "string",
                "enum": ["pending", "running", "succeeded", "partial", "failed"] },
            "retry_count": { "type": "integer", "minimum": 0 },
            "error": {
                "type": "object",
                "required": ["class", "message"],
                "properties": { "class": { "type": "string" }, "message": { "type": "string" } }
            },
            "created_at": { "type": "string" },
            "updated_at": { "type": "string" }
        }
    })
}

pub async fn run(
    call: &ToolCall<'_>,
    arguments: &Map<String, Value>,
) -> Result<ToolOutput, ToolError> {
    let mut reader = Arguments::new(arguments, "", call.services.language);
    let task_id = reader.required_text("task_id", TASK_ID_MAX_CHARS);
    reader.finish()?;
    let now = call.services.clock.now();
    let (scope, task) = tokio::join!(call.scope(), call.services.catalog.find_task(&task_id, now));
    let (scope, task) = (scope?, task?);
    let permitted = task.filter(|task| scope.find(task.kb_id.as_str()).is_ok());
    let task = permitted.ok_or(Denial::Task)?;
    Ok(ToolOutput {
        structured: present(call, &task),
        knowledge_bases: vec![task.kb_id.to_string()],
        result_count: 1,
        guard_findings: std::collections::BTreeMap::new(),
    })
}

fn present(call: &ToolCall<'_>, task: &Task) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("id", task.id.as_str().into());
    put("kb_id", task.kb_id.as_str().into());
    if let Some(document_id) = &task.document_id {
        put("document_id", document_id.as_str().into());
    }
    put("status", task.status.name().into());
    put("retry_count", task.retry_count.into());
    if let Some(error) = &task.error {
        // The sentence names documents, and whoever named those may mean harm.
        let message = call.services.guard.sanitize(&error.message).text;
        put("error", json!({ "class": error.class, "message": message }));
    }
    put("created_at", task.created_at.to_string().into());
    put("updated_at", task.updated_at.to_string().into());
    fields
}
