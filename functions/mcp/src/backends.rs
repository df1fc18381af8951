//! Which engine answers for which knowledge base.

use std::collections::BTreeMap;
use std::sync::Arc;

use raglan_core::catalog::{BackendReference, KnowledgeBase};
use raglan_core::clock::SystemClock;
use raglan_index_store::{Background, PublishedIndexBackend};
use raglan_rag::backend::Backend;
use raglan_rag::embedded::EmbeddedBackend;

use crate::config::Config;
use crate::tools::ToolError;

/// The configured engines, by kind.
pub struct Backends {
    by_kind: BTreeMap<String, Arc<dyn Backend>>,
    background: Option<Background>,
}

/// Name of the folder of copies of published indexes, in the system's folder for temporary files:
/// the only one that a function can write to.
const COPIES: &str = "raglan-index";

impl Backends {
    /// The engines that the configuration names.
    #[must_use]
    pub fn from_config(config: &Config) -> Self {
        let (embedded, background) = embedded(config);
        Self {
            background,
            ..Self::new([(BackendReference::EMBEDDED.to_owned(), embedded)])
        }
    }

    /// These engines.
    #[must_use]
    pub fn new(by_kind: impl IntoIterator<Item = (String, Arc<dyn Backend>)>) -> Self {
        Self {
            by_kind: by_kind.into_iter().collect(),
            background: None,
        }
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
        let kind = &knowledge_base.backend.kind;
        let backend = self.by_kind.get(kind).map(AsRef::as_ref);
        backend.ok_or_else(|| ToolError::UnknownBackend(kind.clone()))
    }
}

/// The embedded index, from the disk or from S3.
fn embedded(config: &Config) -> (Arc<dyn Backend>, Option<Background>) {
    let Some(location) = &config.index_s3_uri else {
        let on_disk = EmbeddedBackend::new(config.index_dir.clone());
        return (Arc::new(on_disk), None);
    };
    let published = PublishedIndexBackend::new(
        location.clone(),
        std::env::temp_dir().join(COPIES),
        config.index_refresh_seconds,
        Arc::new(SystemClock),
    );
    let background = published.background();
    (Arc::new(published), Some(background))
}
