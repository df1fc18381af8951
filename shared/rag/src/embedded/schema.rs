//! What the index keeps of a passage.

use std::collections::BTreeMap;

use raglan_core::clock::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tantivy::schema::{
    FAST, Field, IndexRecordOption, STORED, STRING, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::tokenizer::TokenizerManager;

use super::tokenizer::{self, CjkTokenizer};
use crate::backend::Passage;

/// Weight of a match in the title, where a match in the text weighs 1.
pub const TITLE_BOOST: f32 = 1.5;

/// Weight of a word in the very form that the query has, beside its stem, which weighs 1. Of 0, 0.1,
/// 0.25, 0.5 and 1 the best on the English manual pages (`docs/embedded-index.md`).
pub const FORM_BOOST: f32 = 0.25;

/// The schema and its fields.
#[derive(Debug, Clone)]
pub struct IndexSchema {
    /// The schema, to compare with that of an index on disk.
    pub schema: Schema,
    /// The document's title, searched.
    pub title: Field,
    /// The headings above the passage, searched.
    pub section: Field,
    /// The passage's text, searched.
    pub content: Field,
    /// The document's identifier, to find all passages of one document.
    pub document_id: Field,
    /// The terms of the metadata ([`super::attributes`]), for filters.
    pub attribute: Field,
    /// When the document last changed, in milliseconds since 1970, for filters; absent when unknown.
    pub updated_at_ms: Field,
    /// The whole passage as JSON ([`StoredPassage`]), not searched.
    pub passage: Field,
}

impl IndexSchema {
    /// The schema of this version of raglan.
    #[must_use]
    pub fn new() -> Self {
        let searched = TextOptions::default().set_indexing_options(
            TextFieldIndexing::default()
                .set_tokenizer(tokenizer::NAME)
                .set_index_option(IndexRecordOption::WithFreqs),
        );
        let mut builder = Schema::builder();
        let title = builder.add_text_field("title", searched.clone());
        let section = builder.add_text_field("section", searched.clone());
        let content = builder.add_text_field("content", searched);
        let document_id = builder.add_text_field("document_id", STRING);
        let attribute = builder.add_text_field("attribute", STRING);
        let updated_at_ms = builder.add_i64_field("updated_at_ms", FAST);
        let passage = builder.add_text_field("passage", STORED);
        let schema = builder.build();
        Self {
            schema,
            title,
            section,
            content,
            document_id,
            attribute,
            updated_at_ms,
            passage,
        }
    }

    /// The tokenizers that the schema names.
    #[must_use]
    pub fn tokenizers() -> TokenizerManager {
        let tokenizers = TokenizerManager::default();
        tokenizers.register(tokenizer::NAME, CjkTokenizer);
        tokenizers
    }
}

impl Default for IndexSchema {
    fn default() -> Self {
        Self::new()
    }
}

/// A passage as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredPassage {
    /// See [`Passage::id`].
    pub id: String,
    /// See [`Passage::document_id`].
    pub document_id: String,
    /// See [`Passage::chunk_index`].
    pub chunk_index: u64,
    /// See [`Passage::content`].
    pub content: String,
    /// See [`Passage::title`].
    pub title: String,
    /// See [`Passage::filename`].
    pub filename: String,
    /// See [`Passage::uri`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// See [`Passage::section`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// See [`Passage::page`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<u64>,
    /// See [`Passage::updated_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// See [`Passage::metadata`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
}

impl StoredPassage {
    /// The passage as a result with `score`.
    #[must_use]
    pub fn with_score(self, score: f32) -> Passage {
        Passage {
            id: self.id,
            document_id: self.document_id,
            chunk_index: self.chunk_index,
            score,
            content: self.content,
            title: self.title,
            filename: self.filename,
            uri: self.uri,
            section: self.section,
            page: self.page,
            updated_at: self.updated_at,
            metadata: self.metadata,
        }
    }
}
