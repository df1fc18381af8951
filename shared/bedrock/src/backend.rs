//! Knowledge bases of Amazon Bedrock as an engine.
//!
//! The engine's identifier of a knowledge base is Bedrock's (`ABCDEFGHIJ`), or that and the identifier
//! of one of its data sources (`ABCDEFGHIJ/KLMNOPQRST`): then only that source is searched and listed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_bedrockagent::operation::get_knowledge_base::GetKnowledgeBaseInput;
use futures::future::BoxFuture;
use raglan_aws::LazyAccount;
use raglan_core::clock::Clock;
use raglan_engines::call::{CallError, ExchangeLimits};
use raglan_engines::configuration::{AttributeNames, BedrockSettings, BedrockType, Configuration};
use raglan_rag::backend::{
    Abilities, Backend, BackendError, DocumentPage, EngineAnswer, EngineCall, FilterAbilities, Job,
    KnowledgeBasePage, Retrieval, RetrieveRequest, Statistics,
};

use crate::connection::Connection;
use crate::exchange::Deadline;
use crate::filters;

/// `numberOfResults`
pub(crate) const TOP_K_MAX: usize = 100;
/// `retrievalQuery.text`
pub(crate) const QUERY_MAX_CHARS: usize = 20_000;
/// More kinds are not remembered.
const KINDS_MAX: usize = 1_000;

/// One configured access to knowledge bases of Bedrock.
pub struct BedrockBackend {
    pub(crate) settings: BedrockSettings,
    pub(crate) attributes: AttributeNames,
    pub(crate) limits: ExchangeLimits,
    pub(crate) score_threshold: Option<f32>,
    pub(crate) connection: Connection,
    /// A knowledge base stays what it is.
    kinds: Mutex<HashMap<String, Kind>>,
}

/// How a knowledge base is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With `managedSearchConfiguration`: Bedrock keeps the vectors.
    Managed,
    /// With `vectorSearchConfiguration`: a store of the customer, or Kendra.
    Vector,
    /// Without either: rows of a database, found by a query that Bedrock writes.
    Sql,
}

impl Kind {
    /// The metadata key of the data source. The other kind's key finds nothing, without an error.
    pub(crate) const fn data_source_key(self) -> &'static str {
        match self {
            Self::Managed => "_data_source_id",
            Self::Vector | Self::Sql => "x-amz-bedrock-kb-data-source-id",
        }
    }
}

/// What the engine's identifier of a knowledge base says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reference<'a> {
    pub(crate) knowledge_base: &'a str,
    pub(crate) data_source: Option<&'a str>,
}

impl<'a> Reference<'a> {
    /// # Errors
    /// [`BackendError::UnknownKnowledgeBase`]: Bedrock has no such identifiers.
    pub(crate) fn parse(text: &'a str) -> Result<Self, BackendError> {
        let (knowledge_base, data_source) = match text.split_once('/') {
            Some((knowledge_base, data_source)) => (knowledge_base, Some(data_source)),
            None => (text, None),
        };
        if is_id(knowledge_base) && data_source.is_none_or(is_id) {
            Ok(Self {
                knowledge_base,
                data_source,
            })
        } else {
            Err(BackendError::UnknownKnowledgeBase(text.to_owned()))
        }
    }
}

/// `[0-9a-zA-Z]{1,10}`, for knowledge bases, data sources and ingestion jobs.
pub(crate) fn is_id(text: &str) -> bool {
    (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl BedrockBackend {
    /// The access with this configuration. Nothing is loaded, opened or asked before its first request.
    #[must_use]
    pub fn new(
        name: &str,
        configuration: &Configuration,
        settings: &BedrockSettings,
        account: Arc<LazyAccount>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        Self {
            settings: settings.clone(),
            attributes: configuration.attributes.clone(),
            limits: configuration.limits,
            score_threshold: configuration.score_threshold,
            connection: Connection::new(name, settings, account, clock),
            kinds: Mutex::default(),
        }
    }

    /// What the knowledge base is, and whether Bedrock was asked for it just now.
    pub(crate) async fn kind(
        &self,
        knowledge_base: &str,
        deadline: &Deadline,
    ) -> Result<(Kind, bool), CallError> {
        match self.settings.knowledge_base_type {
            Some(BedrockType::Managed) => return Ok((Kind::Managed, true)),
            Some(BedrockType::Vector) => return Ok((Kind::Vector, true)),
            None => {}
        }
        let known = self.lock_kinds().get(knowledge_base).copied();
        match known {
            Some(kind) => Ok((kind, false)),
            None => Ok((self.ask_kind(knowledge_base, deadline).await?, true)),
        }
    }

    /// Asks what the knowledge base is, and remembers it.
    pub(crate) async fn ask_kind(
        &self,
        knowledge_base: &str,
        deadline: &Deadline,
    ) -> Result<Kind, CallError> {
        use aws_sdk_bedrockagent::types::{KnowledgeBaseConfiguration, KnowledgeBaseType as Type};
        let described = self.get_knowledge_base(knowledge_base, deadline).await?;
        let configuration = described.knowledge_base_configuration();
        let kind = match configuration.map(KnowledgeBaseConfiguration::r#type) {
            Some(Type::Managed) => Kind::Managed,
            Some(Type::Sql) => Kind::Sql,
            _ => Kind::Vector,
        };
        let mut kinds = self.lock_kinds();
        if kinds.len() >= KINDS_MAX {
            kinds.clear();
        }
        kinds.insert(knowledge_base.to_owned(), kind);
        Ok(kind)
    }

    pub(crate) async fn get_knowledge_base(
        &self,
        knowledge_base: &str,
        deadline: &Deadline,
    ) -> Result<aws_sdk_bedrockagent::types::KnowledgeBase, CallError> {
        let bounds = deadline.bounds()?;
        let request = GetKnowledgeBaseInput::builder()
            .knowledge_base_id(knowledge_base)
            .build();
        let client = self.connection.agent().await;
        let call = client.send_within(request, &bounds);
        let guard = &self.connection.agent_guard;
        let output = guard.run("GetKnowledgeBase", bounds.time, call).await?;
        output.knowledge_base.ok_or_else(|| {
            let cause = "GetKnowledgeBase: a reply without a knowledge base";
            BackendError::UnreadableAnswer(cause.to_owned()).into()
        })
    }

    fn lock_kinds(&self) -> std::sync::MutexGuard<'_, HashMap<String, Kind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for BedrockBackend {
    fn abilities(&self) -> Abilities {
        Abilities {
            top_k_limit: TOP_K_MAX,
            query_max_chars: Some(QUERY_MAX_CHARS),
            tells_metadata: self.settings.tells_metadata,
            lists_documents: true,
            reads_documents: false,
        }
    }

    fn filters(&self) -> FilterAbilities {
        filters::abilities(self.attributes.moments)
    }

    fn list_knowledge_bases<'a>(
        &'a self,
        position: Option<&'a str>,
        limit: usize,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<KnowledgeBasePage, BackendError>> {
        Box::pin(self.knowledge_base_page(position, limit, call))
    }

    fn retrieve<'a>(
        &'a self,
        knowledge_base: &'a str,
        request: &'a RetrieveRequest,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Retrieval, BackendError>> {
        Box::pin(self.search(knowledge_base, request, call))
    }

    fn answer<'a>(
        &'a self,
        knowledge_base: &'a str,
        request: &'a RetrieveRequest,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<EngineAnswer>, BackendError>> {
        Box::pin(self.retrieve_and_generate(knowledge_base, request, call))
    }

    fn list_documents<'a>(
        &'a self,
        knowledge_base: &'a str,
        position: Option<&'a str>,
        limit: usize,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<DocumentPage, BackendError>> {
        Box::pin(self.document_page(knowledge_base, position, limit, call))
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
        Box::pin(self.ingestion_job(knowledge_base, job_id, call))
    }

    fn running_job<'a>(
        &'a self,
        knowledge_base: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<String>, BackendError>> {
        Box::pin(self.running_ingestion_job(knowledge_base, call))
    }
}
