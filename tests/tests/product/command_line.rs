//! The command line's functions, as `raglan` calls them.

use std::fs;
use std::path::{Path, PathBuf};

use raglan_cli::arguments::{Arguments, Command, DevArguments, IndexArguments, TargetArguments};
use raglan_cli::index::{Destination, IndexJob, index};
use raglan_cli::{Outcome, run};
use raglan_core::random::SequenceRandom;
use raglan_ingest::build::Reading;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::support::{World, call, id};

fn dev(state_dir: &Path) -> DevArguments {
    DevArguments {
        data: None,
        port: 0,
        state_dir: state_dir.to_owned(),
        new_key: false,
        demo: false,
        emulators_only: false,
        env_file: None,
        invoke_audit: None,
    }
}

async fn run_dev(arguments: DevArguments) -> anyhow::Result<Outcome> {
    run(Arguments {
        command: Command::Dev(arguments),
    })
    .await
}

async fn run_index(folder: PathBuf, kb_id: &str, state_dir: &Path) -> anyhow::Result<Outcome> {
    let arguments = IndexArguments {
        folder,
        kb_id: kb_id.to_owned(),
        name: None,
        description: None,
        owner: None,
        index_dir: None,
        full: false,
        watch: false,
        publish: None,
        target: TargetArguments {
            state_dir: Some(state_dir.to_owned()),
            ..TargetArguments::default()
        },
    };
    run(Arguments {
        command: Command::Index(arguments),
    })
    .await
}

/// A folder with one good document and one that is no PDF although it says so.
fn half_broken_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("good.md"),
        "# Leave\n\nLeave is thirty days a year.\n",
    )
    .unwrap();
    fs::write(folder.path().join("broken.pdf"), "%PDF-1.7\nthis is no PDF").unwrap();
    folder
}

/// The one line that a person is told.
fn line(outcome: anyhow::Result<Outcome>) -> String {
    let line = format!("{:#}", outcome.unwrap_err());
    assert!(!line.contains('\n'), "{line}");
    line
}

#[tokio::test]
async fn the_demonstration_works_from_documents_to_audit_rows() {
    let state = tempfile::tempdir().unwrap();
    let arguments = DevArguments {
        demo: true,
        ..dev(state.path())
    };
    assert_eq!(run_dev(arguments).await.unwrap(), Outcome::Done);
    assert_eq!(
        fs::read_dir(state.path()).unwrap().count(),
        0,
        "it leaves nothing behind"
    );
}

#[tokio::test]
async fn the_demonstration_takes_a_folder_of_the_users_own() {
    let (state, folder) = (tempfile::tempdir().unwrap(), half_broken_folder());
    let data = Some(folder.path().to_owned());
    let arguments = DevArguments {
        demo: true,
        data,
        ..dev(state.path())
    };
    assert_eq!(run_dev(arguments).await.unwrap(), Outcome::Done);
}

#[tokio::test]
async fn a_taken_port_an_unreadable_folder_and_a_damaged_store_are_one_clear_line_each() {
    let state = tempfile::tempdir().unwrap();
    let folder = half_broken_folder();
    let occupied = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = occupied.local_addr().unwrap().port();
    let data = Some(folder.path().to_owned());
    let told = line(
        run_dev(DevArguments {
            port,
            data,
            ..dev(state.path())
        })
        .await,
    );
    assert!(
        told.contains(&port.to_string()) && told.contains("--port"),
        "{told}"
    );

    let missing = folder.path().join("no-such-folder");
    let data = Some(missing.clone());
    let told = line(
        run_dev(DevArguments {
            data,
            ..dev(state.path())
        })
        .await,
    );
    assert!(told.contains(missing.to_str().unwrap()), "{told}");

    let damaged = tempfile::tempdir().unwrap();
    fs::write(
        damaged.path().join("dynamodb.sqlite"),
        "no database ".repeat(100),
    )
    .unwrap();
    let told = line(run_dev(dev(damaged.path())).await);
    assert!(told.contains("dynamodb.sqlite"), "{told}");
}

#[tokio::test]
async fn a_folder_with_a_broken_document_is_indexed_without_it_and_the_exit_code_says_so() {
    let (state, folder) = (tempfile::tempdir().unwrap(), half_broken_folder());
    let outcome = run_index(folder.path().to_owned(), "mine", state.path())
        .await
        .unwrap();
    assert_eq!(outcome, Outcome::Incomplete);
    fs::remove_file(folder.path().join("broken.pdf")).unwrap();
    let outcome = run_index(folder.path().to_owned(), "mine", state.path())
        .await
        .unwrap();
    assert_eq!(outcome, Outcome::Done);
}

#[tokio::test]
async fn what_cannot_be_indexed_is_said_in_one_line() {
    let (state, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let missing = folder.path().join("no-such-folder");
    let told = line(run_index(missing.clone(), "mine", state.path()).await);
    assert!(told.contains(missing.to_str().unwrap()), "{told}");
    let told = line(run_index(folder.path().to_owned(), "mine", state.path()).await);
    assert!(told.contains("no documents"), "{told}");
    let told = line(run_index(folder.path().to_owned(), "Not An Id", state.path()).await);
    assert!(
        told.contains("--kb") && told.contains("Not An Id"),
        "{told}"
    );
}

#[tokio::test]
async fn an_indexing_run_is_a_task_and_a_knowledge_base_that_callers_see() {
    let world = World::without_knowledge(|_| {}).await;
    let key = world.full_key().await;
    let folder = half_broken_folder();
    let job = IndexJob {
        folder: folder.path().to_owned(),
        kb_id: id("mine"),
        name: Some("My documents".to_owned()),
        description: None,
        owner: None,
        reading: Reading::Changed,
    };
    let random = SequenceRandom::seeded(5);
    let destination = Destination {
        catalog: &world.catalog(),
        index_dir: &world.index_dir,
        publisher: None,
        embedder: None,
        clock: world.clock.as_ref(),
        random: &random,
    };
    let (task, report) = index(&job, &destination).await.unwrap();
    assert_eq!(report.documents, 1);
    assert_eq!(report.failed[0].filename, "broken.pdf");

    let shown = call("get_task", json!({ "task_id": task.id }))
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(shown["status"], "partial");
    assert_eq!(shown["error"]["class"], "unreadable_documents");
    assert!(
        shown["error"]["message"]
            .as_str()
            .unwrap()
            .contains("broken.pdf"),
        "{shown}"
    );

    let listed = call("list_knowledge_bases", json!({}))
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(listed["items"][0]["name"], "My documents");
    assert_eq!(listed["items"][0]["document_count"], 1);
    let documents = call("list_documents", json!({}))
        .key(&key)
        .send(&world)
        .await
        .structured();
    let statuses: Vec<_> = documents["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            (
                item["filename"].as_str().unwrap(),
                item["status"].as_str().unwrap(),
            )
        })
        .collect();
    assert!(statuses.contains(&("broken.pdf", "failed")), "{statuses:?}");
    assert!(statuses.contains(&("good.md", "indexed")), "{statuses:?}");
    let arguments = json!({ "question": "How many days a year is leave?" });
    let answer = call("ask", arguments)
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(answer["grounded"], true);

    // A run that fails leaves the index of before in place and says so in its task.
    fs::remove_file(folder.path().join("good.md")).unwrap();
    index(&job, &destination).await.unwrap_err();
    let arguments = json!({ "question": "How many days a year is leave?" });
    let answer = call("ask", arguments)
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(answer["grounded"], true);
}
