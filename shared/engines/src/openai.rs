//! The read side of `/v1/vector_stores`, as OpenAI defines it and LiteLLM, Llama Stack, Azure and others
//! speak it: <https://platform.openai.com/docs/api-reference/vector-stores>. It is also the contract that
//! we publish for engines of your own (`docs/backend-contract/openapi.yaml`).

mod filter;

use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use raglan_core::clock::Timestamp;
use raglan_core::task::TaskStatus;
use raglan_rag::backend::{
    Abilities, Backend, BackendError, Document, DocumentPage, DocumentText, EngineCall,
    EngineKnowledgeBase, FilterAbilities, Job, KnowledgeBasePage, Note, Passage, Retrieval,
    RetrieveRequest, Statistics,
};
use serde_json::{Value, json};

use crate::attributes::{Attributes, conditions};
use crate::call::{CallError, EngineClient, EngineRequest};
use crate::configuration::{AttributeNames, OpenAiSettings};
use crate::hits::{Hit, format_of, least_score, retrieval};
use crate::reply;

/// `max_num_results` is 1 to 50.
const TOP_K_LIMIT: usize = 50;
/// `limit` of a list is 1 to 100.
const PAGE_MAX: usize = 100;
const STORES: &str = "vector_stores";
/// OpenAI asks for it on these routes; others ignore it.
const BETA: (&str, &str) = ("openai-beta", "assistants=v2");
/// What an identifier of ours begins with when the engine's job is one file's.
const FILE_JOB: &str = "file/";
/// What it begins with when the job is a batch of files.
const BATCH_JOB: &str = "file_batch/";

/// An engine that speaks `/v1/vector_stores`.
#[derive(Debug)]
pub struct OpenAiBackend {
    client: EngineClient,
    settings: OpenAiSettings,
    attributes: AttributeNames,
    score_threshold: Option<f32>,
    /// Whether the engine refused the configured ranker before.
    is_ranker_refused: AtomicBool,
}

impl OpenAiBackend {
    /// An engine behind this connection.
    #[must_use]
    pub const fn new(
        client: EngineClient,
        settings: OpenAiSettings,
        attributes: AttributeNames,
        score_threshold: Option<f32>,
    ) -> Self {
        Self {
            client,
            settings,
            attributes,
            score_threshold,
            is_ranker_refused: AtomicBool::new(false),
        }
    }

    async fn search(
        &self,
        store: &str,
        request: &RetrieveRequest,
        call: &EngineCall,
    ) -> Result<Retrieval, BackendError> {
        let conditions = conditions(&request.filters, &self.attributes, self.filters())?;
        let top_k = request.top_k.min(TOP_K_LIMIT);
        let mut body = json!({ "query": request.query, "max_num_results": top_k });
        if self.settings.rewrite_query {
            body["rewrite_query"] = true.into();
        }
        if let Some(filter) = filter::of(&conditions) {
            body["filters"] = filter;
        }
        let (reply, note) = self.ask(store, body, call).await.map_err(|error| {
            match filter::is_refused(&error, &conditions) {
                Some(field) => BackendError::UnsupportedFilter(field),
                None => error.about(store),
            }
        })?;
        let passages = list(&reply)?
            .iter()
            .filter_map(|hit| self.passage(hit))
            .collect();
        let least = least_score(request.min_score, self.score_threshold);
        let mut found = retrieval(passages, least, top_k);
        found.notes.extend(note);
        Ok(found)
    }

    /// Asks with the configured ranker, and without it where the engine refuses it.
    async fn ask(
        &self,
        store: &str,
        mut body: Value,
        call: &EngineCall,
    ) -> Result<(Value, Option<Note>), CallError> {
        let segments = [STORES, store, "search"];
        let plain = post(&segments, body.clone());
        let Some(ranker) = &self.settings.ranker else {
            return Ok((self.client.send(&plain, call).await?, None));
        };
        if !self.is_ranker_refused.load(Ordering::Relaxed) {
            body["ranking_options"] = json!({ "ranker": ranker });
            let first = post(&segments, body);
            match self.client.send(&first, call).await {
                // Any refusal may be the ranker's: without it the engine has the last word.
                Err(CallError::Rejected { .. }) => {}
                answer => return Ok((answer?, None)),
            }
        }
        let reply = self.client.send(&plain, call).await?;
        self.is_ranker_refused.store(true, Ordering::Relaxed);
        Ok((reply, Some(Note::WithoutSetting("ranker"))))
    }

    /// A search result. `None` when it has no text.
    fn passage(&self, hit: &Value) -> Option<Passage> {
        let content = text_of(&hit["content"]);
        if content.is_empty() {
            return None;
        }
        let filename = text(&hit["filename"]).unwrap_or_default();
        let attributes = &hit["attributes"];
        // OGX (Llama Stack) has identifiers of its own beside the attributes, which no other route knows.
        let file_id = text(&attributes["file_id"]).or_else(|| text(&hit["file_id"]));
        Some(
            Hit {
                id: text(&hit["chunk_id"]).or_else(|| text(&attributes["chunk_id"])),
                // Gateways in front of other engines know no files.
                document_id: file_id.unwrap_or_else(|| filename.clone()),
                filename,
                chunk_index: None,
                score: reply::score(hit, "score"),
                content,
                attributes: Some(attributes),
            }
            .into_passage(&self.attributes),
        )
    }

    fn document(&self, file: &Value) -> Result<Document, BackendError> {
        let id = id_of(file)?;
        let attributes = Attributes::new(&self.attributes, Some(&file["attributes"]));
        // OpenAI's own list has no file names.
        let title = attributes.text("title");
        let filename = text(&file["filename"])
            .or_else(|| title.clone())
            .unwrap_or_else(|| id.clone());
        let created_at = moment_of(&file["created_at"]);
        Ok(Document {
            title: title.unwrap_or_else(|| filename.clone()),
            format: format_of(&filename).to_owned(),
            size_bytes: file["usage_bytes"].as_u64().unwrap_or(0),
            status: match file["status"].as_str() {
                Some("in_progress") => "indexing",
                Some("failed") => "failed",
                Some("cancelled") => "cancelled",
                _ => "indexed",
            }
            .to_owned(),
            chunk_count: 0,
            created_at,
            updated_at: attributes.updated_at().unwrap_or(created_at),
            guard_findings: std::collections::BTreeMap::new(),
            filename,
            id,
        })
    }

    async fn files(
        &self,
        store: &str,
        position: Option<&str>,
        limit: usize,
        call: &EngineCall,
    ) -> Result<DocumentPage, BackendError> {
        let request = page_of(&[STORES, store, "files"], position, limit);
        let reply = self.client.send(&request, call).await;
        let reply = reply.map_err(|error| error.about(store))?;
        let documents = list(&reply)?.iter().map(|file| self.document(file));
        Ok(DocumentPage {
            documents: documents.collect::<Result<_, _>>()?,
            next: next_of(&reply)?,
        })
    }

    async fn content(
        &self,
        store: &str,
        file: &str,
        call: &EngineCall,
    ) -> Result<Option<DocumentText>, BackendError> {
        let content = get(&[STORES, store, "files", file, "content"]);
        let reply = match self.client.send(&content, call).await {
            Ok(reply) => reply,
            Err(error) if is_missing(&error) => {
                // The file, or the route? The file's own route tells.
                return match self.file(store, file, call).await? {
                    Some(_) => Err(BackendError::Unsupported("read whole documents")),
                    None => Ok(None),
                };
            }
            Err(error) => return Err(error.into()),
        };
        if reply["has_more"] == true {
            let cause = "a document in several pages, and there is no way to ask for the next one";
            return Err(BackendError::UnreadableAnswer(cause.to_owned()));
        }
        let parts = [&reply["data"], &reply["content"]];
        let Some(parts) = parts.into_iter().find(|parts| parts.is_array()) else {
            return Err(unreadable("no list of texts"));
        };
        let text_of_file = text_of(parts);
        let about = match self.file(store, file, call).await {
            // OGX (Llama Stack) has an empty text for every file that it does not know.
            Ok(None) if text_of_file.is_empty() => return Ok(None),
            Ok(about) => about,
            // Only the title is missing then, and the text is worth more.
            Err(_) => None,
        };
        let about = about.as_ref().unwrap_or(&reply);
        let attributes = Attributes::new(&self.attributes, Some(&about["attributes"]));
        let title = attributes
            .text("title")
            .or_else(|| text(&about["filename"]))
            .or_else(|| text(&reply["filename"]))
            .unwrap_or_else(|| file.to_owned());
        Ok(Some(DocumentText {
            title,
            text: text_of_file,
        }))
    }

    /// What the engine says about one file; `None` when it has no such file.
    async fn file(
        &self,
        store: &str,
        file: &str,
        call: &EngineCall,
    ) -> Result<Option<Value>, CallError> {
        let request = get(&[STORES, store, "files", file]);
        match self.client.send(&request, call).await {
            Ok(reply) => Ok(Some(reply)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn statistics(&self, store: &str, call: &EngineCall) -> Result<Statistics, BackendError> {
        let request = get(&[STORES, store]);
        let reply = self.client.send(&request, call).await;
        let reply = reply.map_err(|error| error.about(store))?;
        id_of(&reply)?;
        let metadata = &reply["metadata"];
        Ok(Statistics {
            document_count: reply["file_counts"]["completed"].as_u64(),
            // Llama Stack tells these.
            embedding_model: text(&metadata["embedding_model"]),
            embedding_dimension: Attributes::new(&AttributeNames::default(), Some(metadata))
                .whole_number("embedding_dimension"),
            similarity_threshold: self.score_threshold,
            top_k_limit: TOP_K_LIMIT as u64,
            ..Statistics::default()
        })
    }

    async fn find_job(
        &self,
        store: &str,
        job_id: &str,
        call: &EngineCall,
    ) -> Result<Option<Job>, BackendError> {
        if let Some(file) = job_id.strip_prefix(FILE_JOB) {
            let file = self.file(store, file, call).await?;
            return Ok(file.as_ref().map(job_of_file));
        }
        let Some(batch) = job_id.strip_prefix(BATCH_JOB) else {
            return Ok(None);
        };
        let request = get(&[STORES, store, "file_batches", batch]);
        match self.client.send(&request, call).await {
            Ok(reply) => Ok(Some(job_of_batch(&reply))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The interface has no list of batches, but one of the files that are being taken in.
    async fn running(
        &self,
        store: &str,
        call: &EngineCall,
    ) -> Result<Option<String>, BackendError> {
        let request = page_of(&[STORES, store, "files"], None, 1);
        let request = request.with_parameter("filter", "in_progress");
        let reply = self.client.send(&request, call).await;
        let reply = reply.map_err(|error| error.about(store))?;
        let running = list(&reply)?
            .iter()
            // Engines have given everything where they do not know a filter.
            .find(|file| file["status"] == "in_progress");
        running
            .map(|file| Ok(format!("{FILE_JOB}{}", id_of(file)?)))
            .transpose()
    }

    async fn stores(
        &self,
        position: Option<&str>,
        limit: usize,
        call: &EngineCall,
    ) -> Result<KnowledgeBasePage, BackendError> {
        let request = page_of(&[STORES], position, limit);
        let reply = self.client.send(&request, call).await;
        let reply = reply.map_err(|error| error.or_unsupported("list its knowledge bases"))?;
        let stores = list(&reply)?.iter().map(|store| {
            let id = id_of(store)?;
            Ok(EngineKnowledgeBase {
                name: text(&store["name"]).unwrap_or_else(|| id.clone()),
                description: text(&store["description"]),
                document_count: store["file_counts"]["completed"].as_u64(),
                id,
            })
        });
        Ok(KnowledgeBasePage {
            knowledge_bases: stores.collect::<Result<_, BackendError>>()?,
            next: next_of(&reply)?,
        })
    }
}

impl Backend for OpenAiBackend {
    fn abilities(&self) -> Abilities {
        Abilities {
            top_k_limit: TOP_K_LIMIT,
            query_max_chars: None,
            tells_metadata: self.settings.tells_metadata,
            lists_documents: true,
            reads_documents: true,
        }
    }

    fn list_knowledge_bases<'a>(
        &'a self,
        position: Option<&'a str>,
        limit: usize,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<KnowledgeBasePage, BackendError>> {
        Box::pin(self.stores(position, limit, call))
    }

    fn filters(&self) -> FilterAbilities {
        FilterAbilities::ALL
    }

    fn retrieve<'a>(
        &'a self,
        knowledge_base: &'a str,
        request: &'a RetrieveRequest,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Retrieval, BackendError>> {
        Box::pin(self.search(knowledge_base, request, call))
    }

    fn list_documents<'a>(
        &'a self,
        knowledge_base: &'a str,
        position: Option<&'a str>,
        limit: usize,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<DocumentPage, BackendError>> {
        Box::pin(self.files(knowledge_base, position, limit, call))
    }

    fn read_document<'a>(
        &'a self,
        knowledge_base: &'a str,
        document_id: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<DocumentText>, BackendError>> {
        Box::pin(self.content(knowledge_base, document_id, call))
    }

    fn describe<'a>(
        &'a self,
        knowledge_base: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Statistics, BackendError>> {
        Box::pin(self.statistics(knowledge_base, call))
    }

    fn job<'a>(
        &'a self,
        knowledge_base: &'a str,
        job_id: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<Job>, BackendError>> {
        Box::pin(self.find_job(knowledge_base, job_id, call))
    }

    fn running_job<'a>(
        &'a self,
        knowledge_base: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<String>, BackendError>> {
        Box::pin(self.running(knowledge_base, call))
    }
}

/// OGX (Llama Stack) answers 400 where others answer 404.
fn is_missing(error: &CallError) -> bool {
    match error {
        CallError::NotFound(_) => true,
        CallError::Rejected {
            status: 400,
            message,
        } => message.contains("not found"),
        _ => false,
    }
}

fn unreadable(cause: &str) -> BackendError {
    BackendError::UnreadableAnswer(cause.to_owned())
}

fn get(segments: &[&str]) -> EngineRequest {
    EngineRequest::get(segments).with_header(BETA.0, BETA.1)
}

fn post(segments: &[&str], body: Value) -> EngineRequest {
    EngineRequest::post(segments, body).with_header(BETA.0, BETA.1)
}

/// A page of a list, oldest first, so that what is added meanwhile comes at its end.
fn page_of(segments: &[&str], position: Option<&str>, limit: usize) -> EngineRequest {
    let limit = limit.clamp(1, PAGE_MAX).to_string();
    let request = get(segments)
        .with_parameter("limit", &limit)
        .with_parameter("order", "asc");
    match position {
        Some(after) => request.with_parameter("after", after),
        None => request,
    }
}

fn list(reply: &Value) -> Result<&[Value], BackendError> {
    reply::list(reply, "/data")
}

/// Where the next page of a list begins: behind the last element.
fn next_of(reply: &Value) -> Result<Option<String>, BackendError> {
    if reply["has_more"] != true {
        return Ok(None);
    }
    let last = list(reply)?.last().and_then(|last| text(&last["id"]));
    match text(&reply["last_id"]).or(last) {
        Some(last) => Ok(Some(last)),
        None => Err(unreadable("`has_more` without a last element")),
    }
}

fn id_of(object: &Value) -> Result<String, BackendError> {
    text(&object["id"]).ok_or_else(|| unreadable("an object without `id`"))
}

/// A text that is not empty.
fn text(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.map(ToOwned::to_owned)
}

/// The texts of `[{"type": "text", "text": …}]`, one below the other.
fn text_of(parts: &Value) -> String {
    let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| part["text"].as_str())
        .collect();
    texts.join("\n\n")
}

fn moment_of(value: &Value) -> Timestamp {
    crate::attributes::moment(value).unwrap_or(Timestamp::from_epoch_seconds(0))
}

fn job_of_file(file: &Value) -> Job {
    let (status, failed_because) = match file["status"].as_str() {
        Some("completed") => (TaskStatus::Succeeded, None),
        Some("in_progress") | None => (TaskStatus::Running, None),
        Some(status) => {
            let message = file["last_error"]["message"].as_str();
            let cause = message.unwrap_or(status).to_owned();
            (TaskStatus::Failed, Some(cause))
        }
    };
    job(file, text(&file["id"]), status, failed_because)
}

fn job_of_batch(batch: &Value) -> Job {
    let count = |name: &str| batch["file_counts"][name].as_u64().unwrap_or(0);
    let lost = count("failed") + count("cancelled");
    let because = || Some(format!("{lost} of {} files", count("total")));
    let (status, failed_because) = match batch["status"].as_str() {
        Some("completed") if lost == 0 => (TaskStatus::Succeeded, None),
        Some("completed") => (TaskStatus::Partial, because()),
        Some("in_progress") | None => (TaskStatus::Running, None),
        Some(_) => (TaskStatus::Failed, because()),
    };
    job(batch, None, status, failed_because)
}

/// The interface does not tell when a job last changed.
fn job(
    told: &Value,
    document_id: Option<String>,
    status: TaskStatus,
    failed_because: Option<String>,
) -> Job {
    let created_at = moment_of(&told["created_at"]);
    Job {
        status,
        document_id,
        failed_because,
        created_at,
        updated_at: created_at,
    }
}

#[cfg(test)]
mod tests;
