//! An open generation and how it is searched.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::OnceLock;

use tantivy::collector::DocSetCollector;
use tantivy::index::SegmentReader;
use tantivy::query::{AllQuery, BooleanQuery, EnableScoring, Occur, Query, TermQuery};
use tantivy::schema::{IndexRecordOption, Value as _};
use tantivy::{DocAddress, Index, ReloadPolicy, Searcher, TantivyDocument, TantivyError, Term};

use super::bm25::SearchedField;
use super::filters;
use super::fusion::{MEANING_WEIGHT, fuse};
use super::layout;
use super::manifest::{Manifest, ManifestError};
use super::postings::Postings;
use super::ranking::rank;
use super::read_only_directory::ReadOnlyDirectory;
use super::schema::{FORM_BOOST, IndexSchema, StoredPassage, TITLE_BOOST};
use super::script::Script;
use super::tokenizer::{QueryTerms, query_terms};
use super::vectors::{Vectors, VectorsError};
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
    /// Its vectors cannot be used.
    #[error(transparent)]
    Vectors(#[from] VectorsError),
    /// Its vectors are of another model than the one that is configured, or as it is configured.
    #[error("its vectors are of {found}, the configured model is {configured}")]
    OtherModel {
        /// Model and dimension of the vectors.
        found: String,
        /// Model and dimension of the query's vector.
        configured: String,
    },
}

/// Entries of each ranking that are merged into one, at least.
const CANDIDATES: usize = 100;

/// Memory for the frequent terms of the passages' texts: a byte for each term and passage.
const CONTENT_KEPT_BYTES: usize = 1 << 20;

/// The same for titles, and for headings: few of their terms are frequent.
const HEADINGS_KEPT_BYTES: usize = 1 << 17;

/// What a ranking is made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ranking {
    /// By words, and by meaning as well where the index has vectors; by meaning alone where the query is
    /// in another script than the index: words of two scripts never match, so that what they find is
    /// noise (names, numbers).
    #[default]
    Best,
    /// By words (BM25).
    Words,
    /// By meaning (cosine).
    Meaning,
    /// By both.
    Both,
}

/// An open generation.
pub struct OpenIndex {
    // Open from the beginning: the folder may be removed while this index still answers.
    documents_file: File,
    manifest: Manifest,
    schema: IndexSchema,
    searcher: Searcher,
    /// None without a passage.
    fields: Option<SearchedFields>,
    vectors: Option<Vectors>,
    documents: OnceLock<Vec<Document>>,
}

impl OpenIndex {
    /// Opens the generation in `directory` without writing anything.
    ///
    /// # Errors
    /// [`IndexError`] says what is wrong with it.
    pub fn open(directory: &Path) -> Result<Self, IndexError> {
        let manifest = Manifest::read(directory)?;
        let documents_file =
            File::open(directory.join(layout::DOCUMENTS)).map_err(|error| damaged_list(&error))?;
        let files = ReadOnlyDirectory::open(directory).map_err(TantivyError::from)?;
        let index = Index::open(files.clone())?;
        let schema = IndexSchema::new();
        if index.schema() != schema.schema {
            return Err(IndexError::Schema);
        }
        let reader = index
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .try_into()?;
        let searcher = reader.searcher();
        let segment = searcher.segment_readers().first();
        let fields = segment.map(|segment| SearchedFields::open(segment, &schema));
        let vectors = match &manifest.vectors {
            Some(vectors) => {
                // Rows are counted as tantivy counts passages: there is one segment, without deletions.
                let [segment] = searcher.segment_readers() else {
                    return Err(VectorsError::Damaged.into());
                };
                let passages = usize::try_from(segment.max_doc());
                let passages = passages.map_err(|_| VectorsError::Damaged)?;
                Some(Vectors::open(&files, vectors, passages)?)
            }
            None => None,
        };
        Ok(Self {
            documents_file,
            manifest,
            schema,
            searcher,
            fields: fields.transpose()?,
            vectors,
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
        let json = read_whole(&self.documents_file).map_err(|error| damaged_list(&error))?;
        let documents = serde_json::from_slice(&json).map_err(|error| damaged_list(&error))?;
        Ok(self.documents.get_or_init(|| documents))
    }

    /// The passages that fit best, by words. Equal scores are ordered by the passages' place in the
    /// index, which is the order of their documents.
    ///
    /// # Errors
    /// [`IndexError`] when the files turn out to be damaged.
    pub fn search(&self, request: &RetrieveRequest) -> Result<Retrieval, IndexError> {
        let (hits, matched) = self.by_words(request, request.top_k.max(1))?;
        self.retrieval(hits, matched, request)
    }

    /// The passages that fit best by words and by meaning; `vector` is the query's. The score is a
    /// cosine where meaning alone decides, otherwise from 0 to 1.
    ///
    /// # Errors
    /// [`IndexError`]
    pub fn search_by_meaning(
        &self,
        request: &RetrieveRequest,
        vector: &[f32],
        ranking: Ranking,
    ) -> Result<Retrieval, IndexError> {
        let (Some(vectors), Some(manifest)) = (&self.vectors, &self.manifest.vectors) else {
            return self.search(request);
        };
        if vector.len() != manifest.dimension {
            let shown = |dimension: usize| format!("{} ({dimension})", manifest.model);
            return Err(IndexError::OtherModel {
                found: shown(manifest.dimension),
                configured: shown(vector.len()),
            });
        }
        let depth = CANDIDATES.max(request.top_k);
        let among = self.among(&request.filters)?;
        let by_meaning = vectors.nearest(vector, depth, among.as_deref());
        let everything = among.map_or(self.searcher.num_docs(), |rows| rows.len() as u64);
        let words_help =
            Script::of(&request.query).is_none_or(|script| manifest.scripts.contains(&script));
        let hits = match ranking {
            Ranking::Words => return self.search(request),
            Ranking::Meaning => by_meaning,
            Ranking::Best if !words_help => by_meaning,
            Ranking::Best | Ranking::Both => {
                let (by_words, _) = self.by_words(request, depth)?;
                fuse(&by_words, &by_meaning, MEANING_WEIGHT)
            }
        };
        let hits = hits.into_iter().take(request.top_k.max(1)).collect();
        self.retrieval(hits, everything, request)
    }

    /// The best `count` passages by words, and how many have any of them.
    fn by_words(
        &self,
        request: &RetrieveRequest,
        count: usize,
    ) -> Result<(Vec<(f32, u32)>, u64), IndexError> {
        let Some(fields) = &self.fields else {
            return Ok((Vec::new(), 0));
        };
        let (required, optional) = fields.postings(&query_terms(&request.query))?;
        let among = self.among(&request.filters)?;
        Ok(rank(required, optional, among.as_deref(), count)?)
    }

    /// The passages that satisfy the filters, in ascending order; `None` without filters.
    fn among(&self, conditions: &Filters) -> Result<Option<Vec<u32>>, IndexError> {
        if conditions.is_empty() {
            return Ok(None);
        }
        // A condition that only excludes needs something to exclude from.
        let everything: Box<dyn Query> = Box::new(AllQuery);
        let mut clauses = vec![(Occur::Must, everything)];
        clauses.extend(filters::clauses(&self.schema, conditions));
        let query = BooleanQuery::new(clauses);
        let weight = query.weight(EnableScoring::disabled_from_searcher(&self.searcher))?;
        let mut rows = Vec::new();
        for segment in self.searcher.segment_readers() {
            weight.for_each_no_score(segment, &mut |docs| rows.extend_from_slice(docs))?;
        }
        Ok(Some(rows))
    }

    fn retrieval(
        &self,
        hits: Vec<(f32, u32)>,
        matched: u64,
        request: &RetrieveRequest,
    ) -> Result<Retrieval, IndexError> {
        let below = |score: f32| request.min_score.is_some_and(|least| score < least);
        let below_threshold = hits.iter().filter(|(score, _)| below(*score)).count() as u64;
        let passages = hits
            .into_iter()
            .filter(|(score, _)| !below(*score))
            .map(|(score, at)| self.passage(score, DocAddress::new(0, at)))
            .collect::<Result<_, _>>()?;
        Ok(Retrieval {
            passages,
            matched,
            below_threshold,
            notes: Vec::new(),
        })
    }

    /// All passages of one document in their order; none when there is no such document.
    ///
    /// # Errors
    /// [`IndexError`] when the files turn out to be damaged.
    pub fn passages_of(&self, document_id: &str) -> Result<Vec<Passage>, IndexError> {
        let term = Term::from_field_text(self.schema.document_id, document_id);
        let query = TermQuery::new(term, IndexRecordOption::Basic);
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
}

/// The fields that words are looked for in.
struct SearchedFields {
    title: SearchedField,
    section: SearchedField,
    content: SearchedField,
}

impl SearchedFields {
    fn open(segment: &SegmentReader, schema: &IndexSchema) -> Result<Self, TantivyError> {
        let field = |field, kept_bytes| SearchedField::open(segment, field, kept_bytes);
        Ok(Self {
            title: field(schema.title, HEADINGS_KEPT_BYTES)?,
            section: field(schema.section, HEADINGS_KEPT_BYTES)?,
            content: field(schema.content, CONTENT_KEPT_BYTES)?,
        })
    }

    /// What a passage must have one of, and what adds to its score.
    ///
    /// The text never meets a query parser: quotes, colons and `AND` are separators and words.
    fn postings(
        &self,
        terms: &QueryTerms,
    ) -> Result<(Vec<Postings<'_>>, Vec<Postings<'_>>), TantivyError> {
        let (mut required, mut optional) = (Vec::new(), Vec::new());
        for word in &terms.words {
            required.extend(self.title.postings(word, TITLE_BOOST)?);
            required.extend(self.section.postings(word, 1.0)?);
            required.extend(self.content.postings(word, 1.0)?);
        }
        // "the" stands in few titles and headings, so one that has it would count as a rare find.
        for word in &terms.small_words {
            required.extend(self.content.postings(word, 1.0)?);
        }
        for character in &terms.characters {
            optional.extend(self.content.postings(character, 1.0)?);
        }
        for form in &terms.forms {
            optional.extend(self.content.postings(form, FORM_BOOST)?);
        }
        Ok((required, optional))
    }
}

fn damaged_list(error: &dyn std::error::Error) -> IndexError {
    IndexError::Damaged(format!("{}: {error}", layout::DOCUMENTS))
}

/// Reads a file from its beginning without moving its cursor, which all threads share.
fn read_whole(file: &File) -> io::Result<Vec<u8>> {
    let size_bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut bytes = vec![0; size_bytes];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
