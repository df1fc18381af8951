//! `Retrieve`: one search, over as many pages as it takes, with the settings that Bedrock accepts.
//! <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_agent-runtime_Retrieve.html>

use aws_sdk_bedrockagentruntime::operation::retrieve::RetrieveInput;
use aws_sdk_bedrockagentruntime::types::{
    GuadrailAction, GuardrailConfiguration, KnowledgeBaseQuery,
    KnowledgeBaseRetrievalConfiguration, KnowledgeBaseVectorSearchConfiguration,
    ManagedSearchBedrockRerankingConfiguration, ManagedSearchBedrockRerankingModelConfiguration,
    ManagedSearchConfiguration, ManagedSearchRerankingConfiguration,
    ManagedSearchRerankingConfigurationType, RerankingModelType, SearchType,
    VectorSearchBedrockRerankingConfiguration, VectorSearchBedrockRerankingModelConfiguration,
    VectorSearchRerankingConfiguration, VectorSearchRerankingConfigurationType,
};
use aws_smithy_types::error::operation::BuildError;
use raglan_engines::call::CallError;
use raglan_engines::configuration::BedrockGuardrail;
use raglan_engines::hits::{cut_query, least_score, retrieval};
use raglan_rag::backend::{BackendError, EngineCall, Note, Passage, Retrieval, RetrieveRequest};

use crate::backend::{BedrockBackend, Kind, QUERY_MAX_CHARS, Reference, TOP_K_MAX};
use crate::exchange::Deadline;
use crate::{filters, passages};

/// One page holds everything that is asked for, as a rule.
const PAGES_MAX: usize = 5;

/// Settings that make a search better and that not every region, model or store takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wishes<'a> {
    /// ARN of the reranking model.
    pub(crate) rerank: Option<&'a str>,
    pub(crate) search_type: Option<&'a str>,
}

impl Wishes<'_> {
    /// Gives up the setting that was refused, as far as the refusal tells; its name, or `None` when there
    /// is none to give up.
    fn give_up(&mut self, refusal: &CallError) -> Option<&'static str> {
        let (message, is_denied) = match refusal {
            CallError::Rejected { message, .. } => (message.to_lowercase(), false),
            // The right to use the model is missing, or the right to search at all.
            CallError::Engine(BackendError::Refused(message)) => (message.to_lowercase(), true),
            _ => return None,
        };
        let is_about_search = ["hybrid", "semantic", "searchtype", "search type"]
            .iter()
            .any(|word| message.contains(word));
        let prefers_search_type = is_about_search && !message.contains("rerank");
        if !is_denied && prefers_search_type && self.search_type.take().is_some() {
            return Some("search_type");
        }
        if self.rerank.take().is_some() {
            return Some("rerank");
        }
        if !is_denied && self.search_type.take().is_some() {
            return Some("search_type");
        }
        None
    }
}

/// What came back.
enum Found {
    Passages(Vec<Passage>),
    /// The guardrail intervened.
    Withheld,
}

impl BedrockBackend {
    pub(crate) async fn search(
        &self,
        knowledge_base: &str,
        request: &RetrieveRequest,
        call: &EngineCall,
    ) -> Result<Retrieval, BackendError> {
        let reference = Reference::parse(knowledge_base)?;
        let deadline = Deadline::of(call, self.limits);
        let (query, cut) = cut_query(&request.query, QUERY_MAX_CHARS);
        let mut notes: Vec<Note> = cut.into_iter().collect();
        let asked = self.kind(reference.knowledge_base, &deadline).await;
        let (mut kind, mut is_certain) = asked.map_err(|error| error.about(knowledge_base))?;
        let mut wishes = Wishes {
            rerank: self.settings.rerank.as_deref(),
            search_type: self.settings.search_type.as_deref(),
        };
        let found = loop {
            let configuration = self.configuration(kind, &reference, request, wishes)?;
            let refusal = match self
                .pages(&reference, query, request.top_k, configuration, &deadline)
                .await
            {
                Ok(found) => break found,
                Err(refusal) => refusal,
            };
            // What was remembered may belong to a knowledge base that was replaced.
            if !is_certain && matches!(refusal, CallError::Rejected { .. }) {
                is_certain = true;
                let again = self.ask_kind(reference.knowledge_base, &deadline).await;
                let again = again.map_err(|error| error.about(knowledge_base))?;
                if again != kind {
                    kind = again;
                    continue;
                }
            }
            let Some(setting) = wishes.give_up(&refusal) else {
                return Err(refusal.about(knowledge_base));
            };
            tracing::info!(knowledge_base, setting, error = %refusal, "a search is done without a setting");
            notes.push(Note::WithoutSetting(setting));
        };
        let least = least_score(request.min_score, self.score_threshold);
        let mut found = match found {
            Found::Passages(passages) => retrieval(passages, least, request.top_k),
            Found::Withheld => {
                notes.push(Note::Withheld);
                Retrieval::default()
            }
        };
        found.notes = notes;
        Ok(found)
    }

    async fn pages(
        &self,
        reference: &Reference<'_>,
        query: &str,
        top_k: usize,
        configuration: Option<KnowledgeBaseRetrievalConfiguration>,
        deadline: &Deadline,
    ) -> Result<Found, CallError> {
        let guardrail = guardrail(self.settings.guardrail.as_ref())?;
        let query = KnowledgeBaseQuery::builder().text(query).build();
        let client = self.connection.runtime().await;
        let mut found = Vec::new();
        let mut token = None;
        for _ in 0..PAGES_MAX {
            let bounds = deadline.bounds()?;
            let request = RetrieveInput::builder()
                .knowledge_base_id(reference.knowledge_base)
                .retrieval_query(query.clone())
                .set_retrieval_configuration(configuration.clone())
                .set_guardrail_configuration(guardrail.clone())
                .set_next_token(token)
                .build();
            let call = client.send_within(request, &bounds);
            let guard = &self.connection.runtime_guard;
            let page = guard.run("Retrieve", bounds.time, call).await?;
            if matches!(page.guardrail_action(), Some(action) if *action != GuadrailAction::None) {
                return Ok(Found::Withheld);
            }
            let results = page.retrieval_results.iter();
            found.extend(
                results.filter_map(|result| passages::passage(&result.into(), &self.attributes)),
            );
            token = page.next_token;
            if token.is_none() || found.len() >= top_k {
                break;
            }
        }
        Ok(Found::Passages(found))
    }

    /// How to search a knowledge base of this kind.
    ///
    /// # Errors
    /// [`BackendError::UnsupportedFilter`]
    pub(crate) fn configuration(
        &self,
        kind: Kind,
        reference: &Reference<'_>,
        request: &RetrieveRequest,
        wishes: Wishes<'_>,
    ) -> Result<Option<KnowledgeBaseRetrievalConfiguration>, BackendError> {
        let data_source = reference.data_source.map(|id| (kind.data_source_key(), id));
        let filter = filters::translate(&request.filters, &self.attributes, data_source)?;
        let count = i32::try_from(request.top_k.clamp(1, TOP_K_MAX)).unwrap_or(1);
        let builder = KnowledgeBaseRetrievalConfiguration::builder();
        let configuration = match kind {
            Kind::Managed => {
                let search = ManagedSearchConfiguration::builder()
                    .number_of_results(count)
                    .set_filter(filter)
                    .set_reranking_model_type(wishes.rerank.map(|_| RerankingModelType::Custom))
                    .set_reranking_configuration(
                        wishes
                            .rerank
                            .map(managed_reranking)
                            .transpose()
                            .map_err(|error| unwritable(&error))?,
                    );
                builder.managed_search_configuration(search.build())
            }
            Kind::Vector => {
                let search = KnowledgeBaseVectorSearchConfiguration::builder()
                    .number_of_results(count)
                    .set_override_search_type(wishes.search_type.map(SearchType::from))
                    .set_filter(filter)
                    .set_reranking_configuration(
                        wishes
                            .rerank
                            .map(vector_reranking)
                            .transpose()
                            .map_err(|error| unwritable(&error))?,
                    );
                builder.vector_search_configuration(search.build())
            }
            // Bedrock writes a query of its own for tables, and takes no filter for it.
            Kind::Sql if filter.is_some() => {
                let all = "a knowledge base of tables: any filter";
                return Err(BackendError::UnsupportedFilter(all.to_owned()));
            }
            Kind::Sql => return Ok(None),
        };
        Ok(Some(configuration.build()))
    }
}

pub(crate) fn guardrail(
    guardrail: Option<&BedrockGuardrail>,
) -> Result<Option<GuardrailConfiguration>, BackendError> {
    let built = guardrail.map(|guardrail| {
        GuardrailConfiguration::builder()
            .guardrail_id(&guardrail.id)
            .guardrail_version(&guardrail.version)
            .build()
    });
    built.transpose().map_err(|error| unwritable(&error))
}

fn managed_reranking(model: &str) -> Result<ManagedSearchRerankingConfiguration, BuildError> {
    let model = ManagedSearchBedrockRerankingModelConfiguration::builder()
        .model_arn(model)
        .build()?;
    ManagedSearchRerankingConfiguration::builder()
        .r#type(ManagedSearchRerankingConfigurationType::BedrockRerankingModel)
        .bedrock_reranking_configuration(
            ManagedSearchBedrockRerankingConfiguration::builder()
                .model_configuration(model)
                .build(),
        )
        .build()
}

fn vector_reranking(model: &str) -> Result<VectorSearchRerankingConfiguration, BuildError> {
    let model = VectorSearchBedrockRerankingModelConfiguration::builder()
        .model_arn(model)
        .build()?;
    VectorSearchRerankingConfiguration::builder()
        .r#type(VectorSearchRerankingConfigurationType::BedrockRerankingModel)
        .bedrock_reranking_configuration(
            VectorSearchBedrockRerankingConfiguration::builder()
                .model_configuration(model)
                .build(),
        )
        .build()
}

pub(crate) fn unwritable(error: &BuildError) -> BackendError {
    BackendError::Refused(format!("the request cannot be written: {error}"))
}

#[cfg(test)]
mod tests;
