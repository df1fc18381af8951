//! Engines behind one endpoint, `POST /retrieval`, as Dify asks of external knowledge bases
//! (<https://docs.dify.ai/en/use-dify/knowledge/external-knowledge-api>). RAGFlow, `FastGPT` and
//! many services of teams' own have it. It knows no list of knowledge bases and no documents.

use futures::future::BoxFuture;
use http::StatusCode;
use raglan_rag::backend::{
    Abilities, Backend, BackendError, EngineCall, EngineKnowledgeBase, FilterAbilities,
    KnowledgeBasePage, Passage, Retrieval, RetrieveRequest, Statistics,
};
use serde_json::{Value, json};

use crate::attributes::conditions;
use crate::call::{EngineClient, EngineRequest};
use crate::configuration::{AttributeNames, DifyExternalSettings};
use crate::hits::{Hit, least_score, retrieval};
use crate::metadata_condition::{self, Bounds};
use crate::paging::EnginePage;
use crate::reply;

/// The interface names no limit: raglan's own.
const TOP_K_LIMIT: usize = 50;
/// Where records keep the identifier of their document; the interface has no place of its own for it.
const DOCUMENT_ID_NAMES: [&str; 2] = ["document_id", "doc_id"];

/// An engine with the external knowledge API.
#[derive(Debug)]
pub struct DifyExternalBackend {
    client: EngineClient,
    settings: DifyExternalSettings,
    attributes: AttributeNames,
    score_threshold: Option<f32>,
}

impl DifyExternalBackend {
    /// The engine that `client` leads to.
    #[must_use]
    pub const fn new(
        client: EngineClient,
        settings: DifyExternalSettings,
        attributes: AttributeNames,
        score_threshold: Option<f32>,
    ) -> Self {
        Self {
            client,
            settings,
            attributes,
            score_threshold,
        }
    }

    async fn search(
        &self,
        knowledge_base: &str,
        request: &RetrieveRequest,
        call: &EngineCall,
    ) -> Result<Retrieval, BackendError> {
        let body = self.body(knowledge_base, request)?;
        let post = EngineRequest::post(&["retrieval"], body).with_meant_status(meant_status);
        let answer = self.client.send(&post, call).await;
        // There is one route: what is not found is the knowledge base.
        let answer = answer.map_err(|error| error.about(knowledge_base))?;
        let least_score = least_score(request.min_score, self.score_threshold);
        let passages = self.passages(&answer)?;
        Ok(retrieval(passages, least_score, request.top_k))
    }

    /// The body of a request. The lowest score stays here: it is applied to what comes back.
    fn body(&self, knowledge_base: &str, request: &RetrieveRequest) -> Result<Value, BackendError> {
        let mut body = json!({
            "knowledge_id": knowledge_base,
            "query": request.query,
            "retrieval_setting": { "top_k": request.top_k, "score_threshold": 0.0 },
        });
        let conditions = conditions(&request.filters, &self.attributes, self.filters())?;
        if !conditions.is_empty() {
            let conditions = metadata_condition::dify(&conditions, Bounds::NumbersAndDates)?;
            // RAGFlow reads `logic` where Dify writes `logical_operator`.
            body["metadata_condition"] = json!({
                "logical_operator": "and", "logic": "and", "conditions": conditions,
            });
        }
        Ok(body)
    }

    fn passages(&self, answer: &Value) -> Result<Vec<Passage>, BackendError> {
        let records = reply::list(answer, "/records")?;
        let hits = records.iter().filter_map(|record| {
            let content = reply::some_text(record, "content")?;
            let metadata = record.get("metadata").filter(|value| value.is_object());
            let title = reply::text(record, "title");
            let document_id = metadata.and_then(|metadata| {
                let mut names = DOCUMENT_ID_NAMES.iter();
                names.find_map(|name| reply::some_text(metadata, name))
            });
            let hit = Hit {
                document_id: document_id.unwrap_or_else(|| title.clone()),
                filename: title,
                score: reply::score(record, "score"),
                content,
                attributes: metadata,
                ..Hit::default()
            };
            Some(hit.into_passage(&self.attributes))
        });
        Ok(hits.collect())
    }
}

/// The interface has error codes of its own, which some engines send with status 200. RAGFlow sends
/// those of its other interface.
fn meant_status(status: StatusCode, body: &Value) -> StatusCode {
    if body.get("records").is_some_and(Value::is_array) {
        return status;
    }
    let code = body.get("error_code").or_else(|| body.get("code"));
    let code = code.and_then(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()));
    match code {
        // A header that is not as it must be; a key that is not known.
        Some(1001 | 1002 | 109 | 401) => StatusCode::UNAUTHORIZED,
        Some(108 | 403) => StatusCode::FORBIDDEN,
        Some(2001 | 404) => StatusCode::NOT_FOUND,
        Some(1..) if status.is_success() => StatusCode::BAD_REQUEST,
        _ => status,
    }
}

impl Backend for DifyExternalBackend {
    fn abilities(&self) -> Abilities {
        Abilities {
            top_k_limit: TOP_K_LIMIT,
            query_max_chars: None,
            tells_metadata: self.settings.tells_metadata,
            lists_documents: false,
            reads_documents: false,
        }
    }

    fn filters(&self) -> FilterAbilities {
        FilterAbilities::ALL
    }

    /// Those that the configuration names.
    fn list_knowledge_bases<'a>(
        &'a self,
        position: Option<&'a str>,
        limit: usize,
        _call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<KnowledgeBasePage, BackendError>> {
        Box::pin(async move {
            let listed = &self.settings.knowledge_bases;
            let page = EnginePage::at(position, limit, usize::MAX)?;
            let first = (page.number - 1) * page.size;
            let knowledge_bases: Vec<EngineKnowledgeBase> = listed
                .iter()
                .skip(first)
                .take(page.size)
                .map(|listed| EngineKnowledgeBase {
                    id: listed.id.clone(),
                    name: listed.name.clone(),
                    description: listed.description.clone(),
                    document_count: None,
                })
                .collect();
            let next = page.next(knowledge_bases.len(), Some(listed.len() as u64), None);
            Ok(KnowledgeBasePage {
                knowledge_bases,
                next,
            })
        })
    }

    fn retrieve<'a>(
        &'a self,
        knowledge_base: &'a str,
        request: &'a RetrieveRequest,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Retrieval, BackendError>> {
        Box::pin(self.search(knowledge_base, request, call))
    }

    /// Nothing is asked: the interface has no place for it.
    fn describe<'a>(
        &'a self,
        _knowledge_base: &'a str,
        _call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Statistics, BackendError>> {
        Box::pin(std::future::ready(Ok(Statistics {
            similarity_threshold: self.score_threshold,
            top_k_limit: TOP_K_LIMIT as u64,
            ..Statistics::default()
        })))
    }
}

#[cfg(test)]
mod tests;
