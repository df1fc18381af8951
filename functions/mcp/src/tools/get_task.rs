//! `get_task`: how an indexing task stands. The task's knowledge base decides who may see it.

use raglan_core::access::Denial;
use raglan_core::task::{Task, TaskError};
use raglan_core::tool::Tool;
use raglan_rag::backend::BackendError;
use raglan_texts::{Language, text};
use serde_json::{Map, Value, json};

use super::arguments::Arguments;
use super::job_id::{self, EngineJob};
use super::{Definition, ToolCall, ToolError, ToolOutput};

/// Identifiers of engines' jobs are the longest.
const TASK_ID_MAX_CHARS: usize = 1_000;

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
                "description": text!(
                    language,
                    "The id that the indexing run printed, or that get_knowledge_base tells."
                ) }
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
    let task = match job_id::open(&call.services.cursor_secret, &task_id) {
        Some(engine_job) => job_as_task(call, task_id, engine_job).await?,
        None => catalogued(call, &task_id).await?,
    };
    // One refusal, wherever it was not found.
    let task = task.ok_or(Denial::Task)?;
    Ok(ToolOutput {
        structured: present(call, &task).into(),
        knowledge_bases: vec![task.kb_id.to_string()],
        result_count: 1,
        guard_findings: std::collections::BTreeMap::new(),
    })
}

/// A task of raglan's own, out of the catalogue.
async fn catalogued(call: &ToolCall<'_>, task_id: &str) -> Result<Option<Task>, ToolError> {
    let now = call.services.clock.now();
    let (scope, task) = tokio::join!(call.scope(), call.services.catalog.find_task(task_id, now));
    let scope = scope?;
    Ok(task?.filter(|task| scope.find(task.kb_id.as_str()).is_ok()))
}

/// A job of an engine, told as a task.
async fn job_as_task(
    call: &ToolCall<'_>,
    task_id: String,
    engine_job: EngineJob,
) -> Result<Option<Task>, ToolError> {
    let scope = call.scope().await?;
    let Ok(entry) = scope.find(engine_job.kb_id.as_str()) else {
        return Ok(None);
    };
    let backend = call.services.backends.of(entry)?;
    let engine_call = call.engine_call();
    let work = backend.job(&entry.backend.id, &engine_job.job, &engine_call);
    let job = match call.wait_for(work).await {
        Err(ToolError::Backend(BackendError::Unsupported(_))) => None,
        answer => answer?,
    };
    Ok(job.map(|job| {
        if let Some(cause) = &job.failed_because {
            tracing::warn!(kb_id = %entry.id, cause, "an engine's job did not succeed");
        }
        let error = job.failed_because.is_some().then(|| TaskError {
            class: "engine_failed".to_owned(),
            message: text!(
                call.services.language,
                "The engine did not take everything in. Its operator finds the reason there, and in \
                 the log of this call."
            )
            .to_owned(),
        });
        Task {
            id: task_id,
            kb_id: engine_job.kb_id,
            document_id: job.document_id,
            status: job.status,
            retry_count: 0,
            error,
            created_at: job.created_at,
            updated_at: job.updated_at,
        }
    }))
}

fn present(call: &ToolCall<'_>, task: &Task) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("id", task.id.as_str().into());
    put("kb_id", task.kb_id.as_str().into());
    if let Some(document_id) = &task.document_id {
        let document_id = call.services.guard.sanitize(document_id).text;
        put("document_id", document_id.into());
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
