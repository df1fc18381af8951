//! Who makes vectors of texts.

use futures::future::BoxFuture;

use crate::backend::{BackendError, EngineCall};

/// What a text is: some models treat questions and passages differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A query.
    Query,
    /// A passage that is indexed.
    Passage,
}

/// An embedding model behind an interface of its own.
pub trait Embedder: Send + Sync {
    /// The model's name. Vectors of two names are never compared.
    fn model(&self) -> &str;

    /// What stands in front of a text of this purpose, so that a change of it is a change of the text.
    fn prefix(&self, purpose: Purpose) -> &str;

    /// The vectors of texts, in their order; all of one length. Prefixes are added here.
    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        purpose: Purpose,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, BackendError>>;
}
