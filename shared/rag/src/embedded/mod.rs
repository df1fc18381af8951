//! The engine that is part of raglan: full-text search (BM25) in files that lie beside the program.
//!
//! An index is built by `raglan index` and only read here. [`layout`] says where it lies, [`schema`]
//! and [`tokenizer`] what is in it, [`manifest`] who can read it, [`writer`] how it is made, [`open`] how it is searched.

mod attributes;
mod filters;
mod read_only_directory;

pub mod highlight;
pub mod layout;
pub mod manifest;
pub mod open;
pub mod schema;
pub mod tokenizer;
pub mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use layout::Generation;
use open::{IndexError, OpenIndex};
use raglan_core::catalog::KnowledgeBaseId;

use crate::backend::{
    Abilities, Backend, BackendError, DocumentPage, DocumentText, EngineCall, Retrieval,
    RetrieveRequest, Statistics,
};

/// The largest `top_k` of the embedded engine.
const TOP_K_LIMIT: usize = 50;

/// Searches the indexes below one folder.
///
/// Which generation answers is looked up on every call, so that a new one is used as soon as it is
/// published; an opened generation is kept. Must be used inside a tokio runtime: the work is done on
/// its blocking threads.
#[derive(Clone)]
pub struct EmbeddedBackend {
    indexes: Arc<Indexes>,
}

struct Indexes {
    root: PathBuf,
    open: Mutex<HashMap<KnowledgeBaseId, (Generation, Arc<OpenIndex>)>>,
}

impl EmbeddedBackend {
    /// The engine for the indexes below `index_root`. Nothing is read yet.
    #[must_use]
    pub fn new(index_root: impl Into<PathBuf>) -> Self {
        let open = Mutex::new(HashMap::new());
        Self {
            indexes: Arc::new(Indexes {
                root: index_root.into(),
                open,
            }),
        }
    }

    /// Does `work` with the index on a blocking thread, within `time_left`.
    async fn with_index<T: Send + 'static>(
        &self,
        knowledge_base: &str,
        time_left: Duration,
        work: impl FnOnce(&OpenIndex) -> Result<T, IndexError> + Send + 'static,
    ) -> Result<T, BackendError> {
        let Ok(id) = KnowledgeBaseId::parse(knowledge_base) else {
            return Err(BackendError::UnknownKnowledgeBase(
                knowledge_base.to_owned(),
            ));
        };
        let indexes = Arc::clone(&self.indexes);
        let task = tokio::task::spawn_blocking(move || {
            let index = indexes.current(&id)?;
            work(&index).map_err(|error| unusable(&indexes.root, &id, &error.to_string()))
        });
        let joined = tokio::time::timeout(time_left, task)
            .await
            .map_err(|_| BackendError::TimedOut(time_left))?;
        // The library panics on some damaged files; that must stay one failed call.
        joined.unwrap_or_else(|panic| {
            tracing::error!(%panic, knowledge_base, "searching the embedded index panicked");
            Err(BackendError::UnusableIndex(format!(
                "the search in {knowledge_base} broke off; rebuild it with `raglan index DIR --kb {knowledge_base}`"
            )))
        })
    }
}

impl Indexes {
    fn current(&self, id: &KnowledgeBaseId) -> Result<Arc<OpenIndex>, BackendError> {
        let directory = layout::knowledge_base_dir(&self.root, id);
        let generation = layout::current(&directory)
            .map_err(|error| unusable(&self.root, id, &error.to_string()))?
            .ok_or_else(|| unusable(&self.root, id, "there is none"))?;
        if let Some((known, index)) = self.lock().get(id)
            && *known == generation
        {
            return Ok(Arc::clone(index));
        }
        // Opened without the lock: one slow folder must not hold up the others.
        let index = OpenIndex::open(&directory.join(generation.as_str()))
            .map(Arc::new)
            .map_err(|error| unusable(&self.root, id, &error.to_string()))?;
        self.lock()
            .insert(id.clone(), (generation, Arc::clone(&index)));
        Ok(index)
    }

    fn lock(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<KnowledgeBaseId, (Generation, Arc<OpenIndex>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unusable(root: &Path, id: &KnowledgeBaseId, why: &str) -> BackendError {
    BackendError::UnusableIndex(format!(
        "{id} in {}: {why}; build it with `raglan index DIR --kb {id}`",
        root.display()
    ))
}

impl Backend for EmbeddedBackend {
    fn abilities(&self) -> Abilities {
        Abilities {
            top_k_limit: TOP_K_LIMIT,
            query_max_chars: None,
            tells_metadata: true,
            lists_documents: true,
            reads_documents: true,
        }
    }

    fn retrieve<'a>(
        &'a self,
        knowledge_base: &'a str,
        request: &'a RetrieveRequest,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Retrieval, BackendError>> {
        let owned = request.clone();
        Box::pin(
            self.with_index(knowledge_base, call.time_left, move |index| {
                index.search(&owned)
            }),
        )
    }

    fn list_documents<'a>(
        &'a self,
        knowledge_base: &'a str,
        position: Option<&'a str>,
        limit: usize,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<DocumentPage, BackendError>> {
        let after = position.map(str::to_owned);
        Box::pin(
            self.with_index(knowledge_base, call.time_left, move |index| {
                let documents = index.documents()?;
                let start = after.map_or(0, |after| {
                    documents.partition_point(|document| document.id <= after)
                });
                let rest = &documents[start..];
                let documents: Vec<_> = rest.iter().take(limit).cloned().collect();
                let next = documents.last().filter(|_| rest.len() > limit);
                Ok(DocumentPage {
                    next: next.map(|last| last.id.clone()),
                    documents,
                })
            }),
        )
    }

    fn read_document<'a>(
        &'a self,
        knowledge_base: &'a str,
        document_id: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<DocumentText>, BackendError>> {
        let document_id = document_id.to_owned();
        Box::pin(
            self.with_index(knowledge_base, call.time_left, move |index| {
                let passages = index.passages_of(&document_id)?;
                let title = passages.first().map(|passage| passage.title.clone());
                let texts: Vec<String> = passages
                    .into_iter()
                    .map(|passage| passage.content)
                    .collect();
                Ok(title.map(|title| DocumentText {
                    title,
                    text: texts.join("\n\n"),
                }))
            }),
        )
    }

    fn describe<'a>(
        &'a self,
        knowledge_base: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Statistics, BackendError>> {
        Box::pin(self.with_index(knowledge_base, call.time_left, |index| {
            let manifest = index.manifest();
            Ok(Statistics {
                document_count: Some(manifest.document_count),
                chunk_count: Some(manifest.chunk_count),
                sources: manifest.sources.clone(),
                embedding_model: None,
                embedding_dimension: None,
                similarity_threshold: None,
                top_k_limit: TOP_K_LIMIT as u64,
                indexed_at: Some(manifest.created_at),
            })
        }))
    }
}
