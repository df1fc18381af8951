use std::fs;
use std::path::Path;

use http::Method;
use raglan_core::clock::ManualClock;
use raglan_rag::backend::Filters;
use tempfile::{TempDir, tempdir};

use super::*;
use crate::publish::Publisher;
use crate::testing::{BUCKET, FakeS3, Trouble, id, write_index};

const REFRESH_SECONDS: i64 = 60;
/// Long enough for everything that is meant to end.
const PATIENCE: Duration = Duration::from_mins(1);

struct Scene {
    s3: FakeS3,
    clock: Arc<ManualClock>,
    folder: TempDir,
    engine: PublishedIndexBackend,
}

impl Scene {
    async fn new() -> Self {
        Self::over(FakeS3::start().await, Duration::from_secs(10))
    }

    fn over(s3: FakeS3, idle_timeout: Duration) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_epoch_seconds(0)));
        let folder = tempdir().unwrap();
        let location = location();
        let objects = Reader::new(&s3.account(), location.bucket());
        let engine = PublishedIndexBackend::new(
            Arc::new(LazyAccount::loaded(s3.account())),
            location,
            folder.path().join("copies"),
            60,
            Arc::clone(&clock) as Arc<dyn Clock>,
            EmbeddedBackend::new,
        );
        let objects = objects.with_idle_timeout(idle_timeout);
        assert!(engine.copies.objects.set(objects).is_ok());
        Self {
            s3,
            clock,
            folder,
            engine,
        }
    }

    async fn publish(&self, text: &str) {
        let index = tempdir().unwrap();
        write_index(index.path(), text);
        Publisher::new(&self.s3.account(), location())
            .publish(&id("handbook"), index.path(), self.clock.now())
            .await
            .unwrap();
    }

    /// The text of the passage that is found.
    async fn found(&self) -> Result<String, BackendError> {
        found(&self.engine, PATIENCE).await
    }

    /// The same after the next look at the pointer.
    async fn found_later(&self) -> Result<String, BackendError> {
        self.clock.advance_seconds(REFRESH_SECONDS);
        self.found().await?;
        self.engine.background().idle_within(PATIENCE).await;
        self.found().await
    }

    fn copies(&self) -> Vec<String> {
        names(&self.folder.path().join("copies/handbook"))
    }
}

fn location() -> IndexLocation {
    IndexLocation::parse(&format!("s3://{BUCKET}/raglan/")).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder)
        .map(|entries| {
            let names = entries.map(|entry| entry.unwrap().file_name());
            names
                .map(|name| name.to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default()
}

async fn found(
    engine: &PublishedIndexBackend,
    time_left: Duration,
) -> Result<String, BackendError> {
    let request = RetrieveRequest {
        query: "leave".to_owned(),
        top_k: 5,
        min_score: None,
        filters: Filters::default(),
    };
    let call = EngineCall::within(time_left);
    let found = engine.retrieve("handbook", &request, &call).await?;
    let passages = found.passages.into_iter();
    Ok(passages.map(|passage| passage.content).collect())
}

#[tokio::test]
async fn the_first_calls_wait_for_one_download() {
    let scene = Scene::new().await;
    scene.publish("leave: 25 days").await;
    scene.s3.take_requests(&Method::GET, "");
    let (a, b, c) = tokio::join!(scene.found(), scene.found(), scene.found());
    for text in [a, b, c] {
        assert_eq!(text.unwrap(), "leave: 25 days");
    }
    assert_eq!(scene.s3.take_requests(&Method::GET, ".tar.lz4"), 1);
    assert_eq!(scene.found().await.unwrap(), "leave: 25 days");
    assert_eq!(scene.s3.take_requests(&Method::GET, ""), 0, "not due yet");
}

#[tokio::test]
async fn a_new_index_answers_after_the_next_look_and_the_old_copy_is_removed() {
    let scene = Scene::new().await;
    scene.publish("leave: 25 days").await;
    assert_eq!(scene.found().await.unwrap(), "leave: 25 days");
    let before = scene.copies();
    scene.publish("leave: 30 days").await;
    assert_eq!(
        scene.found().await.unwrap(),
        "leave: 25 days",
        "not due yet"
    );
    assert_eq!(scene.found_later().await.unwrap(), "leave: 30 days");
    let after = scene.copies();
    assert_eq!(after.len(), 2, "CURRENT and one copy: {after:?}");
    assert_ne!(before, after);
}

#[tokio::test]
async fn an_unchanged_pointer_costs_one_conditional_request() {
    let scene = Scene::new().await;
    scene.publish("leave: 25 days").await;
    scene.found().await.unwrap();
    scene.s3.take_requests(&Method::GET, "");
    scene.found_later().await.unwrap();
    let requests = scene.s3.take_requests(&Method::GET, "");
    assert_eq!(requests, 1);
    scene.found().await.unwrap();
    scene.engine.background().idle_within(PATIENCE).await;
    assert_eq!(scene.s3.take_requests(&Method::GET, ""), 0);
}

#[tokio::test]
async fn while_s3_is_away_or_broken_the_index_of_before_answers() {
    for trouble in [
        Trouble::Down,
        Trouble::Denied,
        Trouble::Truncated,
        Trouble::Altered,
    ] {
        let scene = Scene::new().await;
        scene.publish("leave: 25 days").await;
        scene.found().await.unwrap();
        scene.publish("leave: 30 days").await;
        scene.s3.trouble(trouble);
        let text = scene.found_later().await.unwrap();
        assert_eq!(text, "leave: 25 days", "{trouble:?}");
        let call = EngineCall::within(PATIENCE);
        let described = scene.engine.describe("handbook", &call).await.unwrap();
        assert!(described.indexed_at.is_some(), "its age is told");
        assert_eq!(scene.copies().len(), 2, "nothing half is left");
        scene.s3.trouble(Trouble::None);
        assert_eq!(scene.found_later().await.unwrap(), "leave: 30 days");
    }
}

#[tokio::test]
async fn without_any_index_the_call_fails_and_says_whether_to_try_again() {
    for (trouble, retryable) in [
        (Trouble::Down, true),
        (Trouble::Truncated, true),
        (Trouble::Altered, true),
        (Trouble::Denied, false),
    ] {
        let scene = Scene::new().await;
        scene.publish("leave: 25 days").await;
        scene.s3.trouble(trouble);
        let error = scene.found().await.unwrap_err();
        assert_eq!(error.retryable(), retryable, "{trouble:?}: {error}");
        scene.s3.trouble(Trouble::None);
        assert_eq!(scene.found().await.unwrap(), "leave: 25 days");
    }
}

#[tokio::test]
async fn a_stalled_download_ends_by_itself() {
    let scene = Scene::over(FakeS3::start().await, Duration::from_millis(50));
    scene.publish("leave: 25 days").await;
    scene.s3.trouble(Trouble::Stalled);
    let error = scene.found().await.unwrap_err();
    assert!(error.to_string().contains("nothing came"), "{error}");
}

#[tokio::test]
async fn a_caller_in_a_hurry_does_not_end_the_download_for_the_next_one() {
    let scene = Scene::new().await;
    scene.publish("leave: 25 days").await;
    let hurried = found(&scene.engine, Duration::ZERO).await;
    assert!(matches!(hurried, Err(BackendError::TimedOut(_))));
    assert_eq!(scene.found().await.unwrap(), "leave: 25 days");
    assert_eq!(scene.s3.take_requests(&Method::GET, ".tar.lz4"), 1);
}

#[tokio::test]
async fn what_was_never_published_is_named_with_the_command_that_does_it() {
    let scene = Scene::new().await;
    let error = scene.found().await.unwrap_err();
    assert!(!error.retryable());
    assert!(
        error
            .to_string()
            .contains("raglan index DIR --kb handbook --publish s3://team-indexes/raglan/"),
        "{error}"
    );
}

#[tokio::test]
async fn a_pointer_to_more_than_fits_is_refused_before_anything_is_fetched() {
    let scene = Scene::new().await;
    scene.publish("leave: 25 days").await;
    let key = "raglan/handbook/current.json";
    let pointer = String::from_utf8(scene.s3.get(key).unwrap().to_vec()).unwrap();
    let mut pointer: serde_json::Value = serde_json::from_str(&pointer).unwrap();
    pointer["unpacked_bytes"] = (11_u64 << 30).into();
    scene.s3.put(key, pointer.to_string());
    scene.s3.take_requests(&Method::GET, "");
    assert!(matches!(
        scene.found().await,
        Err(BackendError::UnusableIndex(_))
    ));
    assert_eq!(scene.s3.take_requests(&Method::GET, ".tar.lz4"), 0);
    pointer["unpacked_bytes"] = 10.into();
    scene.s3.put(key, pointer.to_string());
    assert!(matches!(
        scene.found().await,
        Err(BackendError::UnusableIndex(_))
    ));
}

#[tokio::test]
async fn a_process_that_was_started_again_uses_the_copy_that_is_there() {
    let scene = Scene::new().await;
    scene.publish("leave: 25 days").await;
    scene.found().await.unwrap();
    scene.s3.take_requests(&Method::GET, "");
    let restarted = PublishedIndexBackend::new(
        Arc::new(LazyAccount::loaded(scene.s3.account())),
        location(),
        scene.folder.path().join("copies"),
        60,
        Arc::clone(&scene.clock) as Arc<dyn Clock>,
        EmbeddedBackend::new,
    );
    assert_eq!(found(&restarted, PATIENCE).await.unwrap(), "leave: 25 days");
    assert_eq!(scene.s3.take_requests(&Method::GET, ".tar.lz4"), 0);
}

#[tokio::test]
async fn a_folder_that_others_can_write_is_not_used() {
    use std::os::unix::fs::PermissionsExt as _;
    let scene = Scene::new().await;
    scene.publish("leave: 25 days").await;
    let root = scene.folder.path().join("copies");
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
    let error = scene.found().await.unwrap_err();
    assert!(error.to_string().contains("others"), "{error}");
}

#[tokio::test]
async fn documents_of_a_replaced_index_can_still_be_listed() {
    let scene = Scene::new().await;
    scene.publish("leave: 25 days").await;
    scene.found().await.unwrap();
    // The list of documents is read late; its folder is gone by then.
    let copies = scene.folder.path().join("copies/handbook");
    for name in names(&copies) {
        if name.starts_with("idx-") {
            fs::remove_file(copies.join(name).join("documents.json")).unwrap();
        }
    }
    let call = EngineCall::within(PATIENCE);
    let page = scene
        .engine
        .list_documents("handbook", None, 10, &call)
        .await;
    assert_eq!(page.unwrap().documents.len(), 1);
}
