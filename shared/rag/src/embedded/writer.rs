//! Writes the files of one generation.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tantivy::directory::MmapDirectory;
use tantivy::indexer::SingleSegmentIndexWriter;
use tantivy::{Index, TantivyDocument};

use super::attributes::terms_of_metadata;
use super::layout;
use super::manifest::{FORMAT_VERSION, Manifest, tantivy_version};
use super::schema::{IndexSchema, StoredPassage};
use super::script::ScriptCount;
use super::tokenizer;
use super::vectors::{QUANTISATION, Row, TextKey, VectorsManifest, VectorsWriter};
use crate::backend::Document;

/// Memory for the terms' hash table; it decides the table's first size, not how much fits.
const TABLE_BUDGET_BYTES: usize = 64 << 20;

/// A document on its way into the index.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDocument {
    /// The entry in the list of documents. `chunk_count` is set by the writer.
    pub document: Document,
    /// Where a person can open the document.
    pub uri: Option<String>,
    /// What the document says of itself; `domain` and `document_type` are names among others.
    pub metadata: BTreeMap<String, Value>,
    /// Its passages, in order; none for a document that could not be read.
    pub passages: Vec<NewPassage>,
}

/// A passage on its way into the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPassage {
    /// Identifier, unique in the knowledge base.
    pub id: String,
    /// The text.
    pub content: String,
    /// The headings above it, outermost first, joined with ` › `.
    pub section: Option<String>,
    /// The page, from 1.
    pub page: Option<u64>,
}

/// Why a generation could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A file or folder could not be written.
    #[error("cannot write {path}: {source}")]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// tantivy could not take a passage in, or not write its files.
    #[error("the full-text index could not be written: {0}")]
    Index(#[from] tantivy::TantivyError),
    /// A file of ours could not be put into JSON.
    #[error("the index's list of documents could not be written: {0}")]
    Json(#[from] serde_json::Error),
}

/// Writes one generation into a folder. Nothing is complete before [`IndexWriter::finish`].
pub struct IndexWriter {
    directory: PathBuf,
    schema: IndexSchema,
    // One segment: opening is cheap, and equal input gives equal order.
    segment: SingleSegmentIndexWriter,
    documents: Vec<Document>,
    chunk_count: u64,
    vectors: Option<Embedded>,
}

/// The vectors on their way, and the model that makes them.
struct Embedded {
    writer: VectorsWriter,
    model: String,
    scripts: ScriptCount,
}

impl IndexWriter {
    /// Starts a generation in `directory`, which must exist and be empty.
    ///
    /// # Errors
    /// [`WriteError`] when nothing can be written there.
    pub fn create(directory: &Path) -> Result<Self, WriteError> {
        let schema = IndexSchema::new();
        let files = MmapDirectory::open(directory).map_err(tantivy::TantivyError::from)?;
        let segment = Index::builder()
            .schema(schema.schema.clone())
            .tokenizers(IndexSchema::tokenizers())
            .single_segment_index_writer(files, TABLE_BUDGET_BYTES)?;
        Ok(Self {
            directory: directory.to_owned(),
            schema,
            segment,
            documents: Vec::new(),
            chunk_count: 0,
            vectors: None,
        })
    }

    /// The same with vectors of this model: every document is taken in by [`IndexWriter::add_with_rows`]
    /// then.
    ///
    /// # Errors
    /// [`WriteError`] when nothing can be written there.
    pub fn with_vectors(mut self, model: &str) -> Result<Self, WriteError> {
        self.vectors = Some(Embedded {
            writer: VectorsWriter::create(&self.directory).map_err(|source| self.io(source))?,
            model: model.to_owned(),
            scripts: ScriptCount::default(),
        });
        Ok(self)
    }

    /// Takes a document in with a row for each of its passages.
    ///
    /// # Errors
    /// [`WriteError`]; the generation is lost then.
    pub fn add_with_rows(
        &mut self,
        new: NewDocument,
        rows: &[(TextKey, Row)],
    ) -> Result<(), WriteError> {
        if let Some(vectors) = &mut self.vectors {
            for passage in &new.passages {
                vectors.scripts.add(&passage.content);
            }
            let written = rows
                .iter()
                .try_for_each(|(key, row)| vectors.writer.add(*key, row));
            written.map_err(|source| self.io(source))?;
        }
        self.add(new)
    }

    fn io(&self, source: io::Error) -> WriteError {
        WriteError::Io {
            path: self.directory.clone(),
            source,
        }
    }

    /// Takes a document in.
    ///
    /// # Errors
    /// [`WriteError`] when its passages cannot be written; the generation is lost then.
    pub fn add(&mut self, new: NewDocument) -> Result<(), WriteError> {
        let mut document = new.document;
        document.chunk_count = 0;
        for passage in new.passages {
            let stored = StoredPassage {
                id: passage.id,
                document_id: document.id.clone(),
                chunk_index: document.chunk_count,
                content: passage.content,
                title: document.title.clone(),
                filename: document.filename.clone(),
                uri: new.uri.clone(),
                section: passage.section,
                page: passage.page,
                updated_at: Some(document.updated_at),
                metadata: new.metadata.clone(),
            };
            self.segment.add_document(self.entry(&stored)?)?;
            document.chunk_count += 1;
        }
        self.chunk_count += document.chunk_count;
        self.documents.push(document);
        Ok(())
    }

    /// Whether no passage was taken in so far.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.chunk_count == 0
    }

    fn entry(&self, passage: &StoredPassage) -> Result<TantivyDocument, serde_json::Error> {
        let schema = &self.schema;
        let mut entry = TantivyDocument::new();
        entry.add_text(schema.document_id, &passage.document_id);
        entry.add_text(schema.title, &passage.title);
        entry.add_text(schema.content, &passage.content);
        if let Some(section) = &passage.section {
            entry.add_text(schema.section, section);
        }
        for term in terms_of_metadata(&passage.metadata) {
            entry.add_text(schema.attribute, term);
        }
        if let Some(updated_at) = passage.updated_at {
            entry.add_i64(schema.updated_at_ms, updated_at.epoch_ms());
        }
        entry.add_text(schema.passage, serde_json::to_string(passage)?);
        Ok(entry)
    }

    /// Writes everything, the manifest last, and makes it last through a power cut.
    ///
    /// # Errors
    /// [`WriteError`]; the folder holds no usable generation then.
    pub fn finish(
        mut self,
        knowledge_base: &KnowledgeBaseId,
        sources: Vec<String>,
        created_at: Timestamp,
    ) -> Result<Manifest, WriteError> {
        let vectors = match self.vectors.take() {
            Some(vectors) => {
                let finished = vectors.writer.finish();
                let dimension = finished.map_err(|source| self.io(source))?;
                dimension.map(|dimension| VectorsManifest {
                    model: vectors.model,
                    dimension,
                    quantisation: QUANTISATION.to_owned(),
                    scripts: vectors.scripts.common(),
                })
            }
            None => None,
        };
        self.segment.finalize()?;
        self.documents.sort_by(|a, b| a.id.cmp(&b.id));
        let indexed = self
            .documents
            .iter()
            .filter(|document| document.chunk_count > 0)
            .count();
        write_json(&self.directory.join(layout::DOCUMENTS), &self.documents)?;
        let manifest = Manifest {
            format_version: FORMAT_VERSION,
            tantivy_version: tantivy_version(),
            tokenizer: tokenizer::NAME.to_owned(),
            knowledge_base: knowledge_base.to_string(),
            document_count: indexed as u64,
            chunk_count: self.chunk_count,
            sources,
            created_at,
            vectors,
            files: file_sizes(&self.directory).map_err(|source| WriteError::Io {
                path: self.directory.clone(),
                source,
            })?,
        };
        write_json(&self.directory.join(layout::MANIFEST), &manifest)?;
        layout::sync_directory(&self.directory).map_err(|source| WriteError::Io {
            path: self.directory.clone(),
            source,
        })?;
        Ok(manifest)
    }
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), WriteError> {
    let json = serde_json::to_vec(value)?;
    File::create(path)
        .and_then(|mut file| {
            file.write_all(&json)?;
            file.sync_all()
        })
        .map_err(|source| WriteError::Io {
            path: path.to_owned(),
            source,
        })
}

fn file_sizes(directory: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut sizes = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // tantivy's lock files and its list of files to collect are of no use to a reader.
        if name.starts_with('.') {
            fs::remove_file(entry.path())?;
        } else {
            sizes.insert(name, entry.metadata()?.len());
        }
    }
    Ok(sizes)
}
