//! The engine for published indexes: the embedded one over a local copy that follows S3.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use raglan_aws::LazyAccount;
use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::{Clock, Timestamp};
use raglan_rag::backend::{
    Abilities, Backend, BackendError, DocumentPage, DocumentText, EngineCall, Retrieval,
    RetrieveRequest, Statistics,
};
use raglan_rag::embedded::EmbeddedBackend;
use tokio::sync::{OnceCell, watch};
use tokio::time::{Instant, timeout};

use crate::copy::{self, CopyError};
use crate::location::IndexLocation;
use crate::pointer::Pointer;
use crate::reader::{ObjectError, Reader, Small};

/// Searches published indexes.
///
/// The first call for a knowledge base fetches its index; calls that come meanwhile wait for the same
/// download. Later calls never wait: at most every [`PublishedIndexBackend::new`]`(refresh_seconds)` one
/// of them starts a look at the pointer in the background ([`Background`]), and the calls after the new
/// index has come use it. While S3 is away, what was fetched last answers on.
///
/// Must be used inside of a tokio runtime.
#[derive(Clone)]
pub struct PublishedIndexBackend {
    copies: Arc<Copies>,
    embedded: EmbeddedBackend,
}

struct Copies {
    account: Arc<LazyAccount>,
    location: IndexLocation,
    root: PathBuf,
    refresh_seconds: i64,
    clock: Arc<dyn Clock>,
    objects: OnceCell<Reader>,
    known: Mutex<HashMap<KnowledgeBaseId, Known>>,
    background: Background,
}

/// What is known of one knowledge base's copy.
#[derive(Default)]
struct Known {
    /// The pointer that it was made from.
    etag: Option<String>,
    /// Whether there is a copy.
    is_there: bool,
    checked_at: Option<Timestamp>,
    running: Option<Update>,
}

type Update = Shared<BoxFuture<'static, Result<(), CopyError>>>;

impl PublishedIndexBackend {
    /// The engine for what is published at `location` and read with `account`. Copies are kept in the
    /// folder `root`; whether there is something newer is asked after `refresh_seconds` at the earliest.
    /// Nothing is asked before the first call. `over` makes the engine for a folder of indexes.
    #[must_use]
    pub fn new(
        account: Arc<LazyAccount>,
        location: IndexLocation,
        root: PathBuf,
        refresh_seconds: u32,
        clock: Arc<dyn Clock>,
        over: impl FnOnce(PathBuf) -> EmbeddedBackend,
    ) -> Self {
        Self {
            embedded: over(root.clone()),
            copies: Arc::new(Copies {
                account,
                location,
                root,
                refresh_seconds: refresh_seconds.into(),
                clock,
                objects: OnceCell::new(),
                known: Mutex::default(),
                background: Background::default(),
            }),
        }
    }

    /// What goes on after a call has been answered.
    #[must_use]
    pub fn background(&self) -> Background {
        self.copies.background.clone()
    }

    /// Does `work` with what is left of the call's time, once there is a copy.
    async fn with_copy<'a, T, F>(
        &'a self,
        knowledge_base: &'a str,
        call: &'a EngineCall,
        work: impl FnOnce(EngineCall) -> F + Send + 'a,
    ) -> Result<T, BackendError>
    where
        F: Future<Output = Result<T, BackendError>> + Send,
    {
        let Ok(id) = KnowledgeBaseId::parse(knowledge_base) else {
            return Err(BackendError::UnknownKnowledgeBase(
                knowledge_base.to_owned(),
            ));
        };
        let began = Instant::now();
        if let Some(first) = Copies::wanted(&self.copies, &id) {
            // Given up by this caller only: the download goes on for the next one.
            timeout(call.time_left, first)
                .await
                .map_err(|_elapsed| BackendError::TimedOut(call.time_left))??;
        }
        work(EngineCall {
            time_left: call.time_left.saturating_sub(began.elapsed()),
            traceparent: call.traceparent.clone(),
        })
        .await
    }
}

impl Copies {
    /// Starts what is due. Returns what the caller has to wait for.
    fn wanted(this: &Arc<Self>, id: &KnowledgeBaseId) -> Option<Update> {
        let now = this.clock.now();
        let mut known = this.lock();
        let known = known.entry(id.clone()).or_default();
        let is_due = known
            .checked_at
            .is_none_or(|at| now >= at.plus_seconds(this.refresh_seconds));
        if known.running.is_none() && (!known.is_there || is_due) {
            known.checked_at = Some(now);
            known.running = Some(Self::start(Arc::clone(this), id.clone()));
        }
        known.running.clone().filter(|_| !known.is_there)
    }

    /// An update of its own task: it goes on when nobody waits for it any more.
    fn start(this: Arc<Self>, id: KnowledgeBaseId) -> Update {
        let working = this.background.begin();
        let task = tokio::spawn(async move {
            let updated = AssertUnwindSafe(this.update(&id)).catch_unwind().await;
            let updated = updated.unwrap_or(Err(CopyError::Panicked));
            let mut known = this.lock();
            let known = known.entry(id.clone()).or_default();
            known.running = None;
            if let (Err(error), true) = (&updated, known.is_there) {
                tracing::warn!(
                    knowledge_base = %id, %error,
                    "the published index could not be looked at; the one of before answers on"
                );
            }
            drop(working);
            updated
        });
        task.map(|ended| ended.unwrap_or(Err(CopyError::Panicked)))
            .boxed()
            .shared()
    }

    /// Looks at the pointer, and fetches what it names if that is new.
    async fn update(&self, id: &KnowledgeBaseId) -> Result<(), CopyError> {
        let objects = self
            .objects
            .get_or_init(|| async {
                let account = self.account.config().await;
                Reader::new(account, self.location.bucket())
            })
            .await;
        let known_etag = self.lock().get(id).and_then(|known| known.etag.clone());
        let key = self.location.pointer_key(id);
        let read = objects.read_small(&key, known_etag.as_deref()).await;
        let (etag, pointer) = match read {
            Ok(Small::Unchanged) => return Ok(()),
            Ok(Small::Changed { etag, body }) => (etag, body),
            Err(ObjectError::NotFound(_)) => {
                return Err(CopyError::NotPublished {
                    knowledge_base: id.clone(),
                    location: self.location.to_string(),
                });
            }
            Err(error) => return Err(error.into()),
        };
        let pointer = Pointer::read(&pointer)
            .map_err(|error| CopyError::Unusable(format!("{id} in {}: {error}", self.location)))?;
        copy::install(objects, &self.location, id, &pointer, &self.root).await?;
        tracing::info!(
            knowledge_base = %id, archive = %pointer.archive_sha256,
            "a published index was fetched"
        );
        let mut known = self.lock();
        let known = known.entry(id.clone()).or_default();
        known.etag = etag;
        known.is_there = true;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KnowledgeBaseId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for PublishedIndexBackend {
    fn abilities(&self) -> Abilities {
        self.embedded.abilities()
    }

    fn retrieve<'a>(
        &'a self,
        knowledge_base: &'a str,
        request: &'a RetrieveRequest,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Retrieval, BackendError>> {
        let work =
            move |call| async move { self.embedded.retrieve(knowledge_base, request, &call).await };
        Box::pin(self.with_copy(knowledge_base, call, work))
    }

    fn list_documents<'a>(
        &'a self,
        knowledge_base: &'a str,
        position: Option<&'a str>,
        limit: usize,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<DocumentPage, BackendError>> {
        let work = move |call| async move {
            let listed = self
                .embedded
                .list_documents(knowledge_base, position, limit, &call);
            listed.await
        };
        Box::pin(self.with_copy(knowledge_base, call, work))
    }

    fn read_document<'a>(
        &'a self,
        knowledge_base: &'a str,
        document_id: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<DocumentText>, BackendError>> {
        let work = move |call| async move {
            let read = self
                .embedded
                .read_document(knowledge_base, document_id, &call);
            read.await
        };
        Box::pin(self.with_copy(knowledge_base, call, work))
    }

    fn describe<'a>(
        &'a self,
        knowledge_base: &'a str,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Statistics, BackendError>> {
        let work = move |call| async move { self.embedded.describe(knowledge_base, &call).await };
        Box::pin(self.with_copy(knowledge_base, call, work))
    }
}

/// Work that goes on after an answer. Lambda stands still between calls, so somebody should wait for it.
#[derive(Debug, Clone)]
pub struct Background(Arc<watch::Sender<usize>>);

/// One piece of it.
#[derive(Debug)]
struct Working(Background);

impl Default for Background {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Background {
    fn begin(&self) -> Working {
        self.0.send_modify(|running| *running += 1);
        Working(self.clone())
    }

    /// Waits until nothing goes on, at most so long.
    pub async fn idle_within(&self, longest: Duration) {
        // The sender lives as long as `self`.
        let mut running = self.0.subscribe();
        let _ = timeout(longest, running.wait_for(|running| *running == 0)).await;
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.0.send_modify(|running| *running -= 1);
    }
}

#[cfg(test)]
mod tests;
