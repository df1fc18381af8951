//! An engine that does what a test tells it to.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use raglan_core::clock::Timestamp;
use raglan_rag::backend::{
    Abilities, Backend, BackendError, Document, DocumentPage, DocumentText, EngineCall,
    FilterAbilities, Job, Note, Passage, Retrieval, RetrieveRequest, Statistics,
};

use super::world::NOW;

/// What the engine does when it is asked about a knowledge base.
#[derive(Debug, Clone)]
pub enum Behaviour {
    /// Gives these passages, whatever is asked.
    Passages(Vec<Passage>),
    /// Gives these passages, and says that it did something otherwise than asked.
    Noted(Vec<Passage>, Vec<Note>),
    /// Lists the documents of these passages in their order, at most so many at a time.
    InPages(Vec<Passage>, usize),
    /// Finds nothing.
    Empty,
    /// Panics with a text that nobody may see.
    Panics,
    /// Sleeps longer than anybody waits.
    Hangs,
    /// Cannot be reached; the cause holds things that nobody may see.
    Unavailable(String),
    /// Cannot apply a filter.
    UnsupportedFilter(&'static str),
}

/// The engine of kind [`ScriptedEngine::KIND`]. Without an order it finds nothing.
#[derive(Debug)]
pub struct ScriptedEngine {
    abilities: Abilities,
    filters: FilterAbilities,
    behaviours: Mutex<HashMap<String, Behaviour>>,
    jobs: Mutex<HashMap<String, (String, Job)>>,
    requests: Mutex<Vec<RetrieveRequest>>,
    traceparents: Mutex<Vec<Option<String>>>,
    calls: AtomicUsize,
}

impl ScriptedEngine {
    /// The name of this kind of engine in the catalogue.
    pub const KIND: &'static str = "scripted";
    /// The name of the kind that can do little.
    pub const POOR_KIND: &'static str = "poor";

    /// An engine that can do everything.
    pub fn able() -> Self {
        Self::with(
            Abilities {
                top_k_limit: 50,
                query_max_chars: None,
                tells_metadata: true,
                lists_documents: true,
                reads_documents: true,
            },
            FilterAbilities::ALL,
        )
    }

    /// An engine that gives two passages, tells no metadata and lists nothing.
    pub fn poor() -> Self {
        Self::with(
            Abilities {
                top_k_limit: 2,
                query_max_chars: Some(250),
                tells_metadata: false,
                lists_documents: false,
                reads_documents: false,
            },
            FilterAbilities {
                fields: &["domain"],
                operators: &[],
            },
        )
    }

    fn with(abilities: Abilities, filters: FilterAbilities) -> Self {
        Self {
            abilities,
            filters,
            behaviours: Mutex::default(),
            jobs: Mutex::default(),
            requests: Mutex::default(),
            traceparents: Mutex::default(),
            calls: AtomicUsize::new(0),
        }
    }

    /// From now on this job indexes the knowledge base.
    pub fn run_job(&self, knowledge_base: &str, job_id: &str, job: Job) {
        let entry = (job_id.to_owned(), job);
        self.jobs
            .lock()
            .unwrap()
            .insert(knowledge_base.to_owned(), entry);
    }

    /// From now on the engine does this for the knowledge base.
    pub fn order(&self, knowledge_base: &str, behaviour: Behaviour) {
        self.behaviours
            .lock()
            .unwrap()
            .insert(knowledge_base.to_owned(), behaviour);
    }

    /// How often the engine was asked anything.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// The searches that it was asked for.
    pub fn requests(&self) -> Vec<RetrieveRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// The `traceparent` of each search.
    pub fn traceparents(&self) -> Vec<Option<String>> {
        self.traceparents.lock().unwrap().clone()
    }

    async fn obey(&self, knowledge_base: &str) -> Result<Vec<Passage>, BackendError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let behaviour = self.behaviours.lock().unwrap().get(knowledge_base).cloned();
        match behaviour.unwrap_or(Behaviour::Empty) {
            Behaviour::Passages(passages)
            | Behaviour::Noted(passages, _)
            | Behaviour::InPages(passages, _) => Ok(passages),
            Behaviour::Empty => Ok(Vec::new()),
            Behaviour::Panics => panic!("a panic with a secret-of-the-engine in it"),
            Behaviour::Hangs => {
                tokio::time::sleep(Duration::from_hours(1)).await;
                Ok(Vec::new())
            }
            Behaviour::Unavailable(cause) => Err(BackendError::Unavailable(cause)),
            Behaviour::UnsupportedFilter(name) => {
                Err(BackendError::UnsupportedFilter(name.to_owned()))
            }
        }
    }
}

impl Backend for ScriptedEngine {
    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn filters(&self) -> FilterAbilities {
        self.filters
    }

    fn retrieve<'a>(
        &'a self,
        knowledge_base: &'a str,
        request: &'a RetrieveRequest,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Retrieval, BackendError>> {
        let traceparent = call.traceparent.clone();
        self.traceparents.lock().unwrap().push(traceparent);
        self.requests.lock().unwrap().push(request.clone());
        Box::pin(async move {
            let notes = match self.behaviours.lock().unwrap().get(knowledge_base) {
                Some(Behaviour::Noted(_, notes)) => notes.clone(),
                _ => Vec::new(),
            };
            let passages = self.obey(knowledge_base).await?;
            Ok(Retrieval {
                matched: passages.len() as u64,
                below_threshold: 0,
                notes,
                passages,
            })
        })
    }

    fn list_documents<'a>(
        &'a self,
        knowledge_base: &'a str,
        after: Option<&'a str>,
        limit: usize,
        _call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<DocumentPage, BackendError>> {
        let most = match self.behaviours.lock().unwrap().get(knowledge_base) {
            Some(Behaviour::InPages(_, most)) => *most,
            _ => usize::MAX,
        };
        Box::pin(async move {
            let passages = self.obey(knowledge_base).await?;
            let start = match after {
                None => 0,
                Some(position) => position.strip_prefix("row ").unwrap().parse().unwrap(),
            };
            let end = passages.len().min(start + limit.min(most));
            Ok(DocumentPage {
                documents: passages[start..end].iter().map(document).collect(),
                next: (end < passages.len()).then(|| format!("row {end}")),
            })
        })
    }

    fn read_document<'a>(
        &'a self,
        knowledge_base: &'a str,
        document_id: &'a str,
        _call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<DocumentText>, BackendError>> {
        Box::pin(async move {
            let passages = self.obey(knowledge_base).await?;
            let found = passages.into_iter().find(|p| p.document_id == document_id);
            Ok(found.map(|passage| DocumentText {
                title: passage.title,
                text: passage.content,
            }))
        })
    }

    fn describe<'a>(
        &'a self,
        knowledge_base: &'a str,
        _call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Statistics, BackendError>> {
        Box::pin(async move {
            let passages = self.obey(knowledge_base).await?;
            Ok(Statistics {
                document_count: Some(passages.len() as u64),
                chunk_count: Some(passages.len() as u64),
                sources: vec!["a script".to_owned()],
                top_k_limit: 50,
                indexed_at: Some(now()),
                ..Statistics::default()
            })
        })
    }

    fn job<'a>(
        &'a self,
        knowledge_base: &'a str,
        job_id: &'a str,
        _call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<Job>, BackendError>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let jobs = self.jobs.lock().unwrap();
        let job = jobs.get(knowledge_base).filter(|(id, _)| id == job_id);
        let job = job.map(|(_, job)| job.clone());
        Box::pin(std::future::ready(Ok(job)))
    }

    fn running_job<'a>(
        &'a self,
        knowledge_base: &'a str,
        _call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Option<String>, BackendError>> {
        let jobs = self.jobs.lock().unwrap();
        let id = jobs.get(knowledge_base).map(|(id, _)| id.clone());
        Box::pin(std::future::ready(Ok(id)))
    }
}

fn now() -> Timestamp {
    Timestamp::parse(NOW).unwrap()
}

fn document(passage: &Passage) -> Document {
    Document {
        id: passage.document_id.clone(),
        filename: passage.filename.clone(),
        title: passage.title.clone(),
        format: "markdown".to_owned(),
        size_bytes: passage.content.len() as u64,
        status: "indexed".to_owned(),
        chunk_count: 1,
        created_at: now(),
        updated_at: now(),
        guard_findings: std::collections::BTreeMap::new(),
    }
}

/// The passage number `n` of a document of its own.
pub fn passage(n: u16, content: &str) -> Passage {
    Passage {
        id: format!("passage-{n}"),
        document_id: format!("document-{n}"),
        chunk_index: 0,
        // Exact in binary, so that it is written the same way everywhere.
        score: 8.0 - f32::from(n) / 8.0,
        content: content.to_owned(),
        title: format!("Title {n}"),
        filename: format!("folder/file-{n}.md"),
        uri: Some(format!("https://wiki.example/{n}")),
        section: Some("Chapter › Section".to_owned()),
        page: Some(3),
        updated_at: Some(now()),
        metadata: BTreeMap::from([("domain".to_owned(), "hr".into())]),
    }
}
