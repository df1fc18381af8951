//! Rows for passages, from the index that answers now or from the model, a batch at a time.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use raglan_rag::backend::{BackendError, EngineCall};
use raglan_rag::embedded::embedding::{Embedder, Purpose};
use raglan_rag::embedded::layout;
use raglan_rag::embedded::manifest::Manifest;
use raglan_rag::embedded::vectors::{KnownRows, Row, TextKey};
use raglan_rag::embedded::writer::{IndexWriter, NewDocument, NewPassage};
use tokio::runtime::Handle;

use crate::build::IndexError;

/// Texts of one request.
const BATCH_TEXTS: usize = 32;
/// How long the model may take for a batch, repetitions included.
const BATCH_TIME: Duration = Duration::from_mins(5);

/// A model, and the runtime on which it is asked.
#[derive(Clone)]
pub struct Embedding {
    embedder: Arc<dyn Embedder>,
    runtime: Handle,
}

impl Embedding {
    /// Asks `embedder` on `runtime`. Whoever builds an index with it blocks meanwhile, and must not do so
    /// on a thread of that runtime's tasks.
    #[must_use]
    pub const fn new(embedder: Arc<dyn Embedder>, runtime: Handle) -> Self {
        Self { embedder, runtime }
    }

    fn rows(&self, texts: &[String]) -> Result<Vec<Row>, BackendError> {
        let call = EngineCall::within(BATCH_TIME);
        let vectors = self
            .runtime
            .block_on(self.embedder.embed(texts, Purpose::Passage, &call))?;
        let rows: Option<Vec<Row>> = vectors.iter().map(|vector| Row::of(vector)).collect();
        rows.filter(|rows| rows.len() == texts.len())
            .ok_or_else(|| {
                BackendError::UnreadableAnswer("a vector without a direction".to_owned())
            })
    }
}

/// Documents on their way into an index with vectors.
pub(crate) struct Batches<'a> {
    embedding: &'a Embedding,
    known: KnownRows,
    waiting: Vec<NewDocument>,
    /// Texts that no row is known of, of the waiting documents.
    missing: Vec<(TextKey, String)>,
    /// How many texts the model was asked for.
    pub embedded: u64,
}

impl<'a> Batches<'a> {
    /// Takes rows over from the index in `directory`, the knowledge base's folder.
    pub fn start(embedding: &'a Embedding, directory: &Path) -> Self {
        let model = embedding.embedder.model();
        let current = layout::current(directory).ok().flatten();
        let known = current.map(|generation| {
            let folder = directory.join(generation.as_str());
            let manifest = Manifest::read(&folder).ok();
            let vectors = manifest
                .as_ref()
                .and_then(|manifest| manifest.vectors.as_ref());
            KnownRows::open(&folder, vectors, model)
        });
        Self {
            embedding,
            known: known.unwrap_or_default(),
            waiting: Vec::new(),
            missing: Vec::new(),
            embedded: 0,
        }
    }

    pub fn model(&self) -> &str {
        self.embedding.embedder.model()
    }

    /// Takes a document in, now or with those that come next.
    pub fn add(&mut self, new: NewDocument, writer: &mut IndexWriter) -> Result<(), IndexError> {
        for passage in &new.passages {
            let (key, text) = self.text(&new, passage);
            if self.known.get(key).is_none() {
                self.missing.push((key, text));
            }
        }
        self.waiting.push(new);
        if self.missing.len() >= BATCH_TEXTS || self.waiting.len() >= BATCH_TEXTS {
            self.write(writer)?;
        }
        Ok(())
    }

    /// Writes what waits.
    pub fn write(&mut self, writer: &mut IndexWriter) -> Result<(), IndexError> {
        let mut made: HashMap<TextKey, Row> = HashMap::new();
        let mut missing = std::mem::take(&mut self.missing);
        missing.dedup_by_key(|(key, _)| *key);
        for batch in missing.chunks(BATCH_TEXTS) {
            let texts: Vec<String> = batch.iter().map(|(_, text)| text.clone()).collect();
            let rows = self.embedding.rows(&texts).map_err(IndexError::Embedding)?;
            self.embedded += rows.len() as u64;
            made.extend(batch.iter().map(|(key, _)| *key).zip(rows));
        }
        for new in std::mem::take(&mut self.waiting) {
            let row = |passage| {
                let (key, _) = self.text(&new, passage);
                let row = made.get(&key).or_else(|| self.known.get(key))?;
                Some((key, row.clone()))
            };
            let rows: Vec<(TextKey, Row)> = new.passages.iter().filter_map(row).collect();
            writer.add_with_rows(new, &rows)?;
        }
        Ok(())
    }

    /// What is embedded of a passage: it alone does not say what it is about.
    fn text(&self, new: &NewDocument, passage: &NewPassage) -> (TextKey, String) {
        let title = &new.document.title;
        let section = passage.section.as_deref().unwrap_or_default();
        let lines = [title.as_str(), section, passage.content.as_str()];
        let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
        let text = lines.join("\n");
        let prefix = self.embedding.embedder.prefix(Purpose::Passage);
        (TextKey::of(self.model(), &format!("{prefix}{text}")), text)
    }
}
