//! Which engine answers for which knowledge base.

use std::collections::BTreeMap;
use std::sync::Arc;

use raglan_core::catalog::{BackendReference, KnowledgeBase};
use raglan_rag::backend::Backend;
use raglan_rag::embedded::EmbeddedBackend;

use crate::config::Config;
use crate::tools::ToolError;

/// The configured engines, by kind.
pub struct Backends {
    by_kind: BTreeMap<String, Arc<dyn Backend>>,
}

impl Backends {
    /// The engines that the configuration names.
    #[must_use]
    pub fn from_config(config: &Config) -> Self {
        let embedded = EmbeddedBackend::new(config.index_dir.clone());
        Self::new([(
            BackendReference::EMBEDDED.to_owned(),
            Arc::new(embedded) as Arc<dyn Backend>,
        )])
    }

    /// These engines.
    #[must_use]
    pub fn new(by_kind: impl IntoIterator<Item = (String, Arc<dyn Backend>)>) -> Self {
        Self {
            by_kind: by_kind.into_iter().collect(),
        }
    }

    /// The engine of a knowledge base.
    ///
    /// # Errors
    /// [`ToolError::UnknownBackend`] when it is not configured.
    pub fn of(&self, knowledge_base: &KnowledgeBase) -> Result<&dyn Backend, ToolError> {
        let kind = &knowledge_base.backend.kind;
        let backend = self.by_kind.get(kind).map(AsRef::as_ref);
        backend.ok_or_else(|| ToolError::UnknownBackend(kind.clone()))
    }
}
