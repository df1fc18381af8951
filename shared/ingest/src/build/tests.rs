use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use raglan_core::clock::ManualClock;
use raglan_rag::backend::{
    Backend as _, DocumentPage, EngineCall, Filters, Retrieval, RetrieveRequest,
};
use raglan_rag::embedded::EmbeddedBackend;
use raglan_rag::embedded::embedding::{Embedder, Purpose};
use tempfile::TempDir;

use super::*;
use crate::document::FILE_MAX_BYTES;

/// A folder of documents and a place for the index.
struct Fixture {
    source: TempDir,
    index: TempDir,
    clock: ManualClock,
}

impl Fixture {
    fn new(files: &[(&str, &str)]) -> Self {
        let start = Timestamp::parse("2026-05-01").unwrap();
        let fixture = Self {
            source: tempfile::tempdir().unwrap(),
            index: tempfile::tempdir().unwrap(),
            clock: ManualClock::at(start),
        };
        for (name, text) in files {
            fixture.write(name, text);
        }
        fixture
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.source.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn options(&self) -> IndexOptions {
        IndexOptions {
            source_dir: self.source.path().to_owned(),
            index_root: self.index.path().to_owned(),
            kb_id: KnowledgeBaseId::parse("kb").unwrap(),
            reading: Reading::Changed,
        }
    }

    fn build(&self) -> Result<IndexReport, IndexError> {
        index_folder(&self.options(), &self.clock, &mut |_| {})
    }

    fn folder(&self) -> PathBuf {
        self.index.path().join("kb")
    }

    async fn search(&self, query: &str) -> Retrieval {
        let request = RetrieveRequest {
            query: query.to_owned(),
            top_k: 10,
            min_score: None,
            filters: Filters::default(),
        };
        EmbeddedBackend::new(self.index.path())
            .retrieve("kb", &request, &EngineCall::within(Duration::from_mins(1)))
            .await
            .unwrap()
    }

    async fn documents(&self) -> DocumentPage {
        EmbeddedBackend::new(self.index.path())
            .list_documents("kb", None, 100, &EngineCall::within(Duration::from_mins(1)))
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn a_folder_of_all_formats_becomes_searchable() {
    let fixture = Fixture::new(&[
        (
            "hr/leave.md",
            "---\ntitle: Leave policy\ndomain: hr\nupdated_at: 2026-03-01\nuri: https://x/leave\n---\n\
             # Leave\n\n## Annual\n\nThirty days.\n",
        ),
        ("notes.txt", "Plain sentence."),
        ("网页.html", "<title>退款</title><p>七天内可以退款。</p>"),
        ("picture.png", "x"),
    ]);
    let report = fixture.build().unwrap();
    assert_eq!((report.documents, report.chunks, report.skipped), (3, 3, 1));
    assert!(report.failed.is_empty() && report.size_bytes > 0);

    let passage = fixture.search("thirty").await.passages.remove(0);
    assert_eq!(passage.title, "Leave policy");
    assert_eq!(passage.filename, "hr/leave.md");
    assert_eq!(passage.section.as_deref(), Some("Leave › Annual"));
    assert_eq!(passage.uri.as_deref(), Some("https://x/leave"));
    assert_eq!(passage.updated_at, Timestamp::parse("2026-03-01").ok());
    assert_eq!(passage.metadata["domain"], "hr");
    assert_eq!(fixture.search("退款").await.passages[0].title, "退款");
    assert_eq!(fixture.search("sentence").await.passages[0].title, "notes");
}

#[tokio::test]
async fn broken_files_are_named_and_the_rest_is_indexed() {
    let fixture = Fixture::new(&[
        ("good.md", "fine"),
        ("empty.txt", " "),
        ("broken.pdf", "%PDF-1.5 no"),
    ]);
    fixture.write("gbk.txt", [0xD6, 0xD0]);
    let sparse = fs::File::create(fixture.source.path().join("large.txt")).unwrap();
    sparse.set_len(FILE_MAX_BYTES + 1).unwrap();

    let report = fixture.build().unwrap();
    let failed: Vec<&str> = report
        .failed
        .iter()
        .map(|file| file.filename.as_str())
        .collect();
    assert_eq!(failed, ["broken.pdf", "empty.txt", "gbk.txt", "large.txt"]);
    assert!(
        report.failed[2].reason.contains("UTF-8"),
        "{:?}",
        report.failed[2]
    );
    assert!(
        report.failed[3].reason.contains("50 MiB"),
        "{:?}",
        report.failed[3]
    );
    assert_eq!(report.documents, 1);

    let documents = fixture.documents().await.documents;
    let failed = documents
        .iter()
        .filter(|document| document.status == "failed")
        .count();
    assert_eq!((documents.len(), failed), (5, 4));
}

#[test]
fn a_folder_without_documents_and_a_missing_folder_are_told_apart() {
    let fixture = Fixture::new(&[("photo.jpg", "x")]);
    let error = fixture.build().unwrap_err();
    assert!(
        matches!(error, IndexError::NoDocuments { skipped: 1, .. }),
        "{error}"
    );

    let fixture = Fixture::new(&[("empty.md", "")]);
    let error = fixture.build().unwrap_err();
    assert!(error.to_string().contains("empty.md"), "{error}");
    assert!(matches!(error, IndexError::NothingReadable { .. }));

    let missing = IndexOptions {
        source_dir: "/nowhere/at/all".into(),
        ..fixture.options()
    };
    let error = index_folder(&missing, &fixture.clock, &mut |_| {}).unwrap_err();
    assert!(matches!(error, IndexError::Source { .. }), "{error}");
}

#[tokio::test]
async fn a_second_build_keeps_identifiers_and_the_first_sight_of_documents() {
    let fixture = Fixture::new(&[("a.md", "# A\n\none\n\n# B\n\ntwo\n"), ("b.md", "three")]);
    let first_report = fixture.build().unwrap();
    let before = fixture.search("two").await.passages.remove(0);
    fixture.clock.advance_seconds(3600);
    fixture.write("a.md", "# A\n\nsomething else\n\n# B\n\ntwo\n");
    fixture.write("new.md", "four");
    let second_report = fixture.build().unwrap();
    assert_ne!(first_report.generation, second_report.generation);

    let after = fixture.search("two").await.passages.remove(0);
    assert_eq!(
        (&after.id, &after.document_id),
        (&before.id, &before.document_id)
    );
    let hour = |name: &str, page: &DocumentPage| {
        let document = page
            .documents
            .iter()
            .find(|document| document.filename == name)
            .unwrap();
        document.created_at.to_string()[11..13].to_owned()
    };
    let page = fixture.documents().await;
    assert_eq!(
        (hour("a.md", &page), hour("new.md", &page)),
        ("00".to_owned(), "01".to_owned())
    );
}

#[tokio::test]
async fn passages_with_equal_text_have_different_identifiers() {
    let fixture = Fixture::new(&[("a.md", "# A\n\nsame\n\n# B\n\nsame\n"), ("b.md", "same")]);
    fixture.build().unwrap();
    let mut ids: Vec<String> = fixture
        .search("same")
        .await
        .passages
        .into_iter()
        .map(|passage| passage.id)
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn an_interrupted_build_leaves_the_old_index_in_place() {
    let fixture = Fixture::new(&[("a.md", "old text")]);
    fixture.build().unwrap();
    fixture.write("a.md", "new text");

    // The flip cannot be prepared: a folder stands where the next CURRENT is written.
    fs::create_dir(fixture.folder().join(".CURRENT.next")).unwrap();
    fixture.clock.advance_seconds(1);
    let error = fixture.build().unwrap_err();
    assert!(matches!(error, IndexError::Publish { .. }), "{error}");
    assert_eq!(fixture.search("old").await.matched, 1);
    assert_eq!(fixture.search("new").await.matched, 0);

    // The process is killed in the middle of the work: its folder stays behind.
    let left = fixture.folder().join(".building-killed");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("meta.json"), "{").unwrap();
    assert_eq!(fixture.search("old").await.matched, 1);

    fs::remove_dir(fixture.folder().join(".CURRENT.next")).unwrap();
    fixture.clock.advance_seconds(1);
    fixture.build().unwrap();
    assert_eq!(fixture.search("new").await.matched, 1);
    assert!(!left.exists());
}

#[tokio::test]
async fn a_build_that_fails_while_reading_changes_nothing() {
    let fixture = Fixture::new(&[("a.md", "old text")]);
    let before = fixture.build().unwrap();
    fixture.write("a.md", "");
    assert!(fixture.build().is_err());
    assert_eq!(fixture.search("old").await.matched, 1);
    let current = layout::current(&fixture.folder()).unwrap().unwrap();
    assert_eq!(current.as_str(), before.generation);
}

#[test]
fn an_open_index_answers_after_the_next_build_and_a_damaged_one_is_mended_by_it() {
    let fixture = Fixture::new(&[("a.md", "text")]);
    let first = fixture.build().unwrap();
    fs::write(
        fixture
            .folder()
            .join(&first.generation)
            .join(layout::MANIFEST),
        "{",
    )
    .unwrap();
    let second = fixture.build().unwrap();
    assert!(
        fixture.folder().join(&first.generation).exists(),
        "a reader may still have it open"
    );
    let third = fixture.build().unwrap();
    assert!(!fixture.folder().join(&first.generation).exists());
    assert!(fixture.folder().join(&second.generation).exists());
    assert_ne!(second.generation, third.generation);
}

#[test]
fn progress_counts_every_document() {
    let fixture = Fixture::new(&[("a.md", "x"), ("b.md", "y"), ("c.md", "")]);
    let mut seen = Vec::new();
    index_folder(&fixture.options(), &fixture.clock, &mut |step| {
        seen.push(step);
    })
    .unwrap();
    assert_eq!(seen[0], Progress::Found { files: 3 });
    assert_eq!(
        seen[3],
        Progress::Read {
            filename: "c.md".to_owned(),
            done: 3
        }
    );
    assert_eq!(seen.len(), 4);
}

/// A model that counts what it is asked.
#[derive(Default)]
struct CountingModel {
    asked: Mutex<Vec<String>>,
    is_away: AtomicBool,
}

impl Embedder for CountingModel {
    fn model(&self) -> &'static str {
        "counting"
    }

    fn prefix(&self, _: Purpose) -> &'static str {
        ""
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        _: Purpose,
        _: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, BackendError>> {
        let answer = if self.is_away.load(Ordering::SeqCst) {
            Err(BackendError::Unavailable("away".to_owned()))
        } else {
            self.asked.lock().unwrap().extend_from_slice(texts);
            let vector =
                |text: &String| vec![1.0, f32::from(u8::try_from(text.len() % 7).unwrap())];
            Ok(texts.iter().map(vector).collect())
        };
        Box::pin(std::future::ready(answer))
    }
}

#[test]
fn only_passages_whose_text_has_changed_are_embedded_again() {
    let one = "# One\n\nalpha words\n";
    let fixture = Fixture::new(&[("a.md", one), ("b.md", "# Two\n\nbeta words\n")]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let model = Arc::new(CountingModel::default());
    let embedder = Arc::clone(&model);
    let embedding = Embedding::new(embedder, runtime.handle().clone());
    let build = || {
        let options = fixture.options();
        embed_folder(&options, Some(&embedding), &fixture.clock, &mut |_| {})
    };
    assert_eq!(build().unwrap().embedded, 2);
    assert_eq!(build().unwrap().embedded, 0);
    fixture.write("b.md", "# Two\n\ngamma words, more of them\n");
    fixture.write("c.md", one);
    assert_eq!(
        build().unwrap().embedded,
        1,
        "c.md has a text that is known"
    );
    let asked = model.asked.lock().unwrap().concat();
    assert!(asked.contains("Two") && asked.contains("gamma"), "{asked}");

    let current = || layout::current(&fixture.folder()).unwrap();
    let before = current();
    model.is_away.store(true, Ordering::SeqCst);
    assert_eq!(build().unwrap().embedded, 0, "nothing is needed of it");
    let again = current();
    assert_ne!(before, again);
    fixture.write("d.md", "# Three\n\ndelta\n");
    assert!(matches!(build(), Err(IndexError::Embedding(_))));
    assert_eq!(current(), again, "the index of before answers on");
}
