//! What raglan asks of a retrieval engine, and what an engine answers.
//!
//! An engine is whatever holds a team's documents: raglan's own embedded index, or a system that the
//! team already runs. Every engine implements [`Backend`]; nothing above this module knows which one
//! it talks to.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use raglan_core::clock::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A retrieval engine.
///
/// `knowledge_base` is always the engine's own identifier
/// ([`raglan_core::catalog::BackendReference::id`]); permission has been decided before.
pub trait Backend: Send + Sync {
    /// Finds the passages that fit a query best, best first.
    fn retrieve<'a>(
        &'a self,
        knowledge_base: &'a str,
        request: &'a RetrieveRequest,
    ) -> BoxFuture<'a, Result<Retrieval, BackendError>>;

    /// Lists documents, ordered by id, those after `after` (exclusive), at most `limit`.
    fn list_documents<'a>(
        &'a self,
        knowledge_base: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<DocumentPage, BackendError>>;

    /// The whole text of a document; `None` when there is no such document, or when the engine does
    /// not give out whole documents.
    fn read_document<'a>(
        &'a self,
        _knowledge_base: &'a str,
        _document_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<DocumentText>, BackendError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Tells what a knowledge base holds.
    fn describe<'a>(
        &'a self,
        knowledge_base: &'a str,
    ) -> BoxFuture<'a, Result<Statistics, BackendError>>;
}

/// What to look for.
#[derive(Debug, Clone, PartialEq)]
pub struct RetrieveRequest {
    /// The query, as the caller wrote it, not empty.
    pub query: String,
    /// At most this many passages, 1 to 50.
    pub top_k: usize,
    /// Passages with a lower score are left out and counted ([`Retrieval::below_threshold`]).
    pub min_score: Option<f32>,
    /// What the passages' documents must satisfy.
    pub filters: Filters,
    /// Time that the engine may take.
    pub time_left: Duration,
}

/// Conditions on documents; all of them must hold. An empty list or `None` asks nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filters {
    /// The document's domain is one of these.
    pub domain: Vec<String>,
    /// The document's type is one of these.
    pub document_type: Vec<String>,
    /// The document was updated after this moment (exclusive).
    pub updated_after: Option<Timestamp>,
    /// The document was updated before this moment (exclusive).
    pub updated_before: Option<Timestamp>,
    /// For each name: the document's metadata under that name is one of the values
    /// (strings, numbers or booleans).
    pub metadata: BTreeMap<String, Vec<Value>>,
}

impl Filters {
    /// Whether nothing is asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Retrieval {
    /// The passages, best first.
    pub passages: Vec<Passage>,
    /// How many passages matched the query and the filters, before `top_k` and `min_score`.
    pub matched: u64,
    /// How many of the best `top_k` were left out because of `min_score`.
    pub below_threshold: u64,
}

/// A piece of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Passage {
    /// Identifier of the passage, unique in its knowledge base and stable while the text is.
    pub id: String,
    /// Identifier of the document.
    pub document_id: String,
    /// Position of the passage in the document, from 0.
    pub chunk_index: u64,
    /// The engine's score; comparable only within one reply.
    pub score: f32,
    /// The text.
    pub content: String,
    /// The document's title.
    pub title: String,
    /// The document's file name (with its folders, relative to the source).
    pub filename: String,
    /// Where a person can open the document.
    pub uri: Option<String>,
    /// The headings above the passage, outermost first, joined with ` › `.
    pub section: Option<String>,
    /// The page, from 1, for documents that have pages.
    pub page: Option<u64>,
    /// When the document last changed.
    pub updated_at: Option<Timestamp>,
    /// What else the document says of itself (domain, document type, front matter).
    pub metadata: BTreeMap<String, Value>,
}

/// A document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Identifier, unique in its knowledge base and stable while its path is.
    pub id: String,
    /// File name with its folders, relative to the source, `/` between them.
    pub filename: String,
    /// Title.
    pub title: String,
    /// `markdown`, `text`, `html` or `pdf`.
    pub format: String,
    /// Size of the source file.
    pub size_bytes: u64,
    /// `indexed`, or `failed` when it could not be read.
    pub status: String,
    /// Number of passages.
    pub chunk_count: u64,
    /// When it was first taken in.
    pub created_at: Timestamp,
    /// When it last changed, as far as the source tells.
    pub updated_at: Timestamp,
    /// How many passages the guard marked when it was indexed, by rule.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub guard_findings: BTreeMap<String, u64>,
}

/// A page of documents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DocumentPage {
    /// The documents, ordered by id.
    pub documents: Vec<Document>,
    /// Whether more follow.
    pub more: bool,
}

/// A document's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentText {
    /// The title.
    pub title: String,
    /// The text as it was indexed, passage after passage.
    pub text: String,
}

/// What a knowledge base holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Statistics {
    /// Number of documents, where the engine tells.
    pub document_count: Option<u64>,
    /// Number of passages, where the engine tells.
    pub chunk_count: Option<u64>,
    /// Where the documents come from (folders, buckets, sites).
    pub sources: Vec<String>,
    /// The embedding model; `None` when the engine matches words.
    pub embedding_model: Option<String>,
    /// Length of the embedding vectors.
    pub embedding_dimension: Option<u64>,
    /// The lowest score that counts as relevant, where there is one.
    pub similarity_threshold: Option<f32>,
    /// The largest `top_k` that the engine takes.
    pub top_k_limit: u64,
    /// When the content was last built.
    pub indexed_at: Option<Timestamp>,
}

/// Why an engine gave no answer. The texts are for the log; callers are told one of our own sentences.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The engine does not hold this knowledge base.
    #[error("the engine has no knowledge base {0:?}")]
    UnknownKnowledgeBase(String),
    /// A filter that this engine cannot apply; leaving it out would widen the result.
    #[error("the engine cannot filter by {0:?}")]
    UnsupportedFilter(String),
    /// The engine did not answer in time.
    #[error("the engine did not answer within {0:?}")]
    TimedOut(Duration),
    /// The engine cannot be reached, refuses, or answers nonsense.
    #[error("the engine is unavailable: {0}")]
    Unavailable(String),
    /// The embedded index is missing, damaged or from another version; the text says how to mend it.
    #[error("the index cannot be used: {0}")]
    UnusableIndex(String),
}

impl BackendError {
    /// Whether the same call may succeed a moment later.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::Unavailable(_))
    }
}
