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
/// ([`raglan_core::catalog::BackendReference::id`]); permission has been decided before. A method that
/// an engine has no use for answers [`BackendError::Unsupported`].
pub trait Backend: Send + Sync {
    /// What the engine can do.
    fn abilities(&self) -> Abilities;

    /// Which filters the engine applies. One beyond them is answered with
    /// [`BackendError::UnsupportedFilter`].
    fn filters(&self) -> FilterAbilities {
        FilterAbilities::ALL
    }

    /// Lists the engine's knowledge bases, at most `limit`, from the position that the page before gave
    /// as [`KnowledgeBasePage::next`]. For operators, who choose which of them callers may see.
    fn list_knowledge_bases<'a>(
        &'a self,
        _position: Option<&'a str>,
        _limit: usize,
        _call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<KnowledgeBasePage, BackendError>> {
        unsupported("list its knowledge bases")
    }

    /// Finds the passages that fit a query best, best first.
    fn retrieve<'a>(
        &'a self,
        knowledge_base: &'a str,
        request: &'a RetrieveRequest,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Retrieval, BackendError>>;

    /// Answers a question from passages that the engine finds itself, where it is configured to do so.
    /// `None` when it is not, or does not take this question: then its passages are asked for.
    fn answer<'a>(
        &'a self,
        _knowledge_base: &'a str,
        _request: &'a RetrieveRequest,
        _call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<EngineAnswer>, BackendError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Lists documents in an order of the engine's own, at most `limit`, from the position that the
    /// page before gave as [`DocumentPage::next`].
    fn list_documents<'a>(
        &'a self,
        _knowledge_base: &'a str,
        _position: Option<&'a str>,
        _limit: usize,
        _call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<DocumentPage, BackendError>> {
        unsupported("list documents")
    }

    /// The whole text of a document; `None` when there is no such document.
    fn read_document<'a>(
        &'a self,
        _knowledge_base: &'a str,
        _document_id: &'a str,
        _call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<DocumentText>, BackendError>> {
        unsupported("read whole documents")
    }

    /// Tells what a knowledge base holds.
    fn describe<'a>(
        &'a self,
        knowledge_base: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Statistics, BackendError>>;

    /// How one of the engine's own indexing jobs stands; `None` when there is no such job.
    fn job<'a>(
        &'a self,
        _knowledge_base: &'a str,
        _job_id: &'a str,
        _call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<Job>, BackendError>> {
        unsupported("tell how indexing stands")
    }

    /// The job that indexes the knowledge base at this moment, as [`Backend::job`] takes it; `None` when
    /// there is none, or when the engine does not tell.
    fn running_job<'a>(
        &'a self,
        _knowledge_base: &'a str,
        _call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<String>, BackendError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

fn unsupported<'a, T: Send + 'a>(what: &'static str) -> BoxFuture<'a, Result<T, BackendError>> {
    Box::pin(std::future::ready(Err(BackendError::Unsupported(what))))
}

/// What every request to an engine carries, whatever it asks for. The caller's key is never part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineCall {
    /// Time that the engine may take.
    pub time_left: Duration,
    /// The W3C trace context (`traceparent` header) of the call that this request belongs to.
    pub traceparent: Option<String>,
}

impl EngineCall {
    /// A request of its own, outside of any trace, that may take this long.
    #[must_use]
    pub const fn within(time_left: Duration) -> Self {
        Self {
            time_left,
            traceparent: None,
        }
    }
}

/// What an engine can do, whatever the knowledge base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// The largest `top_k` that it takes; more is clamped before it is asked.
    pub top_k_limit: usize,
    /// The longest query that it takes, in characters; `None` where there is no limit below ours.
    pub query_max_chars: Option<usize>,
    /// Whether a passage's metadata holds everything that filters ask about, so that what the engine
    /// found can be checked once more ([`Filters`]).
    pub tells_metadata: bool,
    /// Whether [`Backend::list_documents`] works.
    pub lists_documents: bool,
    /// Whether [`Backend::read_document`] works.
    pub reads_documents: bool,
}

/// Which filters an engine applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterAbilities {
    /// By the names of the fields of [`Filters`].
    pub fields: &'static [&'static str],
    /// The operators on metadata, by their names in requests ([`Comparison`]).
    pub operators: &'static [&'static str],
}

impl FilterAbilities {
    /// Every filter with every operator.
    pub const ALL: Self = Self {
        fields: &[
            "domain",
            "document_type",
            "updated_after",
            "updated_before",
            "metadata",
        ],
        operators: &["eq", "ne", "in", "nin", "gt", "gte", "lt", "lte"],
    };
    /// No filter.
    pub const NONE: Self = Self {
        fields: &[],
        operators: &[],
    };
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
    /// Conditions on fields of the document's metadata; several may be about one field.
    pub metadata: Vec<Condition>,
}

impl Filters {
    /// Whether nothing is asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A condition on one field of a document's metadata. A document without the field satisfies
/// [`Comparison::NoneOf`] only.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The field's name.
    pub field: String,
    /// What its value must be like. Where the document has several values, one that fits is enough;
    /// for [`Comparison::NoneOf`] none may fit.
    pub comparison: Comparison,
}

/// How a value is compared. Values are strings, numbers or booleans; lists are never empty.
#[derive(Debug, Clone, PartialEq)]
pub enum Comparison {
    /// `eq`, `in`: equal to one of these.
    OneOf(Vec<Value>),
    /// `ne`, `nin`: equal to none of these.
    NoneOf(Vec<Value>),
    /// `gt`: greater than this number or text.
    Greater(Value),
    /// `gte`
    GreaterOrEqual(Value),
    /// `lt`
    Less(Value),
    /// `lte`
    LessOrEqual(Value),
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
    /// What the engine had to do otherwise than asked.
    pub notes: Vec<Note>,
}

/// An answer that an engine wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineAnswer {
    /// The text, in which `[n]` stands for the passage at `n - 1`; `None` when it is withheld.
    pub text: Option<String>,
    /// The model that wrote it.
    pub model: String,
    /// The passages that the text cites.
    pub retrieval: Retrieval,
}

/// Something that an engine did otherwise than asked; callers are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The engine takes shorter queries: only the first `max_chars` characters were searched for.
    QueryCut {
        /// How many characters.
        max_chars: usize,
    },
    /// A setting of this knowledge base that the engine refused, for example `rerank`; the search was
    /// done without it.
    WithoutSetting(&'static str),
    /// This many passages broke the filters although the engine was given them; they were dropped.
    FilteredAgain(usize),
    /// A guardrail of the engine intervened: what was found is withheld.
    Withheld,
    /// The embedding model did not answer: only words were searched for, not their meaning.
    WordsOnly,
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
    /// `markdown`, `text`, `html` or `pdf`; engines have further ones.
    pub format: String,
    /// Size of the source file.
    pub size_bytes: u64,
    /// `indexed`, or `failed` when it could not be read; of an engine also `indexing`, `cancelled`, and
    /// `disabled` when it is left out of searches.
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
    /// The documents.
    pub documents: Vec<Document>,
    /// Where the next page begins, in words of the engine's own; `None` after the last document.
    pub next: Option<String>,
}

/// A knowledge base as its engine knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EngineKnowledgeBase {
    /// The engine's own identifier ([`raglan_core::catalog::BackendReference::id`]).
    pub id: String,
    /// Name for people; the identifier where the engine tells none.
    pub name: String,
    /// What it covers, where the engine tells.
    pub description: Option<String>,
    /// Number of documents, where the engine tells.
    pub document_count: Option<u64>,
}

/// A page of knowledge bases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnowledgeBasePage {
    /// The knowledge bases.
    pub knowledge_bases: Vec<EngineKnowledgeBase>,
    /// Where the next page begins, in words of the engine's own; `None` after the last one.
    pub next: Option<String>,
}

/// An indexing job of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its state, in the words of [`raglan_core::task::TaskStatus`].
    pub status: raglan_core::task::TaskStatus,
    /// Its document, where it is about one.
    pub document_id: Option<String>,
    /// Whether the engine gave a reason for failing; the reason itself is for the log.
    pub failed_because: Option<String>,
    /// When it began.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
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
    /// The engine has no such operation; the text completes "the engine cannot …".
    #[error("the engine cannot {0}")]
    Unsupported(&'static str),
    /// The engine asks to be left alone for a while.
    #[error("the engine is throttling")]
    Throttled,
    /// The engine cannot be reached, or fails.
    #[error("the engine is unavailable: {0}")]
    Unavailable(String),
    /// The engine refuses us or the request: credentials, rights, a setting. Trying again does not help.
    #[error("the engine refuses: {0}")]
    Refused(String),
    /// The engine's answer is not what its interface promises, or is too large.
    #[error("the engine's answer cannot be read: {0}")]
    UnreadableAnswer(String),
    /// The embedded index is missing, damaged or from another version; the text says how to mend it.
    #[error("the index cannot be used: {0}")]
    UnusableIndex(String),
}

impl BackendError {
    /// Whether the same call may succeed a moment later.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        matches!(
            self,
            Self::TimedOut(_) | Self::Throttled | Self::Unavailable(_) | Self::UnreadableAnswer(_)
        )
    }
}
