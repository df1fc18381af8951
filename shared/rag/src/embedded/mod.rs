//! The engine that is part of raglan: full-text search (BM25) in files that lie beside the program.
//!
//! An index is built by `raglan index` and only read here. [`layout`] says where it lies, [`schema`]
//! and [`tokenizer`] what is in it, [`manifest`] who can read it, [`writer`] how it is made, [`open`] how it is searched,
//! `ranking` how words rank.
//! It can have embeddings as well ([`vectors`]), of a model behind [`embedding`].

mod attributes;
mod bm25;
mod filters;
mod frequent;
mod fusion;
mod postings;
mod ranking;
mod read_only_directory;
mod script;
mod window;

pub mod embedding;
pub mod highlight;
pub mod layout;
pub mod manifest;
pub mod open;
pub mod schema;
pub mod tokenizer;
pub mod vectors;
pub mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use embedding::{Embedder, Purpose};
use futures::future::BoxFuture;
use layout::{Generation, Publication};
use open::{IndexError, OpenIndex, Ranking};
use raglan_core::catalog::KnowledgeBaseId;
use tokio::time::Instant;

use crate::backend::{
    Abilities, Backend, BackendError, DocumentPage, DocumentText, EngineCall, Note, Retrieval,
    RetrieveRequest, Statistics,
};

/// The largest `top_k` of the embedded engine.
const TOP_K_LIMIT: usize = 50;
/// How much of a call's time the embedding model may take; the search needs little of it.
const SHARE_OF_THE_MODEL: f32 = 0.7;

/// Searches the indexes below one folder.
///
/// Which generation answers is looked up on every call, so that a new one is used as soon as it is
/// published; an opened generation is kept. Must be used inside a tokio runtime: the work is done on
/// its blocking threads.
#[derive(Clone)]
pub struct EmbeddedBackend {
    indexes: Arc<Indexes>,
    embedder: Option<Arc<dyn Embedder>>,
}

struct Indexes {
    root: PathBuf,
    open: Mutex<HashMap<KnowledgeBaseId, Opened>>,
}

#[derive(Clone)]
struct Opened {
    publication: Publication,
    generation: Generation,
    index: Arc<OpenIndex>,
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
            embedder: None,
        }
    }

    /// The same, with the model that queries are embedded with where an index has vectors.
    #[must_use]
    pub fn with_embedder(self, embedder: Arc<dyn Embedder>) -> Self {
        Self {
            embedder: Some(embedder),
            ..self
        }
    }

    /// Finds passages by a ranking that the caller chooses. Without vectors, or without a model for the
    /// query, it is the one by words.
    ///
    /// While the model does not answer, words decide and the result says so; when they find nothing, it
    /// is an error: what meaning would have found is not known.
    ///
    /// # Errors
    /// As [`Backend::retrieve`].
    pub async fn retrieve_by(
        &self,
        ranking: Ranking,
        knowledge_base: &str,
        request: &RetrieveRequest,
        call: &EngineCall,
    ) -> Result<Retrieval, BackendError> {
        let began = Instant::now();
        let left = || call.time_left.saturating_sub(began.elapsed());
        let embedder = match &self.embedder {
            Some(embedder) if ranking != Ranking::Words => embedder,
            _ => return self.by_words(knowledge_base, request, left()).await,
        };
        let vectors = self
            .with_index(knowledge_base, left(), |index| {
                Ok(index.manifest().vectors.clone())
            })
            .await?;
        let Some(vectors) = vectors else {
            return self.by_words(knowledge_base, request, left()).await;
        };
        if vectors.model != embedder.model() {
            return Err(BackendError::UnusableIndex(format!(
                "the vectors of {knowledge_base} are of the model {:?}, the configured one is {:?}; build it again with `raglan index DIR --kb {knowledge_base}`",
                vectors.model,
                embedder.model()
            )));
        }
        let embedding_call = EngineCall {
            time_left: left().mul_f32(SHARE_OF_THE_MODEL),
            traceparent: call.traceparent.clone(),
        };
        let texts = [request.query.clone()];
        let asked = embedder.embed(&texts, Purpose::Query, &embedding_call);
        let failure = match asked.await.map(|mut vectors| vectors.pop()) {
            Ok(Some(vector)) => {
                let request = request.clone();
                return self
                    .with_index(knowledge_base, left(), move |index| {
                        index.search_by_meaning(&request, &vector, ranking)
                    })
                    .await;
            }
            Ok(None) => BackendError::UnreadableAnswer("no vector for the query".to_owned()),
            Err(error) => error,
        };
        tracing::warn!(
            knowledge_base, error = %failure,
            "the embedding model did not answer; the search was done by words"
        );
        let mut found = self.by_words(knowledge_base, request, left()).await?;
        if found.matched == 0 {
            return Err(BackendError::Unavailable(format!(
                "the embedding model did not answer ({failure}), and words find nothing"
            )));
        }
        found.notes.push(Note::WordsOnly);
        Ok(found)
    }

    async fn by_words(
        &self,
        knowledge_base: &str,
        request: &RetrieveRequest,
        time_left: Duration,
    ) -> Result<Retrieval, BackendError> {
        let request = request.clone();
        self.with_index(knowledge_base, time_left, move |index| {
            index.search(&request)
        })
        .await
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
        let publication = layout::last_publication(&directory)
            .map_err(|error| unusable(&self.root, id, &error.to_string()))?
            .ok_or_else(|| unusable(&self.root, id, "there is none"))?;
        let known = self.lock().get(id).cloned();
        if let Some(known) = known.filter(|known| known.publication == publication) {
            return Ok(known.index);
        }
        // After the look at the publication: one that comes in between is noticed by the next call.
        let mut generation = self.generation(id)?;
        loop {
            let known = self.lock().get(id).cloned();
            if let Some(known) = known.filter(|known| known.generation == generation) {
                return Ok(self.keep(id, publication, generation, known.index));
            }
            // Opened without the lock: one slow folder must not hold up the others.
            let folder = directory.join(generation.as_str());
            match OpenIndex::open(&folder) {
                Ok(index) => return Ok(self.keep(id, publication, generation, Arc::new(index))),
                Err(error) => {
                    // It may have been replaced and removed just now.
                    let latest = self.generation(id)?;
                    if latest == generation {
                        return Err(unusable(&self.root, id, &error.to_string()));
                    }
                    generation = latest;
                }
            }
        }
    }

    fn generation(&self, id: &KnowledgeBaseId) -> Result<Generation, BackendError> {
        layout::current(&layout::knowledge_base_dir(&self.root, id))
            .map_err(|error| unusable(&self.root, id, &error.to_string()))?
            .ok_or_else(|| unusable(&self.root, id, "there is none"))
    }

    fn keep(
        &self,
        id: &KnowledgeBaseId,
        publication: Publication,
        generation: Generation,
        index: Arc<OpenIndex>,
    ) -> Arc<OpenIndex> {
        let opened = Opened {
            publication,
            generation,
            index: Arc::clone(&index),
        };
        self.lock().insert(id.clone(), opened);
        index
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<KnowledgeBaseId, Opened>> {
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
        Box::pin(self.retrieve_by(Ranking::Best, knowledge_base, request, call))
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
        let has_model = self.embedder.is_some();
        Box::pin(
            self.with_index(knowledge_base, call.time_left, move |index| {
                let manifest = index.manifest();
                let vectors = manifest.vectors.as_ref().filter(|_| has_model);
                Ok(Statistics {
                    document_count: Some(manifest.document_count),
                    chunk_count: Some(manifest.chunk_count),
                    sources: manifest.sources.clone(),
                    embedding_model: vectors.map(|vectors| vectors.model.clone()),
                    embedding_dimension: vectors.map(|vectors| vectors.dimension as u64),
                    similarity_threshold: None,
                    top_k_limit: TOP_K_LIMIT as u64,
                    indexed_at: Some(manifest.created_at),
                })
            }),
        )
    }
}
