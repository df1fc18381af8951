//! Which engine answers for which knowledge base.

use std::collections::BTreeMap;
use std::sync::Arc;

use raglan_core::catalog::{BackendReference, KnowledgeBase};
use raglan_engines::adapter;
use raglan_engines::call::Surroundings;
use raglan_rag::backend::Backend;
use raglan_rag::embedded::EmbeddedBackend;

use crate::config::Config;
use crate::tools::ToolError;

/// The configured engines, by the name that the catalogue has for each.
pub struct Backends {
    by_name: BTreeMap<String, Arc<dyn Backend>>,
}

impl Backends {
    /// The embedded engine and those that the configuration names. Nothing is asked of any of them.
    #[must_use]
    pub fn from_config(config: &Config, surroundings: &Surroundings) -> Self {
        let embedded = Arc::new(EmbeddedBackend::new(config.index_dir.clone()));
        let mut backends = Self {
            by_name: BTreeMap::new(),
        };
        backends = backends.with(BackendReference::EMBEDDED, embedded);
        for (name, configuration) in &config.backends {
            let backend = adapter::build(name, configuration, surroundings);
            backends = backends.with(name, backend);
        }
        backends
    }

    /// These engines and one more, in place of one of the same name.
    #[must_use]
    pub fn with(mut self, name: &str, backend: Arc<dyn Backend>) -> Self {
        self.by_name.insert(name.to_owned(), backend);
        self
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
