//! What there is: knowledge bases, their data sources, documents and ingestion jobs.

use aws_sdk_bedrockagent::operation::get_ingestion_job::GetIngestionJobInput;
use aws_sdk_bedrockagent::operation::list_data_sources::ListDataSourcesInput;
use aws_sdk_bedrockagent::operation::list_ingestion_jobs::ListIngestionJobsInput;
use aws_sdk_bedrockagent::operation::list_knowledge_base_documents::ListKnowledgeBaseDocumentsInput;
use aws_sdk_bedrockagent::operation::list_knowledge_bases::ListKnowledgeBasesInput;
use aws_sdk_bedrockagent::types::{
    CustomDocumentIdentifier, DocumentIdentifier, DocumentStatus, IngestionJob, IngestionJobSortBy,
    IngestionJobSortByAttribute, IngestionJobStatus, IngestionJobSummary,
    KnowledgeBaseDocumentDetail, KnowledgeBaseStatus, S3Location, SortOrder,
    VectorKnowledgeBaseConfiguration,
};
use aws_smithy_types::DateTime;
use futures::future::join_all;
use raglan_core::clock::Timestamp;
use raglan_core::task::TaskStatus;
use raglan_engines::call::CallError;
use raglan_rag::backend::{
    BackendError, Document, DocumentPage, EngineCall, EngineKnowledgeBase, Job, KnowledgeBasePage,
    Statistics,
};

use crate::backend::{BedrockBackend, Reference, TOP_K_MAX, is_id};
use crate::exchange::Deadline;
use crate::passages::file_name;

/// Largest page that the lists take.
const PAGE_MAX: usize = 1_000;
/// Data sources that are looked at; Bedrock's own quota is far lower.
const SOURCES_MAX: usize = 50;
/// Between the identifier of a data source and what follows it.
const SEPARATOR: char = '/';

/// A data source.
struct Source {
    id: String,
    name: String,
}

impl BedrockBackend {
    pub(crate) async fn knowledge_base_page(
        &self,
        position: Option<&str>,
        limit: usize,
        call: &EngineCall,
    ) -> Result<KnowledgeBasePage, BackendError> {
        let bounds = Deadline::of(call, self.limits).bounds()?;
        let request = ListKnowledgeBasesInput::builder()
            .max_results(page_size(limit))
            .set_next_token(position.map(ToOwned::to_owned))
            .build();
        let client = self.connection.agent().await;
        let sent = client.send_within(request, &bounds);
        let guard = &self.connection.agent_guard;
        let page = guard.run("ListKnowledgeBases", bounds.time, sent);
        let page = page.await?;
        let listed = page.knowledge_base_summaries.into_iter();
        Ok(KnowledgeBasePage {
            knowledge_bases: listed
                .map(|summary| EngineKnowledgeBase {
                    id: summary.knowledge_base_id,
                    name: summary.name,
                    description: summary.description,
                    document_count: None,
                })
                .collect(),
            next: page.next_token,
        })
    }

    /// The data sources; only the one that the reference names, without asking.
    async fn sources(
        &self,
        reference: &Reference<'_>,
        deadline: &Deadline,
    ) -> Result<Vec<Source>, CallError> {
        if let Some(id) = reference.data_source {
            return Ok(vec![Source {
                id: id.to_owned(),
                name: id.to_owned(),
            }]);
        }
        let mut sources = Vec::new();
        let mut token = None;
        loop {
            let bounds = deadline.bounds()?;
            let request = ListDataSourcesInput::builder()
                .knowledge_base_id(reference.knowledge_base)
                .max_results(page_size(SOURCES_MAX))
                .set_next_token(token)
                .build();
            let client = self.connection.agent().await;
            let sent = client.send_within(request, &bounds);
            let guard = &self.connection.agent_guard;
            let page = guard.run("ListDataSources", bounds.time, sent);
            let page = page.await?;
            let listed = page.data_source_summaries.into_iter();
            sources.extend(listed.map(|summary| Source {
                id: summary.data_source_id,
                name: summary.name,
            }));
            token = page.next_token;
            if token.is_none() || sources.len() >= SOURCES_MAX {
                return Ok(sources);
            }
        }
    }

    /// A page of the documents of one data source; the position names it and Bedrock's own token.
    pub(crate) async fn document_page(
        &self,
        knowledge_base: &str,
        position: Option<&str>,
        limit: usize,
        call: &EngineCall,
    ) -> Result<DocumentPage, BackendError> {
        let reference = Reference::parse(knowledge_base)?;
        let deadline = Deadline::of(call, self.limits);
        let sources = self.sources(&reference, &deadline).await;
        let sources = sources.map_err(|error| error.about(knowledge_base))?;
        let (first, mut token) = match position {
            None => (0, None),
            Some(position) => {
                let (id, token) = position.split_once(SEPARATOR).unwrap_or((position, ""));
                let Some(first) = sources.iter().position(|source| source.id == id) else {
                    // The source was deleted meanwhile: what came behind it cannot be told.
                    return Ok(DocumentPage::default());
                };
                (first, (!token.is_empty()).then(|| token.to_owned()))
            }
        };
        let mut is_any_listed = position.is_some();
        for (index, source) in sources.iter().enumerate().skip(first) {
            let is_continued = token.is_some();
            let asked = self.documents_of(&reference, source, token.take(), limit, &deadline);
            let (documents, next) = match asked.await {
                // Only sources of the types S3 and CUSTOM can be listed.
                Err(CallError::Rejected { message, .. }) if !is_continued => {
                    tracing::debug!(
                        knowledge_base,
                        source = source.id,
                        message,
                        "a data source cannot be listed"
                    );
                    continue;
                }
                page => page.map_err(|error| error.about(knowledge_base))?,
            };
            is_any_listed = true;
            if documents.is_empty() && next.is_none() {
                continue;
            }
            let next = next.map(|token| format!("{}{SEPARATOR}{token}", source.id));
            let behind = || sources.get(index + 1).map(|source| source.id.clone());
            return Ok(DocumentPage {
                documents,
                next: next.or_else(behind),
            });
        }
        if is_any_listed || sources.is_empty() {
            Ok(DocumentPage::default())
        } else {
            Err(BackendError::Unsupported("list documents"))
        }
    }

    async fn documents_of(
        &self,
        reference: &Reference<'_>,
        source: &Source,
        token: Option<String>,
        limit: usize,
        deadline: &Deadline,
    ) -> Result<(Vec<Document>, Option<String>), CallError> {
        let bounds = deadline.bounds()?;
        let request = ListKnowledgeBaseDocumentsInput::builder()
            .knowledge_base_id(reference.knowledge_base)
            .data_source_id(&source.id)
            .max_results(page_size(limit))
            .set_next_token(token)
            .build();
        let client = self.connection.agent().await;
        let sent = client.send_within(request, &bounds);
        let guard = &self.connection.agent_guard;
        let page = guard.run("ListKnowledgeBaseDocuments", bounds.time, sent);
        let page = page.await?;
        let documents = page.document_details.iter().filter_map(document).collect();
        Ok((documents, page.next_token))
    }

    pub(crate) async fn statistics(
        &self,
        knowledge_base: &str,
        call: &EngineCall,
    ) -> Result<Statistics, BackendError> {
        let reference = Reference::parse(knowledge_base)?;
        let deadline = Deadline::of(call, self.limits);
        let (described, sources) = tokio::join!(
            self.get_knowledge_base(reference.knowledge_base, &deadline),
            self.sources(&reference, &deadline),
        );
        let described = described.map_err(|error| error.about(knowledge_base))?;
        if !matches!(
            described.status,
            KnowledgeBaseStatus::Active | KnowledgeBaseStatus::Updating
        ) {
            let status = described.status.as_str();
            tracing::warn!(knowledge_base, status, "a knowledge base is not active");
        }
        let sources = sources.unwrap_or_else(|error| {
            tracing::warn!(knowledge_base, %error, "the data sources cannot be listed");
            Vec::new()
        });
        let newest = self.newest_jobs(&reference, &sources, &deadline).await;
        let indexed_at = newest
            .iter()
            .filter(|job| job.status == IngestionJobStatus::Complete)
            .filter_map(|job| timestamp(&job.updated_at))
            .max_by_key(|moment| moment.epoch_ms());
        let (model, dimension) = embedding(&described);
        Ok(Statistics {
            document_count: None,
            chunk_count: None,
            sources: sources.into_iter().map(|source| source.name).collect(),
            embedding_model: model,
            embedding_dimension: dimension,
            similarity_threshold: self.score_threshold,
            top_k_limit: TOP_K_MAX as u64,
            indexed_at,
        })
    }

    /// The newest ingestion job of each source; sources that cannot be asked are left out.
    async fn newest_jobs(
        &self,
        reference: &Reference<'_>,
        sources: &[Source],
        deadline: &Deadline,
    ) -> Vec<IngestionJobSummary> {
        let asked = sources.iter().map(|source| async {
            let newest = self.newest_job(reference, source, deadline).await;
            newest.unwrap_or_else(|error| {
                let source = &source.id;
                tracing::warn!(source, %error, "ingestion jobs cannot be listed");
                None
            })
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    async fn newest_job(
        &self,
        reference: &Reference<'_>,
        source: &Source,
        deadline: &Deadline,
    ) -> Result<Option<IngestionJobSummary>, CallError> {
        let newest_first = IngestionJobSortBy::builder()
            .attribute(IngestionJobSortByAttribute::StartedAt)
            .order(SortOrder::Descending)
            .build()
            .map_err(|error| BackendError::Refused(error.to_string()))?;
        let bounds = deadline.bounds()?;
        let request = ListIngestionJobsInput::builder()
            .knowledge_base_id(reference.knowledge_base)
            .data_source_id(&source.id)
            .sort_by(newest_first)
            .max_results(1)
            .build();
        let client = self.connection.agent().await;
        let sent = client.send_within(request, &bounds);
        let guard = &self.connection.agent_guard;
        let page = guard.run("ListIngestionJobs", bounds.time, sent);
        Ok(page.await?.ingestion_job_summaries.into_iter().next())
    }

    /// The job `SOURCE/JOB`.
    pub(crate) async fn ingestion_job(
        &self,
        knowledge_base: &str,
        job_id: &str,
        call: &EngineCall,
    ) -> Result<Option<Job>, BackendError> {
        let reference = Reference::parse(knowledge_base)?;
        let Some((source, job)) = job_id.split_once(SEPARATOR) else {
            return Ok(None);
        };
        let is_ours = reference.data_source.is_none_or(|ours| ours == source);
        if !is_ours || !is_id(source) || !is_id(job) {
            return Ok(None);
        }
        let bounds = Deadline::of(call, self.limits).bounds()?;
        let request = GetIngestionJobInput::builder()
            .knowledge_base_id(reference.knowledge_base)
            .data_source_id(source)
            .ingestion_job_id(job)
            .build();
        let client = self.connection.agent().await;
        let sent = client.send_within(request, &bounds);
        let guard = &self.connection.agent_guard;
        match guard.run("GetIngestionJob", bounds.time, sent).await {
            Ok(output) => Ok(output.ingestion_job.as_ref().map(told)),
            Err(CallError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn running_ingestion_job(
        &self,
        knowledge_base: &str,
        call: &EngineCall,
    ) -> Result<Option<String>, BackendError> {
        let reference = Reference::parse(knowledge_base)?;
        let deadline = Deadline::of(call, self.limits);
        let sources = self.sources(&reference, &deadline).await;
        let sources = sources.map_err(|error| error.about(knowledge_base))?;
        let newest = self.newest_jobs(&reference, &sources, &deadline).await;
        let running = newest.into_iter().find(|job| {
            use IngestionJobStatus::{InProgress, Starting, Stopping};
            matches!(job.status, Starting | InProgress | Stopping)
        });
        Ok(running.map(|job| format!("{}{SEPARATOR}{}", job.data_source_id, job.ingestion_job_id)))
    }
}

fn page_size(limit: usize) -> i32 {
    i32::try_from(limit.clamp(1, PAGE_MAX)).unwrap_or(1)
}

fn timestamp(moment: &DateTime) -> Option<Timestamp> {
    moment.to_millis().ok().map(Timestamp::from_epoch_ms)
}

/// A document; `None` for one that is being deleted or is gone.
fn document(detail: &KnowledgeBaseDocumentDetail) -> Option<Document> {
    use DocumentStatus::{
        DeleteInProgress, Deleting, Ignored, InProgress, Indexed, MetadataPartiallyIndexed,
        NotFound, PartiallyIndexed, Pending, Starting,
    };
    let status = match detail.status {
        Indexed | PartiallyIndexed | MetadataPartiallyIndexed => "indexed",
        Pending | Starting | InProgress => "indexing",
        Ignored => "cancelled",
        Deleting | DeleteInProgress | NotFound => return None,
        _ => "failed",
    };
    let id = identity(detail.identifier()?)?;
    let filename = file_name(id);
    let title = filename.rsplit('/').next().unwrap_or(&filename).to_owned();
    let updated_at = detail.updated_at().and_then(timestamp)?;
    Some(Document {
        id: id.to_owned(),
        format: format(&filename).to_owned(),
        title,
        filename,
        size_bytes: 0,
        status: status.to_owned(),
        chunk_count: 0,
        created_at: updated_at,
        updated_at,
        guard_findings: std::collections::BTreeMap::new(),
    })
}

fn identity(identifier: &DocumentIdentifier) -> Option<&str> {
    let object = identifier.s3().map(S3Location::uri);
    object.or_else(|| identifier.custom().map(CustomDocumentIdentifier::id))
}

fn format(filename: &str) -> &str {
    let extension = filename.rsplit_once('.').map(|(_, extension)| extension);
    match extension {
        Some("md" | "markdown") => "markdown",
        Some("htm" | "html") => "html",
        Some("pdf") => "pdf",
        Some(other) if other != "txt" && other.len() <= 10 && !other.contains('/') => other,
        _ => "text",
    }
}

/// Identifier of the embedding model (the last part of its ARN), and the length of its vectors.
fn embedding(
    described: &aws_sdk_bedrockagent::types::KnowledgeBase,
) -> (Option<String>, Option<u64>) {
    let Some(configuration) = described.knowledge_base_configuration() else {
        return (None, None);
    };
    let vector = configuration.vector_knowledge_base_configuration();
    let managed = configuration.managed_knowledge_base_configuration();
    let arn = vector
        .map(VectorKnowledgeBaseConfiguration::embedding_model_arn)
        .or_else(|| managed?.embedding_model_arn());
    let details = vector
        .and_then(|vector| vector.embedding_model_configuration())
        .or_else(|| managed?.embedding_model_configuration());
    let dimension = details
        .and_then(|details| {
            details
                .bedrock_embedding_model_configuration()?
                .dimensions()
        })
        .and_then(|dimensions| u64::try_from(dimensions).ok());
    let id = arn.map(|arn| arn.rsplit('/').next().unwrap_or(arn).to_owned());
    (id, dimension)
}

fn told(job: &IngestionJob) -> Job {
    let failed_documents = job
        .statistics()
        .map_or(0, |statistics| statistics.number_of_documents_failed);
    let (status, reason) = match job.status {
        IngestionJobStatus::Starting => (TaskStatus::Pending, None),
        IngestionJobStatus::InProgress | IngestionJobStatus::Stopping => {
            (TaskStatus::Running, None)
        }
        IngestionJobStatus::Complete if failed_documents == 0 => (TaskStatus::Succeeded, None),
        IngestionJobStatus::Complete => (
            TaskStatus::Partial,
            Some(format!("{failed_documents} documents failed")),
        ),
        // What was taken in before is there.
        IngestionJobStatus::Stopped => (TaskStatus::Partial, Some("it was stopped".to_owned())),
        _ => (TaskStatus::Failed, Some("it failed".to_owned())),
    };
    let reasons = job.failure_reasons().join("; ");
    let failed_because = reason.map(|reason| {
        if reasons.is_empty() {
            reason
        } else {
            format!("{reason}: {reasons}")
        }
    });
    let created_at = timestamp(&job.started_at).unwrap_or(Timestamp::from_epoch_seconds(0));
    Job {
        status,
        document_id: None,
        failed_because,
        created_at,
        updated_at: timestamp(&job.updated_at).unwrap_or(created_at),
    }
}

#[cfg(test)]
mod tests;
