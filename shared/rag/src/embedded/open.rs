//! An open generation and how it is searched.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tantivy::collector::{Count, DocSetCollector, TopDocs};
use tantivy::query::{BooleanQuery, BoostQuery, Occur, Query, TermQuery};
use tantivy::schema::{Field, IndexRecordOption, Value as _};
use tantivy::{DocAddress, Index, ReloadPolicy, Searcher, TantivyDocument, TantivyError, Term};

use super::filters;
use super::layout;
use super::manifest::{Manifest, ManifestError};
use super::read_only_directory::ReadOnlyDirectory;
use super::schema::{FORM_BOOST, IndexSchema, StoredPassage, TITLE_BOOST};
use super::tokenizer::{QueryTerms, query_terms};
use crate::backend::{Document, Filters, Passage, Retrieval, RetrieveRequest};

/// Why a generation cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The manifest forbids it.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// tantivy cannot read the files.
    #[error("its full-text index is damaged: {0}")]
    Tantivy(#[from] TantivyError),
    /// A stored passage or the list of documents is not what was written.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The schema differs although the version is the same.
    #[error("it has another schema")]
    Schema,
}

/// An open generation.
pub struct OpenIndex {
    directory: PathBuf,
    manifest: Manifest,
    schema: IndexSchema,
    searcher: Searcher,
    documents: OnceLock<Vec<Document>>,
}

impl OpenIndex {
    /// Opens the generation in `directory` without writing anything.
    ///
    /// # Errors
    /// [`IndexError`] says what is wrong with it.
    pub fn open(directory: &Path) -> Result<Self, IndexError> {
        let manifest = Manifest::read(directory)?;
        let files = ReadOnlyDirectory::open(directory).map_err(TantivyError::from)?;
        let index = Index::open(files)?;
        let schema = IndexSchema::new();
        if index.schema() != schema.schema {
            return Err(IndexError::Schema);
        }
        let reader = index
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .try_into()?;
        Ok(Self {
            directory: directory.to_owned(),
            manifest,
            schema,
            searcher: reader.searcher(),
            documents: OnceLock::new(),
        })
    }

    /// What the index says of itself.
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Every document, ordered by id; read on first use.
    ///
    /// # Errors
    /// [`IndexError::Damaged`] when the list cannot be read.
    pub fn documents(&self) -> Result<&[Document], IndexError> {
        if let Some(documents) = self.documents.get() {
            return Ok(documents);
        }
        let json = std::fs::read(self.directory.join(layout::DOCUMENTS))
            .map_err(|error| IndexError::Damaged(format!("{}: {error}", layout::DOCUMENTS)))?;
        let documents = serde_json::from_slice(&json)
            .map_err(|error| IndexError::Damaged(format!("{}: {error}", layout::DOCUMENTS)))?;
        Ok(self.documents.get_or_init(|| documents))
    }

    /// The passages that fit best. Equal scores are ordered by the passages' place in the index,
    /// which is the order of their documents.
    ///
    /// # Errors
    /// [`IndexError`] when the files turn out to be damaged.
    pub fn search(&self, request: &RetrieveRequest) -> Result<Retrieval, IndexError> {
        let Some(query) = self.query(&request.query, &request.filters) else {
            return Ok(Retrieval::default());
        };
        let best = TopDocs::with_limit(request.top_k.max(1)).order_by_score();
        let (hits, matched) = self.searcher.search(&query, &(best, Count))?;
        let below = |score: f32| request.min_score.is_some_and(|least| score < least);
        let below_threshold = hits.iter().filter(|(score, _)| below(*score)).count() as u64;
        let passages = hits
            .into_iter()
            .filter(|(score, _)| !below(*score))
            .map(|(score, address)| self.passage(score, address))
            .collect::<Result<_, _>>()?;
        Ok(Retrieval {
            passages,
            matched: matched as u64,
            below_threshold,
            notes: Vec::new(),
        })
    }

    /// All passages of one document in their order; none when there is no such document.
    ///
    /// # Errors
    /// [`IndexError`] when the files turn out to be damaged.
    pub fn passages_of(&self, document_id: &str) -> Result<Vec<Passage>, IndexError> {
        let query = term_query(self.schema.document_id, document_id);
        let found = self.searcher.search(&query, &DocSetCollector)?;
        let mut passages = found
            .into_iter()
            .map(|address| self.passage(0.0, address))
            .collect::<Result<Vec<_>, _>>()?;
        passages.sort_by_key(|passage| passage.chunk_index);
        Ok(passages)
    }

    fn passage(&self, score: f32, address: DocAddress) -> Result<Passage, IndexError> {
        let entry: TantivyDocument = self.searcher.doc(address)?;
        let json = entry
            .get_first(self.schema.passage)
            .and_then(|value| value.as_str())
            .ok_or_else(|| IndexError::Damaged("a passage is missing".to_owned()))?;
        serde_json::from_str::<StoredPassage>(json)
            .map(|stored| stored.with_score(score))
            .map_err(|error| IndexError::Damaged(format!("a passage: {error}")))
    }

    /// Any of the query's words and all of the filters; `None` when the query has no words.
    ///
    /// The text never meets a query parser: quotes, colons and `AND` are separators and words.
    fn query(&self, text: &str, conditions: &Filters) -> Option<BooleanQuery> {
        let QueryTerms {
            words,
            small_words,
            forms,
            characters,
        } = query_terms(text);
        if words.is_empty() && small_words.is_empty() {
            return None;
        }
        // "the" stands in few titles and headings, so one that has it would count as a rare find.
        let any_word = words
            .iter()
            .flat_map(|term| self.word(term))
            .chain(
                small_words
                    .iter()
                    .map(|term| term_query(self.schema.content, term)),
            )
            .collect();
        let mut clauses: Vec<(Occur, Box<dyn Query>)> =
            vec![(Occur::Must, Box::new(BooleanQuery::union(any_word)))];
        clauses.extend(
            characters
                .iter()
                .map(|term| (Occur::Should, term_query(self.schema.content, term))),
        );
        clauses.extend(forms.iter().map(|form| {
            let form = term_query(self.schema.content, form);
            let form: Box<dyn Query> = Box::new(BoostQuery::new(form, FORM_BOOST));
            (Occur::Should, form)
        }));
        clauses.extend(filters::clauses(&self.schema, conditions));
        Some(BooleanQuery::new(clauses))
    }

    fn word(&self, term: &str) -> [Box<dyn Query>; 3] {
        let schema = &self.schema;
        [
            Box::new(BoostQuery::new(term_query(schema.title, term), TITLE_BOOST)),
            term_query(schema.section, term),
            term_query(schema.content, term),
        ]
    }
}

fn term_query(field: Field, text: &str) -> Box<dyn Query> {
    Box::new(TermQuery::new(
        Term::from_field_text(field, text),
        IndexRecordOption::WithFreqs,
    ))
}
