//! Engines' own indexing jobs: where a caller learns of one, and who may look at it.

use raglan_core::clock::Clock as _;
use raglan_core::key_record::ScopeKind;
use raglan_core::task::TaskStatus;
use raglan_rag::backend::Job;
use serde_json::json;
use tracing::Level;

use crate::support::{World, call, capture_log, id};

fn job(world: &World, failed_because: Option<&str>) -> Job {
    Job {
        status: TaskStatus::Running,
        document_id: None,
        failed_because: failed_because.map(ToOwned::to_owned),
        created_at: world.clock.now(),
        updated_at: world.clock.now(),
    }
}

/// The identifier of the running task, as `get_knowledge_base` tells it.
async fn task_id(world: &World) -> String {
    let key = world.key("key-describes", |_| {}).await;
    let described = call("get_knowledge_base", json!({ "kb_id": "script" }))
        .key(&key)
        .send(world)
        .await
        .structured();
    described["task_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_running_job_of_an_engine_is_a_task_and_its_cause_is_for_the_log() {
    let world = World::start().await;
    let key = world.full_key().await;
    let cause = "s3://secret-bucket answered AccessDenied";
    world
        .engine
        .run_job("script", "ds/JOB1", job(&world, Some(cause)));
    let task_id = task_id(&world).await;
    let log = capture_log(Level::WARN);
    let mut task = call("get_task", json!({ "task_id": task_id }))
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(task["id"], task_id.as_str());
    task["id"] = "(task id)".into();
    insta::assert_json_snapshot!(task, @r#"
    {
      "id": "(task id)",
      "kb_id": "script",
      "status": "running",
      "retry_count": 0,
      "error": {
        "class": "engine_failed",
        "message": "The engine did not take everything in. Its operator finds the reason there, and in the log of this call."
      },
      "created_at": "2026-11-30T08:15:00.000Z",
      "updated_at": "2026-11-30T08:15:00.000Z"
    }
    "#);
    assert!(log.text().contains("secret-bucket"));
}

#[tokio::test]
async fn a_job_out_of_scope_that_is_over_or_that_never_was_is_one_refusal() {
    let world = World::start().await;
    let (full, narrow) = (
        world.full_key().await,
        world
            .key("key-narrow", |key| {
                key.scope = ScopeKind::List;
                key.kb_ids = [id("handbook")].into();
            })
            .await,
    );
    world.engine.run_job("script", "JOB1", job(&world, None));
    let first = task_id(&world).await;
    world.engine.run_job("script", "JOB2", job(&world, None));
    let second = task_id(&world).await;
    let ask = |task_id: &str| call("get_task", json!({ "task_id": task_id }));
    ask(&second).key(&full).send(&world).await.structured();
    let refused = ask("no-such-task").key(&full).send(&world).await;
    assert_eq!(refused.code(), Some(-32001));
    let calls = world.engine.calls();
    for (key, task_id) in [
        (&narrow, second.as_str()),
        (&full, &second[..second.len() - 2]),
        (&full, "job_c2NyaXB0L0pPQjI"),
        (&full, &second[4..]),
    ] {
        assert_eq!(
            ask(task_id).key(key).send(&world).await,
            refused,
            "{task_id}"
        );
    }
    assert_eq!(world.engine.calls(), calls, "no engine is asked");
    assert_eq!(ask(&first).key(&full).send(&world).await, refused);
}
