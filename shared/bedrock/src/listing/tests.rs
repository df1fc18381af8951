use raglan_rag::backend::Backend as _;
use serde_json::{Value, json};

use super::*;
use crate::testing::{FakeBedrock, KB, Reply, SOURCE, call};

const OTHER: &str = "DS87654321";

fn source(id: &str, name: &str) -> Value {
    json!({
        "knowledgeBaseId": KB, "dataSourceId": id, "name": name, "status": "AVAILABLE",
        "updatedAt": "2026-01-01T00:00:00Z",
    })
}

fn detail(uri: &str, status: &str) -> Value {
    json!({
        "knowledgeBaseId": KB, "dataSourceId": SOURCE, "status": status,
        "identifier": { "dataSourceType": "S3", "s3": { "uri": uri } },
        "updatedAt": "2026-03-01T10:00:00Z",
    })
}

fn job(status: &str, failed: u64) -> Value {
    json!({
        "knowledgeBaseId": KB, "dataSourceId": SOURCE, "ingestionJobId": "JOB1234567",
        "status": status, "startedAt": "2026-03-01T10:00:00Z", "updatedAt": "2026-03-01T10:05:00Z",
        "statistics": { "numberOfDocumentsScanned": 9, "numberOfDocumentsFailed": failed },
    })
}

async fn fake(sources: &[Value]) -> FakeBedrock {
    let fake = FakeBedrock::start().await;
    fake.is_of_type("VECTOR");
    fake.on(
        &format!("POST /knowledgebases/{KB}/datasources"),
        [Reply::Json(json!({ "dataSourceSummaries": sources }))],
    );
    fake
}

fn of_source(source: &str, what: &str) -> String {
    format!("POST /knowledgebases/{KB}/datasources/{source}/{what}")
}

#[tokio::test]
async fn documents_of_all_sources_are_listed_page_by_page() {
    let fake = fake(&[
        source(SOURCE, "S3"),
        source("WEB1234567", "Site"),
        source(OTHER, "Own"),
    ])
    .await;
    fake.on(
        &of_source(SOURCE, "documents"),
        [
            Reply::Json(json!({ "nextToken": "t2", "documentDetails": [
                detail("s3://handbook/hr/leave.md", "INDEXED"),
                detail("s3://handbook/hr/old.md", "DELETING"),
                detail("s3://handbook/hr/broken.pdf", "FAILED"),
            ] })),
            Reply::Json(json!({ "documentDetails": [detail("s3://handbook/it.html", "PENDING")] })),
        ],
    );
    let not_listed = "ListKnowledgeBaseDocuments is only supported for S3 and CUSTOM data sources";
    fake.on(
        &of_source("WEB1234567", "documents"),
        [Reply::Error(400, "ValidationException", not_listed)],
    );
    let own = json!({
        "knowledgeBaseId": KB, "dataSourceId": OTHER, "status": "PARTIALLY_INDEXED",
        "identifier": { "dataSourceType": "CUSTOM", "custom": { "id": "note-7" } },
        "updatedAt": "2026-03-01T10:00:00Z",
    });
    fake.on(
        &of_source(OTHER, "documents"),
        [Reply::Json(json!({ "documentDetails": [own] }))],
    );
    let backend = fake.backend(&json!({}));
    let (mut listed, mut position) = (Vec::new(), None);
    loop {
        let call = call();
        let page = backend.list_documents(KB, position.as_deref(), 3, &call);
        let page = page.await.unwrap();
        listed.extend(page.documents);
        position = page.next;
        if position.is_none() {
            break;
        }
    }
    let short: Vec<(&str, &str, &str)> = listed
        .iter()
        .map(|one| (one.id.as_str(), one.format.as_str(), one.status.as_str()))
        .collect();
    assert_eq!(
        short,
        [
            ("s3://handbook/hr/leave.md", "markdown", "indexed"),
            ("s3://handbook/hr/broken.pdf", "pdf", "failed"),
            ("s3://handbook/it.html", "html", "indexing"),
            ("note-7", "text", "indexed"),
        ]
    );
    assert_eq!(listed[0].filename, "hr/leave.md");
    assert_eq!(listed[0].title, "leave.md");
    let asked = fake.asked(&format!("{SOURCE}/documents"));
    assert_eq!(asked[0].body, json!({ "maxResults": 3 }));
    assert_eq!(asked[1].body, json!({ "maxResults": 3, "nextToken": "t2" }));
}

#[tokio::test]
async fn where_no_source_can_be_listed_that_is_said_and_no_empty_list_is_given() {
    let fake = fake(&[source(SOURCE, "Site")]).await;
    fake.on(
        &of_source(SOURCE, "documents"),
        [Reply::Error(
            400,
            "ValidationException",
            "only S3 and CUSTOM",
        )],
    );
    let backend = fake.backend(&json!({}));
    let error = backend.list_documents(KB, None, 10, &call()).await;
    assert!(matches!(error, Err(BackendError::Unsupported(_))));
}

#[tokio::test]
async fn a_reference_with_a_source_lists_that_source_only() {
    let fake = fake(&[source(SOURCE, "S3"), source(OTHER, "Own")]).await;
    fake.on(
        &of_source(OTHER, "documents"),
        [Reply::Json(json!({ "documentDetails": [] }))],
    );
    let backend = fake.backend(&json!({}));
    let reference = format!("{KB}/{OTHER}");
    let page = backend.list_documents(&reference, None, 10, &call()).await;
    assert_eq!(page.unwrap(), DocumentPage::default());
    assert!(fake.asked("/datasources").is_empty());
    let foreign = format!("{SOURCE}/JOB1234567");
    let job = backend.job(&reference, &foreign, &call()).await;
    assert_eq!(job.unwrap(), None);
    assert!(fake.asked("/ingestionjobs/JOB1234567").is_empty());
}

#[tokio::test]
async fn a_job_is_told_in_our_words() {
    let fake = fake(&[]).await;
    let backend = fake.backend(&json!({}));
    let line = format!("GET /knowledgebases/{KB}/datasources/{SOURCE}/ingestionjobs/JOB1234567");
    let id = format!("{SOURCE}/JOB1234567");
    for (status, failed, expected, is_explained) in [
        ("STARTING", 0, TaskStatus::Pending, false),
        ("IN_PROGRESS", 0, TaskStatus::Running, false),
        ("STOPPING", 0, TaskStatus::Running, false),
        ("COMPLETE", 0, TaskStatus::Succeeded, false),
        ("COMPLETE", 2, TaskStatus::Partial, true),
        ("STOPPED", 0, TaskStatus::Partial, true),
        ("FAILED", 0, TaskStatus::Failed, true),
    ] {
        let reply = json!({ "ingestionJob": job(status, failed) });
        fake.on(&line, [Reply::Json(reply)]);
        let told = backend.job(KB, &id, &call()).await.unwrap().unwrap();
        assert_eq!(told.status, expected, "{status}");
        assert_eq!(told.failed_because.is_some(), is_explained, "{status}");
        assert_eq!(told.created_at.to_string(), "2026-03-01T10:00:00.000Z");
    }
    let unknown = Reply::Error(404, "ResourceNotFoundException", "no job");
    fake.on(&line, [unknown]);
    assert_eq!(backend.job(KB, &id, &call()).await.unwrap(), None);
    for nonsense in ["", "JOB1234567", "a/b/c", "../x/y", "DS12345678/JOB 1"] {
        assert_eq!(backend.job(KB, nonsense, &call()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn the_job_that_runs_is_found_whatever_its_source() {
    let fake = fake(&[source(OTHER, "Own"), source(SOURCE, "S3")]).await;
    let jobs = |jobs: &[Value]| [Reply::Json(json!({ "ingestionJobSummaries": jobs }))];
    fake.on(&of_source(OTHER, "ingestionjobs"), jobs(&[]));
    fake.on(
        &of_source(SOURCE, "ingestionjobs"),
        jobs(&[job("IN_PROGRESS", 0)]),
    );
    let backend = fake.backend(&json!({}));
    let running = backend.running_job(KB, &call()).await.unwrap();
    assert_eq!(running, Some(format!("{SOURCE}/JOB1234567")));
    let asked = fake.asked("/ingestionjobs").pop().unwrap();
    assert_eq!(
        asked.body,
        json!({ "maxResults": 1, "sortBy": { "attribute": "STARTED_AT", "order": "DESCENDING" } })
    );
    fake.on(
        &of_source(SOURCE, "ingestionjobs"),
        jobs(&[job("COMPLETE", 0)]),
    );
    assert_eq!(backend.running_job(KB, &call()).await.unwrap(), None);
}

#[tokio::test]
async fn what_a_knowledge_base_holds_is_told() {
    let fake = fake(&[source(SOURCE, "Handbook bucket")]).await;
    fake.on(
        &of_source(SOURCE, "ingestionjobs"),
        [Reply::Json(
            json!({ "ingestionJobSummaries": [job("COMPLETE", 0)] }),
        )],
    );
    let backend = fake.backend(&json!({ "score_threshold": 0.4 }));
    let told = backend.describe(KB, &call()).await.unwrap();
    assert_eq!(
        told,
        Statistics {
            sources: vec!["Handbook bucket".to_owned()],
            embedding_model: Some("amazon.titan-embed-text-v2:0".to_owned()),
            embedding_dimension: Some(1024),
            similarity_threshold: Some(0.4),
            top_k_limit: 100,
            indexed_at: Some(Timestamp::parse("2026-03-01T10:05:00Z").unwrap()),
            ..Statistics::default()
        }
    );
    let denied = Reply::Error(403, "AccessDeniedException", "no");
    fake.on(&format!("POST /knowledgebases/{KB}/datasources"), [denied]);
    let told = backend.describe(KB, &call()).await.unwrap();
    assert!(told.sources.is_empty() && told.indexed_at.is_none());
}

#[tokio::test]
async fn an_operator_sees_the_knowledge_bases_of_the_account() {
    let fake = FakeBedrock::start().await;
    let summary = json!({
        "knowledgeBaseId": KB, "name": "Staff handbook", "description": "Rules", "status": "ACTIVE",
        "updatedAt": "2026-01-01T00:00:00Z",
    });
    fake.on(
        "POST /knowledgebases",
        [Reply::Json(
            json!({ "knowledgeBaseSummaries": [summary], "nextToken": "t" }),
        )],
    );
    let backend = fake.backend(&json!({}));
    let page = backend.list_knowledge_bases(Some("p"), 50, &call()).await;
    let page = page.unwrap();
    assert_eq!(page.next.as_deref(), Some("t"));
    assert_eq!(page.knowledge_bases[0].id, KB);
    assert_eq!(page.knowledge_bases[0].name, "Staff handbook");
    assert_eq!(
        fake.asked("/knowledgebases")[0].body,
        json!({ "maxResults": 50, "nextToken": "p" })
    );
}
