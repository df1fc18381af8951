//! The knowledge API of Dify (<https://docs.dify.ai/api-reference/knowledge-bases>; the definition is
//! `openapi_knowledge.json` in langgenius/dify-docs).
//!
//! Versions differ in what they know: old ones leave `metadata_filtering_conditions` out without a word,
//! and `doc_metadata` out of what they find. A passage that does not show the metadata that was asked
//! for is therefore dropped by whoever asked ([`Abilities::tells_metadata`]).

mod documents;

use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use raglan_rag::backend::{
    Abilities, Backend, BackendError, DocumentPage, DocumentText, EngineCall, EngineKnowledgeBase,
    FilterAbilities, Job, KnowledgeBasePage, Note, Passage, Retrieval, RetrieveRequest, Statistics,
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::attributes::{conditions, moment};
use crate::call::{CallError, EngineClient, EngineRequest, rest_of};
use crate::configuration::{AttributeNames, DifySettings, MomentFormat, RerankModel};
use crate::hits::{Hit, cut_query, least_score, retrieval};
use crate::metadata_condition::{self, Bounds};
use crate::paging::EnginePage;
use crate::reply;

/// `query` of `/datasets/{dataset_id}/retrieve` (`maxLength`).
const QUERY_MAX_CHARS: usize = 250;
/// The interface names no limit: raglan's own.
const TOP_K_LIMIT: usize = 50;
/// `limit` of lists.
const PAGE_MAX: usize = 100;
const RERANK: &str = "rerank";

/// Dify.
#[derive(Debug)]
pub struct DifyBackend {
    client: EngineClient,
    settings: DifySettings,
    attributes: AttributeNames,
    score_threshold: Option<f32>,
    /// Whether the engine refused the configured reranking model before.
    is_rerank_refused: AtomicBool,
}

impl DifyBackend {
    /// The engine that `client` leads to.
    #[must_use]
    pub const fn new(
        client: EngineClient,
        settings: DifySettings,
        attributes: AttributeNames,
        score_threshold: Option<f32>,
    ) -> Self {
        Self {
            client,
            settings,
            attributes,
            score_threshold,
            is_rerank_refused: AtomicBool::new(false),
        }
    }

    async fn search(
        &self,
        dataset: &str,
        request: &RetrieveRequest,
        call: &EngineCall,
    ) -> Result<Retrieval, BackendError> {
        let (query, cut) = cut_query(&request.query, QUERY_MAX_CHARS);
        let model = self.retrieval_model(request)?;
        let answer = self.ask(dataset, query, &model, call).await;
        let (answer, without) = answer.map_err(|error| error.about(dataset))?;
        let least_score = least_score(request.min_score, self.score_threshold);
        let found = retrieval(self.passages(&answer)?, least_score, request.top_k);
        Ok(Retrieval {
            notes: cut.into_iter().chain(without).collect(),
            ..found
        })
    }

    /// Asks with the configured reranking model, and without it where the engine refuses it.
    async fn ask(
        &self,
        dataset: &str,
        query: &str,
        model: &Value,
        call: &EngineCall,
    ) -> Result<(Value, Option<Note>), CallError> {
        let begun = Instant::now();
        let request = |model: &Value| {
            let body = json!({ "query": query, "retrieval_model": model });
            EngineRequest::post(&["datasets", dataset, "retrieve"], body)
        };
        if let Some(rerank) = self.rerank() {
            let reranked = request(&with_reranking(model, rerank));
            match self.client.send(&reranked, call).await {
                // A model that is not there, or not paid for, is one of many reasons for 400: without it
                // the engine has the last word.
                Err(CallError::Rejected { .. }) => {}
                answer => return Ok((answer?, None)),
            }
        }
        let rest = rest_of(call, begun);
        let answer = self.client.send(&request(model), &rest).await?;
        let is_without = self.settings.rerank.is_some();
        self.is_rerank_refused
            .fetch_or(is_without, Ordering::Relaxed);
        Ok((answer, is_without.then_some(Note::WithoutSetting(RERANK))))
    }

    /// The configured reranking model, as long as the engine has not refused it.
    fn rerank(&self) -> Option<&RerankModel> {
        let rerank = self.settings.rerank.as_ref();
        rerank.filter(|_| !self.is_rerank_refused.load(Ordering::Relaxed))
    }

    /// `RetrievalModel`, without reranking. The lowest score stays here: it is applied to what comes
    /// back.
    fn retrieval_model(&self, request: &RetrieveRequest) -> Result<Value, BackendError> {
        let mut model = json!({
            "search_method": self.settings.search_method,
            "reranking_enable": false,
            "top_k": request.top_k,
            "score_threshold_enabled": false,
        });
        let conditions = conditions(&request.filters, &self.attributes, self.filters())?;
        if !conditions.is_empty() {
            model["metadata_filtering_conditions"] = json!({
                "logical_operator": "and",
                "conditions": metadata_condition::dify(&conditions, Bounds::Numbers)?,
            });
        }
        Ok(model)
    }

    fn passages(&self, answer: &Value) -> Result<Vec<Passage>, BackendError> {
        let records = reply::list(answer, "/records")?;
        let hits = records.iter().filter_map(|record| {
            let segment = record.get("segment")?;
            let document = segment.get("document").unwrap_or(&Value::Null);
            let metadata = document.get("doc_metadata").and_then(by_name);
            let hit = Hit {
                id: reply::some_text(segment, "id"),
                document_id: reply::some_text(document, "id")
                    .unwrap_or_else(|| reply::text(segment, "document_id")),
                filename: reply::text(document, "name"),
                chunk_index: chunk_index(segment),
                score: reply::score(record, "score"),
                content: documents::segment_text(segment)?,
                attributes: metadata.as_ref(),
            };
            Some(hit.into_passage(&self.attributes))
        });
        Ok(hits.collect())
    }

    async fn list_datasets(
        &self,
        position: Option<&str>,
        limit: usize,
        call: &EngineCall,
    ) -> Result<KnowledgeBasePage, BackendError> {
        let page = EnginePage::at(position, limit, PAGE_MAX)?;
        let get = EngineRequest::get(&["datasets"])
            .with_parameter("page", &page.number.to_string())
            .with_parameter("limit", &page.size.to_string());
        let answer = self.client.send(&get, call).await;
        let answer = answer.map_err(|error| error.or_unsupported("list its knowledge bases"))?;
        let datasets = reply::list(&answer, "/data")?;
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
            next: next(page, datasets.len(), &answer),
        })
    }

    async fn dataset(&self, dataset: &str, call: &EngineCall) -> Result<Statistics, BackendError> {
        let get = EngineRequest::get(&["datasets", dataset]);
        let answer = self.client.send(&get, call).await;
        let answer = answer.map_err(|error| error.about(dataset))?;
        if !answer.is_object() {
            let message = "a dataset that is no object".to_owned();
            return Err(BackendError::UnreadableAnswer(message));
        }
        Ok(Statistics {
            document_count: reply::count(&answer, "document_count"),
            embedding_model: reply::some_text(&answer, "embedding_model"),
            similarity_threshold: self.score_threshold,
            top_k_limit: TOP_K_LIMIT as u64,
            indexed_at: answer.get("updated_at").and_then(moment),
            ..Statistics::default()
        })
    }
}

fn with_reranking(model: &Value, rerank: &RerankModel) -> Value {
    let mut model = model.clone();
    model["reranking_enable"] = true.into();
    model["reranking_mode"] = "reranking_model".into();
    model["reranking_model"] = json!({
        "reranking_provider_name": rerank.provider,
        "reranking_model_name": rerank.model,
    });
    model
}

/// `position` counts from 1.
fn chunk_index(segment: &Value) -> Option<u64> {
    reply::count(segment, "position")?.checked_sub(1)
}

/// Where the next page of a list of Dify's begins.
fn next(page: EnginePage, given: usize, answer: &Value) -> Option<String> {
    let has_more = answer.get("has_more").and_then(Value::as_bool);
    page.next(given, reply::count(answer, "total"), has_more)
}

/// Metadata as an object: it comes as one, or as a list of `{name, type, value}`.
fn by_name(metadata: &Value) -> Option<Value> {
    match metadata {
        Value::Object(_) => Some(metadata.clone()),
        Value::Array(fields) => {
            let fields = fields.iter().filter_map(|field| {
                let name = reply::some_text(field, "name")?;
                Some((name, field.get("value")?.clone()))
            });
            Some(Value::Object(fields.collect::<Map<_, _>>()))
        }
        _ => None,
    }
}

impl Backend for DifyBackend {
    fn abilities(&self) -> Abilities {
        Abilities {
            top_k_limit: TOP_K_LIMIT,
            query_max_chars: Some(QUERY_MAX_CHARS),
            tells_metadata: true,
            lists_documents: true,
            reads_documents: true,
        }
    }

    /// Dify orders numbers only, and so moments that are written as numbers.
    fn filters(&self) -> FilterAbilities {
        match self.attributes.moments {
            MomentFormat::EpochSeconds | MomentFormat::EpochMilliseconds => FilterAbilities::ALL,
            MomentFormat::Rfc3339 | MomentFormat::Date => FilterAbilities {
                fields: &["domain", "document_type", "metadata"],
                ..FilterAbilities::ALL
            },
        }
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
