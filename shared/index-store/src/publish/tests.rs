use tempfile::{TempDir, tempdir};

use super::*;
use crate::testing::{BUCKET, FakeS3, Trouble, id, write_index};

const POINTER: &str = "raglan/handbook/current.json";

fn publisher(s3: &FakeS3) -> Publisher {
    let location = IndexLocation::parse(&format!("s3://{BUCKET}/raglan/")).unwrap();
    Publisher::new(&s3.account(), location)
}

fn index(text: &str) -> TempDir {
    let folder = tempdir().unwrap();
    write_index(folder.path(), text);
    folder
}

async fn publish(s3: &FakeS3, text: &str) -> Result<PublishReport, PublishError> {
    let now = Timestamp::from_epoch_ms(0);
    let generation = index(text);
    publisher(s3)
        .publish(&id("handbook"), generation.path(), now)
        .await
}

#[tokio::test]
async fn the_pointer_names_an_archive_that_has_the_hash_of_its_name() {
    let s3 = FakeS3::start().await;
    let report = publish(&s3, "annual leave").await.unwrap();
    assert!(report.is_new);
    let pointer = Pointer::read(&s3.get(POINTER).unwrap()).unwrap();
    assert_eq!(pointer.archive_sha256, report.archive_sha256);
    let key = format!("raglan/handbook/{}.tar.lz4", report.archive_sha256);
    let archive = s3.get(&key).unwrap();
    let hash = ArchiveDigest::of(Sha256::new_with_prefix(&archive));
    assert_eq!(hash, report.archive_sha256);
    assert_eq!(pointer.archive_bytes, archive.len() as u64);
}

#[tokio::test]
async fn publishing_the_same_index_again_writes_nothing() {
    let s3 = FakeS3::start().await;
    let (generation, now) = (index("annual leave"), Timestamp::from_epoch_ms(0));
    let (publisher, kb_id) = (publisher(&s3), id("handbook"));
    let first = publisher.publish(&kb_id, generation.path(), now).await;
    assert!(first.unwrap().is_new);
    s3.take_requests(&http::Method::GET, "");
    let again = publisher.publish(&kb_id, generation.path(), now).await;
    assert!(!again.unwrap().is_new);
    assert_eq!(s3.take_requests(&http::Method::PUT, ""), 0);
}

#[tokio::test]
async fn old_archives_are_removed_but_the_last_ones_and_what_is_not_ours() {
    let s3 = FakeS3::start().await;
    s3.put("raglan/handbook/notes.txt", "not ours");
    s3.put("raglan/handbook/deep/notes.tar.lz4", "not ours");
    s3.put("raglan/handbooks/current.json", "of another knowledge base");
    let mut digests = Vec::new();
    for text in ["one", "two", "three", "four", "five"] {
        digests.push(publish(&s3, text).await.unwrap().archive_sha256);
    }
    let left = s3.keys();
    let kept = |digest: &ArchiveDigest| left.iter().any(|key| key.contains(&digest.to_string()));
    let kept: Vec<bool> = digests.iter().map(kept).collect();
    assert_eq!(kept, [false, false, true, true, true]);
    assert_eq!(left.len(), 7, "{left:?}");
}

#[tokio::test]
async fn who_publishes_at_the_same_time_is_not_overwritten() {
    let s3 = FakeS3::start().await;
    let theirs = publish(&s3, "theirs").await.unwrap();
    let pointer = s3.get(POINTER).unwrap();
    publish(&s3, "what both have seen").await.unwrap();
    s3.overtake(POINTER, pointer);
    let refused = publish(&s3, "ours").await;
    assert!(
        matches!(refused, Err(PublishError::Overtaken)),
        "{refused:?}"
    );
    let answers = Pointer::read(&s3.get(POINTER).unwrap()).unwrap();
    assert_eq!(answers.archive_sha256, theirs.archive_sha256);
}

#[tokio::test]
async fn a_failed_upload_leaves_the_pointer_as_it_was() {
    let s3 = FakeS3::start().await;
    publish(&s3, "annual leave").await.unwrap();
    let before = s3.get(POINTER);
    for trouble in [Trouble::Down, Trouble::Denied] {
        s3.trouble(trouble);
        let failed = publish(&s3, "other text").await;
        assert!(matches!(failed, Err(PublishError::Aws(_))), "{failed:?}");
        assert_eq!(s3.get(POINTER), before);
    }
}

#[tokio::test]
async fn an_incomplete_index_is_not_published() {
    let s3 = FakeS3::start().await;
    let generation = index("annual leave");
    std::fs::write(generation.path().join("documents.json"), "[").unwrap();
    let refused = publisher(&s3)
        .publish(
            &id("handbook"),
            generation.path(),
            Timestamp::from_epoch_ms(0),
        )
        .await;
    assert!(
        matches!(refused, Err(PublishError::Archive(_))),
        "{refused:?}"
    );
    assert!(s3.keys().is_empty());
}
