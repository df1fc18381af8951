//! Documents of Dify, their text, and how their indexing stands.

use raglan_core::clock::Timestamp;
use raglan_core::task::TaskStatus;
use raglan_rag::backend::{BackendError, Document, DocumentPage, DocumentText, EngineCall, Job};
use serde_json::Value;
use tokio::time::Instant;

use super::{DifyBackend, PAGE_MAX, next};
use crate::attributes::moment;
use crate::call::{CallError, EngineRequest, rest_of};
use crate::document_text;
use crate::hits::format_of;
use crate::paging::EnginePage;
use crate::reply;

/// Before the identifier of a document in our identifiers of jobs: the interface does not tell to which
/// batch a document belongs. Others are batches.
const DOCUMENT_JOB: &str = "document/";
/// States of `indexing_status` in which work is under way.
const UNDER_WAY: [&str; 4] = ["parsing", "cleaning", "splitting", "indexing"];

/// A page of `GET /datasets/{dataset_id}/documents`.
pub async fn list(
    engine: &DifyBackend,
    dataset: &str,
    position: Option<&str>,
    limit: usize,
    call: &EngineCall,
) -> Result<DocumentPage, BackendError> {
    let page = EnginePage::at(position, limit, PAGE_MAX)?;
    let get = EngineRequest::get(&["datasets", dataset, "documents"])
        .with_parameter("page", &page.number.to_string())
        .with_parameter("limit", &page.size.to_string());
    let answer = engine.client.send(&get, call).await;
    let answer = answer.map_err(|error| error.about(dataset))?;
    let entries = reply::list(&answer, "/data")?;
    let now = engine.client.now();
    Ok(DocumentPage {
        documents: entries
            .iter()
            .filter_map(|one| document(one, now))
            .collect(),
        next: next(page, entries.len(), &answer),
    })
}

fn document(entry: &Value, now: Timestamp) -> Option<Document> {
    let id = reply::some_text(entry, "id")?;
    let name = reply::some_text(entry, "name").unwrap_or_else(|| id.clone());
    let file = entry.pointer("/data_source_detail_dict/upload_file");
    let created_at = entry.get("created_at").and_then(moment).unwrap_or(now);
    let status = match reply::text(entry, "indexing_status").as_str() {
        "error" => "failed",
        "completed" if !is_searched(entry) => "disabled",
        "completed" => "indexed",
        _ => "indexing",
    };
    Some(Document {
        format: format_of(&name).to_owned(),
        title: name.clone(),
        filename: name,
        id,
        size_bytes: file
            .and_then(|file| reply::count(file, "size"))
            .unwrap_or(0),
        status: status.to_owned(),
        chunk_count: reply::count(entry, "segment_count").unwrap_or(0),
        created_at,
        updated_at: entry
            .get("updated_at")
            .and_then(moment)
            .unwrap_or(created_at),
        guard_findings: std::collections::BTreeMap::new(),
    })
}

/// The segments of a document, one after the other; `None` for one that callers could not find either.
pub async fn read(
    engine: &DifyBackend,
    dataset: &str,
    document_id: &str,
    call: &EngineCall,
) -> Result<Option<DocumentText>, BackendError> {
    let begun = Instant::now();
    let Some(title) = title(engine, dataset, document_id, call).await? else {
        return Ok(None);
    };
    let mut text = String::new();
    let mut position: Option<String> = None;
    loop {
        let page = EnginePage::at(position.as_deref(), PAGE_MAX, PAGE_MAX)?;
        let path = ["datasets", dataset, "documents", document_id, "segments"];
        let get = EngineRequest::get(&path)
            .with_parameter("page", &page.number.to_string())
            .with_parameter("limit", &page.size.to_string());
        let answer = match engine.client.send(&get, &rest_of(call, begun)).await {
            Err(CallError::NotFound(_)) => return Ok(None),
            answer => answer?,
        };
        let segments = reply::list(&answer, "/data")?;
        for segment in segments.iter().filter(|segment| is_shown(segment)) {
            let Some(content) = segment_text(segment) else {
                continue;
            };
            document_text::append(&mut text, &content)?;
        }
        // Versions that know no pages give everything, and do not tell that there is more.
        let has_more = answer.get("has_more").and_then(Value::as_bool);
        position = page.next(segments.len(), None, Some(has_more.unwrap_or(false)));
        if position.is_none() {
            return Ok(Some(DocumentText { title, text }));
        }
    }
}

/// The name of a document that is there and searched; its identifier where the version of Dify has no
/// details of a document.
async fn title(
    engine: &DifyBackend,
    dataset: &str,
    document_id: &str,
    call: &EngineCall,
) -> Result<Option<String>, BackendError> {
    let entry = match details(engine, dataset, document_id, call).await {
        Err(CallError::NotFound(_)) => return Ok(Some(document_id.to_owned())),
        entry => entry?,
    };
    let title = reply::some_text(&entry, "name").unwrap_or_else(|| document_id.to_owned());
    Ok(is_searched(&entry).then_some(title))
}

async fn details(
    engine: &DifyBackend,
    dataset: &str,
    document_id: &str,
    call: &EngineCall,
) -> Result<Value, CallError> {
    let get = EngineRequest::get(&["datasets", dataset, "documents", document_id])
        .with_parameter("metadata", "without");
    engine.client.send(&get, call).await
}

fn is_searched(document: &Value) -> bool {
    document.get("enabled") != Some(&Value::Bool(false))
        && document.get("archived") != Some(&Value::Bool(true))
}

/// Whether a segment takes part in searches.
fn is_shown(segment: &Value) -> bool {
    segment.get("enabled") != Some(&Value::Bool(false))
        && matches!(
            reply::text(segment, "status").as_str(),
            "" | "completed" | "re_segment"
        )
}

/// The text of a segment: in a document of questions and answers, both.
pub fn segment_text(segment: &Value) -> Option<String> {
    let content = reply::some_text(segment, "content")?;
    Some(match reply::some_text(segment, "answer") {
        Some(answer) => format!("{content}\n\n{answer}"),
        None => content,
    })
}

/// A job by `GET /datasets/{dataset_id}/documents/{batch}/indexing-status`, or by a document.
pub async fn job(
    engine: &DifyBackend,
    dataset: &str,
    job_id: &str,
    call: &EngineCall,
) -> Result<Option<Job>, BackendError> {
    let document_id = job_id.strip_prefix(DOCUMENT_JOB);
    let answer = if let Some(document_id) = document_id {
        details(engine, dataset, document_id, call).await
    } else {
        let path = ["datasets", dataset, "documents", job_id, "indexing-status"];
        engine.client.send(&EngineRequest::get(&path), call).await
    };
    let answer = match answer {
        Err(CallError::NotFound(_)) => return Ok(None),
        answer => answer?,
    };
    let documents = match document_id {
        Some(_) => std::slice::from_ref(&answer),
        None => reply::list(&answer, "/data")?,
    };
    Ok(standing(documents, engine.client.now()))
}

/// What the documents of a job are, taken together; `None` when there are none.
fn standing(documents: &[Value], now: Timestamp) -> Option<Job> {
    let steps: Vec<String> = documents
        .iter()
        .map(|document| reply::text(document, "indexing_status"))
        .collect();
    let count = |step: &str| steps.iter().filter(|one| *one == step).count();
    let (failed, completed) = (count("error"), count("completed"));
    let status = match documents.len() {
        0 => return None,
        all if failed == all => TaskStatus::Failed,
        all if completed == all => TaskStatus::Succeeded,
        all if failed + completed == all => TaskStatus::Partial,
        _ if completed > 0 || failed > 0 => TaskStatus::Running,
        _ if steps.iter().any(|one| UNDER_WAY.contains(&one.as_str())) => TaskStatus::Running,
        _ => TaskStatus::Pending,
    };
    let moments = |names: &[&str]| -> Vec<Timestamp> {
        let fields = documents
            .iter()
            .flat_map(|document| names.iter().filter_map(|name| document.get(*name)));
        fields.filter_map(moment).collect()
    };
    let begun = moments(&["created_at", "processing_started_at"]);
    let changed = moments(&[
        "updated_at",
        "processing_started_at",
        "parsing_completed_at",
        "cleaning_completed_at",
        "splitting_completed_at",
        "completed_at",
        "paused_at",
        "stopped_at",
    ]);
    // What waits has no moment yet.
    let created_at = begun.into_iter().min().unwrap_or(now);
    let reason = documents
        .iter()
        .find(|document| reply::text(document, "indexing_status") == "error")
        .map(|document| reply::text(document, "error"));
    let document_id = match documents {
        [document] => reply::some_text(document, "id"),
        _ => None,
    };
    Some(Job {
        status,
        document_id,
        failed_because: reason,
        created_at,
        updated_at: changed.into_iter().max().unwrap_or(created_at),
    })
}

/// A document that is being indexed, as a job.
pub async fn running_job(
    engine: &DifyBackend,
    dataset: &str,
    call: &EngineCall,
) -> Result<Option<String>, BackendError> {
    // Versions that do not know `status` give the newest documents, which are the likely ones.
    let get = EngineRequest::get(&["datasets", dataset, "documents"])
        .with_parameter("page", "1")
        .with_parameter("limit", "20")
        .with_parameter("status", "indexing");
    let answer = engine.client.send(&get, call).await;
    let answer = answer.map_err(|error| error.about(dataset))?;
    let running = reply::list(&answer, "/data")?.iter().find(|document| {
        let state = reply::text(document, "indexing_status");
        UNDER_WAY.contains(&state.as_str())
    });
    let id = running.and_then(|document| reply::some_text(document, "id"));
    Ok(id.map(|id| format!("{DOCUMENT_JOB}{id}")))
}
