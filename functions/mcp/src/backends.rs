//! Which engine answers for which knowledge base.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "bedrock")]
use raglan_bedrock::BedrockBackend;
use raglan_core::catalog::{BackendReference, KnowledgeBase};
use raglan_embeddings::OpenAiEmbedder;
use raglan_engines::adapter::{self, NotAvailable};
use raglan_engines::call::Surroundings;
use raglan_engines::configuration::Configuration;
#[cfg(feature = "bedrock")]
use raglan_engines::configuration::Kind;
use raglan_index_store::{Background, PublishedIndexBackend};
use raglan_rag::backend::Backend;
use raglan_rag::embedded::EmbeddedBackend;
use raglan_rag::embedded::embedding::Embedder;

use crate::config::Config;
use crate::tools::ToolError;

/// The configured engines, by the name that the catalogue has for each.
pub struct Backends {
    by_name: BTreeMap<String, Arc<dyn Backend>>,
    background: Option<Background>,
}

/// Name of the folder of copies of published indexes, in the system's folder for temporary files:
/// the only one that a function can write to.
const COPIES: &str = "raglan-index";

impl Backends {
    /// The embedded engine and those that the configuration names. Nothing is asked of any of them.
    ///
    /// # Errors
    /// [`NotAvailable`] when there is no adapter for one of them.
    pub fn from_config(config: &Config, surroundings: &Surroundings) -> Result<Self, NotAvailable> {
        let (embedded, background) = embedded(config, surroundings);
        let mut backends = Self {
            by_name: BTreeMap::new(),
            background,
        };
        backends = backends.with(BackendReference::EMBEDDED, embedded);
        for (name, configuration) in &config.backends {
            let backend = build(name, configuration, surroundings)?;
            backends = backends.with(name, backend);
        }
        Ok(backends)
    }

    /// These engines and one more, in place of one of the same name.
    #[must_use]
    pub fn with(mut self, name: &str, backend: Arc<dyn Backend>) -> Self {
        self.by_name.insert(name.to_owned(), backend);
        self
    }

    /// What the engines go on with after an answer, where one of them does.
    #[must_use]
    pub const fn background(&self) -> Option<&Background> {
        self.background.as_ref()
    }

    /// The engine of a knowledge base.
    ///
    /// # Errors
    /// [`ToolError::UnknownBackend`] when it is not configured.
    pub fn of(&self, knowledge_base: &KnowledgeBase) -> Result<&dyn Backend, ToolError> {
        let name = &knowledge_base.backend.kind;
        let backend = self.by_name.get(name).map(AsRef::as_ref);
        backend.ok_or_else(|| ToolError::UnknownBackend(name.clone()))
    }
}

/// The engine `name`, of whichever type this program was built with.
///
/// # Errors
/// [`NotAvailable`]
pub fn build(
    name: &str,
    configuration: &Configuration,
    surroundings: &Surroundings,
) -> Result<Arc<dyn Backend>, NotAvailable> {
    #[cfg(feature = "bedrock")]
    if let Kind::Bedrock(settings) = &configuration.kind {
        let backend = BedrockBackend::new(
            name,
            configuration,
            settings,
            Arc::clone(&surroundings.account),
            &surroundings.clock,
        );
        return Ok(Arc::new(backend));
    }
    adapter::build(name, configuration, surroundings)
}

/// The embedded index, from the disk or from S3.
fn embedded(
    config: &Config,
    surroundings: &Surroundings,
) -> (Arc<dyn Backend>, Option<Background>) {
    let embedder = config.embeddings.clone().map(|embeddings| {
        let model = OpenAiEmbedder::new(embeddings, surroundings.clone());
        Arc::new(model) as Arc<dyn Embedder>
    });
    let over = |root: PathBuf| {
        let engine = EmbeddedBackend::new(root);
        match embedder {
            Some(embedder) => engine.with_embedder(embedder),
            None => engine,
        }
    };
    let Some(location) = &config.index_s3_uri else {
        return (Arc::new(over(config.index_dir.clone())), None);
    };
    let published = PublishedIndexBackend::new(
        Arc::clone(&surroundings.account),
        location.clone(),
        std::env::temp_dir().join(COPIES),
        config.index_refresh_seconds,
        Arc::clone(&surroundings.clock),
        over,
    );
    let background = published.background();
    (Arc::new(published), Some(background))
}
