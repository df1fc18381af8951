//! The HTTP API of RAGFlow (<https://ragflow.io/docs/dev/http_api_reference>).
//!
//! It answers 200 whatever happens, with a `code` in the body. Its filters have failed open: where
//! nothing matched, everything came back (infiniflow/ragflow#10926). So every search with filters is
//! checked against the metadata of the documents that were found, which newer versions send along with
//! the chunks and older ones are asked for, one document at a time. A document that cannot be found has
//! shown nothing, and its chunks are left out.

mod documents;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use http::StatusCode;
use raglan_rag::backend::{
    Abilities, Backend, BackendError, DocumentPage, DocumentText, EngineCall, EngineKnowledgeBase,
    FilterAbilities, Job, KnowledgeBasePage, Note, Passage, Retrieval, RetrieveRequest, Statistics,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::attributes::{conditions, moment};
use crate::call::{CallError, EngineClient, EngineRequest, rest_of};
use crate::configuration::{AttributeNames, RagFlowSettings};
use crate::hits::{Hit, least_score, retrieval};
use crate::metadata_condition;
use crate::paging::EnginePage;
use crate::reply;

/// Raglan's own; chunks come in pages of up to [`PAGE_MAX`].
const TOP_K_LIMIT: usize = 50;
/// `page_size`: more is refused.
const PAGE_MAX: usize = 100;
/// With a `page_size` of 1, older versions rank a single candidate.
const PAGE_MIN: usize = 2;
/// RAGFlow's own `similarity_threshold`, for engines that are configured without one.
const SIMILARITY_THRESHOLD: f32 = 0.2;
/// How many documents are asked for at the same time.
const DOCUMENTS_AT_ONCE: usize = 8;
const RERANK: &str = "rerank";

/// RAGFlow.
#[derive(Debug)]
pub struct RagFlowBackend {
    client: EngineClient,
    settings: RagFlowSettings,
    attributes: AttributeNames,
    score_threshold: f32,
    /// Whether the engine refused the configured reranking model before.
    is_rerank_refused: AtomicBool,
}

impl RagFlowBackend {
    /// The engine that `client` leads to.
    #[must_use]
    pub fn new(
        client: EngineClient,
        settings: RagFlowSettings,
        attributes: AttributeNames,
        score_threshold: Option<f32>,
    ) -> Self {
        Self {
            client,
            settings,
            attributes,
            score_threshold: score_threshold.unwrap_or(SIMILARITY_THRESHOLD),
            is_rerank_refused: AtomicBool::new(false),
        }
    }

    /// The `data` of an answer.
    async fn data(&self, request: EngineRequest, call: &EngineCall) -> Result<Value, CallError> {
        let request = request.with_meant_status(meant_status);
        let mut answer = self.client.send(&request, call).await?;
        if answer.get("code").and_then(Value::as_i64) != Some(0) {
            let message = "an answer without code".to_owned();
            return Err(BackendError::UnreadableAnswer(message).into());
        }
        Ok(answer.get_mut("data").map(Value::take).unwrap_or_default())
    }

    /// The `data` of an answer to a search. A dataset into which nothing was ever taken has no index, and
    /// that is an error to RAGFlow.
    async fn found(&self, request: EngineRequest, call: &EngineCall) -> Result<Value, CallError> {
        match self.data(request, call).await {
            Err(CallError::Rejected { message, .. }) if message.contains("No chunk found") => {
                Ok(json!({ "chunks": [] }))
            }
            answer => answer,
        }
    }

    async fn search(
        &self,
        dataset: &str,
        request: &RetrieveRequest,
        call: &EngineCall,
    ) -> Result<Retrieval, BackendError> {
        let begun = Instant::now();
        let (answer, mut notes) = self.answer(dataset, request, call).await?;
        let chunks: Vec<&Value> = reply::list(&answer, "/chunks")?
            .iter()
            .filter(|chunk| is_of(chunk, dataset))
            // What was not asked for is not worth the questions about its documents.
            .take(page_size(request))
            .collect();
        let passages = if request.filters.is_empty() {
            let all = chunks.iter();
            all.filter_map(|chunk| self.passage(chunk, told_metadata(chunk)))
                .collect()
        } else {
            let rest = rest_of(call, begun);
            let asked = self.metadata_of(dataset, &chunks, &rest).await?;
            let (passages, unknown) = self.checkable(&chunks, &asked);
            if unknown > 0 {
                notes.push(Note::FilteredAgain(unknown));
            }
            passages
        };
        let least_score = least_score(request.min_score, Some(self.score_threshold));
        let found = retrieval(passages, least_score, request.top_k);
        let total = reply::count(&answer, "total").unwrap_or(0);
        Ok(Retrieval {
            matched: total.max(found.matched),
            notes,
            ..found
        })
    }

    /// What a search gives, without the reranking model where the engine refuses that.
    async fn answer(
        &self,
        dataset: &str,
        request: &RetrieveRequest,
        call: &EngineCall,
    ) -> Result<(Value, Vec<Note>), BackendError> {
        let begun = Instant::now();
        let body = self.body(dataset, request)?;
        let ask = |body: Value| EngineRequest::post(&["api", "v1", "retrieval"], body);
        let mut is_refused = false;
        if let Some(rerank) = &self.settings.rerank
            && !self.is_rerank_refused.load(Ordering::Relaxed)
        {
            let mut body = body.clone();
            body["rerank_id"] = rerank.as_str().into();
            // Not repeated: the repetition is the request without the model.
            match self.found(ask(body).once(), call).await {
                Err(CallError::Rejected { .. }) => is_refused = true,
                Err(CallError::Engine(BackendError::Unavailable(_))) => {}
                answer => {
                    let answer = answer.map_err(|error| error.about(dataset))?;
                    return Ok((answer, Vec::new()));
                }
            }
        }
        let answer = self.found(ask(body), &rest_of(call, begun)).await;
        let answer = answer.map_err(|error| error.about(dataset))?;
        // Without the model it worked: the refusal was about the model.
        self.is_rerank_refused
            .fetch_or(is_refused, Ordering::Relaxed);
        let is_without = self.settings.rerank.is_some();
        let notes = is_without.then_some(Note::WithoutSetting(RERANK));
        Ok((answer, notes.into_iter().collect()))
    }

    /// The passages whose documents' metadata is known, and how many others there were.
    fn checkable(
        &self,
        chunks: &[&Value],
        asked: &BTreeMap<String, Value>,
    ) -> (Vec<Passage>, usize) {
        let mut unknown = 0;
        let passages = chunks.iter().filter_map(|chunk| {
            let metadata = told_metadata(chunk)
                .or_else(|| asked.get(reply::some_text(chunk, "document_id")?.as_str()));
            if metadata.is_none() {
                unknown += 1;
            }
            self.passage(chunk, Some(metadata?))
        });
        (passages.collect(), unknown)
    }

    /// The body of a search. `top_k` of RAGFlow is how many candidates are compared, and stays as it is;
    /// `page_size` is how many come back. The lowest score stays here: it is applied to what comes back.
    fn body(&self, dataset: &str, request: &RetrieveRequest) -> Result<Value, BackendError> {
        let mut body = json!({
            "question": request.query,
            "dataset_ids": [dataset],
            "page": 1,
            "page_size": page_size(request),
            "similarity_threshold": 0.0,
            "reference_metadata": { "include": true },
        });
        if let Some(weight) = self.settings.vector_weight {
            // Through the text, which has no digits that nobody wrote.
            let weight: f64 = weight.to_string().parse().unwrap_or(f64::from(weight));
            body["vector_similarity_weight"] = weight.into();
        }
        if self.settings.keyword {
            body["keyword"] = true.into();
        }
        let conditions = conditions(&request.filters, &self.attributes, self.filters())?;
        if !conditions.is_empty() {
            body["metadata_condition"] = metadata_condition::ragflow(&conditions)?;
        }
        Ok(body)
    }

    /// The metadata of the documents whose chunks do not tell it, by document. What does not exist is
    /// not in it.
    async fn metadata_of(
        &self,
        dataset: &str,
        chunks: &[&Value],
        call: &EngineCall,
    ) -> Result<BTreeMap<String, Value>, BackendError> {
        let mut ids: Vec<String> = chunks
            .iter()
            .filter(|chunk| told_metadata(chunk).is_none())
            .filter_map(|chunk| reply::some_text(chunk, "document_id"))
            .collect();
        ids.sort();
        ids.dedup();
        let found: Vec<Option<(String, Value)>> = stream::iter(ids)
            .map(|id| async move {
                let document = documents::find(self, dataset, &id, call).await?;
                let metadata = document.map(|document| documents::metadata(&document));
                Ok::<_, BackendError>(metadata.map(|metadata| (id, metadata)))
            })
            .buffered(DOCUMENTS_AT_ONCE)
            .try_collect()
            .await?;
        Ok(found.into_iter().flatten().collect())
    }

    fn passage(&self, chunk: &Value, metadata: Option<&Value>) -> Option<Passage> {
        let filename = reply::some_text(chunk, "document_keyword");
        let hit = Hit {
            id: reply::some_text(chunk, "id"),
            document_id: reply::text(chunk, "document_id"),
            filename: filename.unwrap_or_else(|| reply::text(chunk, "docnm_kwd")),
            chunk_index: None,
            score: reply::score(chunk, "similarity"),
            content: reply::some_text(chunk, "content")?,
            attributes: metadata,
        };
        let mut passage = hit.into_passage(&self.attributes);
        passage.page = passage.page.or_else(|| page(&passage.filename, chunk));
        Some(passage)
    }

    async fn list_datasets(
        &self,
        position: Option<&str>,
        limit: usize,
        call: &EngineCall,
    ) -> Result<KnowledgeBasePage, BackendError> {
        let page = EnginePage::at(position, limit, PAGE_MAX)?;
        let get = EngineRequest::get(&["api", "v1", "datasets"])
            .with_parameter("page", &page.number.to_string())
            .with_parameter("page_size", &page.size.to_string());
        let data = self.data(get, call).await;
        let data = data.map_err(|error| error.or_unsupported("list its knowledge bases"))?;
        let datasets = reply::list(&data, "")?;
        let knowledge_bases = datasets.iter().filter_map(|dataset| {
            let id = reply::some_text(dataset, "id")?;
            Some(EngineKnowledgeBase {
                name: reply::some_text(dataset, "name").unwrap_or_else(|| id.clone()),
                id,
                description: reply::some_text(dataset, "description"),
                document_count: reply::count(dataset, "document_count"),
            })
        });
        Ok(KnowledgeBasePage {
            knowledge_bases: knowledge_bases.collect(),
            next: page.next(datasets.len(), None, None),
        })
    }

    async fn dataset(&self, dataset: &str, call: &EngineCall) -> Result<Statistics, BackendError> {
        let get = EngineRequest::get(&["api", "v1", "datasets"])
            .with_parameter("page", "1")
            .with_parameter("page_size", "1")
            .with_parameter("id", dataset);
        let data = self.data(get, call).await;
        let data = data.map_err(|error| error.about(dataset))?;
        let mut datasets = reply::list(&data, "")?.iter();
        let found = datasets
            .find(|found| reply::text(found, "id") == dataset)
            .ok_or_else(|| BackendError::UnknownKnowledgeBase(dataset.to_owned()))?;
        Ok(Statistics {
            document_count: reply::count(found, "document_count"),
            chunk_count: reply::count(found, "chunk_count"),
            embedding_model: reply::some_text(found, "embedding_model"),
            similarity_threshold: Some(self.score_threshold),
            top_k_limit: TOP_K_LIMIT as u64,
            indexed_at: found.get("update_time").and_then(moment),
            ..Statistics::default()
        })
    }
}

/// How many chunks are asked for.
fn page_size(request: &RetrieveRequest) -> usize {
    request.top_k.clamp(PAGE_MIN, PAGE_MAX)
}

/// What a `code` means. RAGFlow has one for everything that it does not like (102), so that what it is
/// about is in the message only.
fn meant_status(status: StatusCode, body: &Value) -> StatusCode {
    let Some(code) = body.get("code").and_then(Value::as_i64) else {
        return status;
    };
    let message = reply::text(body, "message").to_lowercase();
    match code {
        0 => status,
        109 | 401 => StatusCode::UNAUTHORIZED,
        404 => StatusCode::NOT_FOUND,
        // "You don't own the dataset …", "… lacks permission for dataset …", "The dataset doesn't exist"
        _ if code != 100 && is_missing(&message) => StatusCode::NOT_FOUND,
        108 | 403 => StatusCode::FORBIDDEN,
        429 => StatusCode::TOO_MANY_REQUESTS,
        // A model that is not there is no outage.
        100 if message.contains("model") => StatusCode::BAD_REQUEST,
        // An exception, or no connection to what is behind it.
        100 | 105 | 500..=599 => StatusCode::INTERNAL_SERVER_ERROR,
        _ if status.is_success() => StatusCode::BAD_REQUEST,
        _ => status,
    }
}

/// Whether a message is about a dataset, document or chunk that is not there, or not ours, or cannot be.
fn is_missing(message: &str) -> bool {
    if message.contains("invalid uuid") {
        return true;
    }
    let names_it = ["dataset", "knowledgebase", "document", "chunk"]
        .iter()
        .any(|name| message.contains(name));
    let denies_it = [
        "don't own",
        "doesn't own",
        "do not own",
        "not found",
        "doesn't exist",
        "lacks permission",
    ];
    names_it && denies_it.iter().any(|words| message.contains(words))
}

/// The metadata of its document, which newer versions send with a chunk where there is any.
fn told_metadata(chunk: &Value) -> Option<&Value> {
    chunk
        .get("document_metadata")
        .filter(|metadata| metadata.is_object())
}

/// Whether a chunk is of this dataset, as far as it tells. Another one was not asked for, and the caller
/// may not be permitted to see it.
fn is_of(chunk: &Value, dataset: &str) -> bool {
    let told = reply::some_text(chunk, "dataset_id").or_else(|| reply::some_text(chunk, "kb_id"));
    told.is_none_or(|told| told == dataset)
}

/// The page of a chunk of a PDF: the first of five numbers of its first position. In other documents
/// these count something else.
fn page(filename: &str, chunk: &Value) -> Option<u64> {
    let is_pdf = filename.to_lowercase().ends_with(".pdf");
    let page = chunk.pointer("/positions/0/0")?;
    let page = page.as_f64().filter(|page| *page >= 1.0)?;
    is_pdf.then(|| format!("{page:.0}").parse().ok())?
}

impl Backend for RagFlowBackend {
    fn abilities(&self) -> Abilities {
        Abilities {
            top_k_limit: TOP_K_LIMIT,
            query_max_chars: None,
            tells_metadata: true,
            lists_documents: true,
            reads_documents: true,
        }
    }

    /// `in` works for one condition alone; beside others it is refused when it is asked for.
    fn filters(&self) -> FilterAbilities {
        FilterAbilities::ALL
    }

    fn list_knowledge_bases<'a>(
        &'a self,
        position: Option<&'a str>,
        limit: usize,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<KnowledgeBasePage, BackendError>> {
        Box::pin(self.list_datasets(position, limit, call))
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
        Box::pin(documents::list(self, knowledge_base, position, limit, call))
    }

    fn read_document<'a>(
        &'a self,
        knowledge_base: &'a str,
        document_id: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<DocumentText>, BackendError>> {
        Box::pin(documents::read(self, knowledge_base, document_id, call))
    }

    fn describe<'a>(
        &'a self,
        knowledge_base: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Statistics, BackendError>> {
        Box::pin(self.dataset(knowledge_base, call))
    }

    /// A job is a document that is being parsed.
    fn job<'a>(
        &'a self,
        knowledge_base: &'a str,
        job_id: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<Job>, BackendError>> {
        Box::pin(documents::job(self, knowledge_base, job_id, call))
    }

    fn running_job<'a>(
        &'a self,
        knowledge_base: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<String>, BackendError>> {
        Box::pin(documents::running_job(self, knowledge_base, call))
    }
}

#[cfg(test)]
mod tests;
