//! Documents of RAGFlow, their text and metadata, and how their parsing stands.

use raglan_core::clock::Timestamp;
use raglan_core::task::TaskStatus;
use raglan_rag::backend::{BackendError, Document, DocumentPage, DocumentText, EngineCall, Job};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{PAGE_MAX, RagFlowBackend};
use crate::attributes::moment;
use crate::call::{CallError, EngineRequest, rest_of};
use crate::document_text;
use crate::hits::format_of;
use crate::paging::EnginePage;
use crate::reply;

fn request(dataset: &str, page: usize, page_size: usize) -> EngineRequest {
    EngineRequest::get(&["api", "v1", "datasets", dataset, "documents"])
        .with_parameter("page", &page.to_string())
        .with_parameter("page_size", &page_size.to_string())
}

/// A page of `GET /api/v1/datasets/{dataset_id}/documents`.
pub async fn list(
    engine: &RagFlowBackend,
    dataset: &str,
    position: Option<&str>,
    limit: usize,
    call: &EngineCall,
) -> Result<DocumentPage, BackendError> {
    let page = EnginePage::at(position, limit, PAGE_MAX)?;
    // Oldest first: what is added meanwhile moves nothing.
    let get = request(dataset, page.number, page.size)
        .with_parameter("orderby", "create_time")
        .with_parameter("desc", "False");
    let data = engine.data(get, call).await;
    let data = data.map_err(|error| error.about(dataset))?;
    let entries = reply::list(&data, "/docs")?;
    // The name that the API reference has for it is the other one.
    let total = reply::count(&data, "total").or_else(|| reply::count(&data, "total_datasets"));
    let now = engine.client.now();
    Ok(DocumentPage {
        documents: entries
            .iter()
            .filter_map(|one| document(one, now))
            .collect(),
        next: page.next(entries.len(), total, None),
    })
}

fn document(entry: &Value, now: Timestamp) -> Option<Document> {
    let id = reply::some_text(entry, "id")?;
    let name = reply::some_text(entry, "name").unwrap_or_else(|| id.clone());
    let created_at = entry.get("create_time").and_then(moment).unwrap_or(now);
    let status = match run(entry) {
        Run::Done if !is_searched(entry) => "disabled",
        Run::Done => "indexed",
        Run::Failed => "failed",
        Run::Cancelled => "cancelled",
        Run::Waiting | Run::Running => "indexing",
    };
    Some(Document {
        format: format_of(&name).to_owned(),
        title: name.clone(),
        filename: name,
        id,
        size_bytes: reply::count(entry, "size").unwrap_or(0),
        status: status.to_owned(),
        chunk_count: reply::count(entry, "chunk_count").unwrap_or(0),
        created_at,
        updated_at: entry
            .get("update_time")
            .and_then(moment)
            .unwrap_or(created_at),
        guard_findings: std::collections::BTreeMap::new(),
    })
}

/// The states of `run`, which come as words and as digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    Waiting,
    Running,
    Cancelled,
    Done,
    Failed,
}

fn run(document: &Value) -> Run {
    match reply::text(document, "run").as_str() {
        "1" | "RUNNING" => Run::Running,
        "2" | "CANCEL" => Run::Cancelled,
        "3" | "DONE" => Run::Done,
        "4" | "FAIL" => Run::Failed,
        _ => Run::Waiting,
    }
}

/// `status`: `1` for a document that takes part in searches.
fn is_searched(document: &Value) -> bool {
    reply::text(document, "status") != "0"
}

/// A document by its identifier; `None` when the dataset has none.
pub async fn find(
    engine: &RagFlowBackend,
    dataset: &str,
    document_id: &str,
    call: &EngineCall,
) -> Result<Option<Value>, BackendError> {
    let get = request(dataset, 1, 1).with_parameter("id", document_id);
    let data = match engine.data(get, call).await {
        Err(CallError::NotFound(_)) => return Ok(None),
        data => data?,
    };
    let documents = reply::list(&data, "/docs")?.iter();
    let mut fitting = documents.filter(|found| reply::text(found, "id") == document_id);
    Ok(fitting.next().cloned())
}

/// `meta_fields` of a document: an object, in some versions as text. Without any it is empty.
pub fn metadata(document: &Value) -> Value {
    match document.get("meta_fields") {
        Some(Value::Object(fields)) => Value::Object(fields.clone()),
        Some(Value::String(text)) => serde_json::from_str(text)
            .ok()
            .filter(Value::is_object)
            .unwrap_or_else(|| json!({})),
        _ => json!({}),
    }
}

/// The chunks of a document, one after the other; `None` for one that callers could not find either.
pub async fn read(
    engine: &RagFlowBackend,
    dataset: &str,
    document_id: &str,
    call: &EngineCall,
) -> Result<Option<DocumentText>, BackendError> {
    let begun = Instant::now();
    let path = ["datasets", dataset, "documents", document_id, "chunks"];
    let path: Vec<&str> = ["api", "v1"].into_iter().chain(path).collect();
    let mut title = document_id.to_owned();
    let mut text = String::new();
    let mut position: Option<String> = None;
    loop {
        let page = EnginePage::at(position.as_deref(), PAGE_MAX, PAGE_MAX)?;
        let get = EngineRequest::get(&path)
            .with_parameter("page", &page.number.to_string())
            .with_parameter("page_size", &page.size.to_string());
        let data = match engine.data(get, &rest_of(call, begun)).await {
            Err(CallError::NotFound(_)) => return Ok(None),
            data => data?,
        };
        if let Some(document) = data.get("doc") {
            if !is_searched(document) {
                return Ok(None);
            }
            title = reply::some_text(document, "name").unwrap_or(title);
        }
        let chunks = reply::list(&data, "/chunks")?;
        for chunk in chunks {
            let is_shown = chunk.get("available") != Some(&Value::Bool(false));
            let Some(content) = reply::some_text(chunk, "content").filter(|_| is_shown) else {
                continue;
            };
            document_text::append(&mut text, &content)?;
        }
        position = page.next(chunks.len(), reply::count(&data, "total"), None);
        if position.is_none() {
            return Ok(Some(DocumentText { title, text }));
        }
    }
}

/// How the parsing of a document stands.
pub async fn job(
    engine: &RagFlowBackend,
    dataset: &str,
    document_id: &str,
    call: &EngineCall,
) -> Result<Option<Job>, BackendError> {
    let Some(document) = find(engine, dataset, document_id, call).await? else {
        return Ok(None);
    };
    let status = match run(&document) {
        Run::Waiting => TaskStatus::Pending,
        Run::Running => TaskStatus::Running,
        Run::Done => TaskStatus::Succeeded,
        Run::Failed | Run::Cancelled => TaskStatus::Failed,
    };
    let created_at = document.get("create_time").and_then(moment);
    let created_at = created_at.unwrap_or_else(|| engine.client.now());
    let reason = match run(&document) {
        Run::Failed => Some(reply::text(&document, "progress_msg")),
        Run::Cancelled => Some("the parsing was cancelled".to_owned()),
        _ => None,
    };
    Ok(Some(Job {
        status,
        document_id: Some(document_id.to_owned()),
        failed_because: reason,
        created_at,
        updated_at: document
            .get("update_time")
            .and_then(moment)
            .unwrap_or(created_at),
    }))
}

/// A document that is being parsed, as a job.
pub async fn running_job(
    engine: &RagFlowBackend,
    dataset: &str,
    call: &EngineCall,
) -> Result<Option<String>, BackendError> {
    // Versions that do not know `run` give the newest documents, which are the likely ones.
    let get = request(dataset, 1, 20).with_parameter("run", "RUNNING");
    let data = engine.data(get, call).await;
    let data = data.map_err(|error| error.about(dataset))?;
    let mut documents = reply::list(&data, "/docs")?.iter();
    let running = documents.find(|document| run(document) == Run::Running);
    Ok(running.and_then(|document| reply::some_text(document, "id")))
}
