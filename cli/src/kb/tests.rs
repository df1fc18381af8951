use std::io::{Cursor, Write};
use std::sync::Arc;

use clap::Parser as _;
use raglan_core::clock::SystemClock;
use raglan_core::random::SystemRandom;
use raglan_engines::call::Surroundings;
use raglan_engines::configuration::parse;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::arguments::Arguments;
use crate::terminal::Console;
use crate::testing::{Capture, World};

/// An engine that gives this list, whatever it is asked.
async fn engine(list: &Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let body = list.to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes()).await;
        }
    });
    url
}

/// What `raglan kb discover` does over these engines.
async fn discovered(
    world: &World,
    engines: &Value,
    only: Option<&str>,
) -> (Outcome, Value, String) {
    let (out, err) = (Capture::default(), Capture::default());
    let outcome = {
        let mut console = Console {
            out: Box::new(out.clone()) as Box<dyn Write>,
            err: Box::new(err.clone()),
            input: Box::new(Cursor::new(String::new())),
            is_out_terminal: false,
            is_input_terminal: false,
        };
        let mut session = Session {
            target: &world.target,
            console: &mut console,
            json: true,
            clock: world.clock.as_ref(),
            random: &world.random,
        };
        let surroundings =
            Surroundings::from_environment(Arc::new(SystemClock), Arc::new(SystemRandom));
        let engines = parse(&engines.to_string()).unwrap();
        discover(&mut session, &engines, &surroundings, only)
            .await
            .unwrap()
    };
    (
        outcome,
        serde_json::from_str(&out.text()).unwrap(),
        err.text(),
    )
}

#[tokio::test]
async fn what_an_engine_holds_is_listed_with_its_place_in_the_catalogue() {
    let world = World::start().await;
    let url = engine(&json!({ "object": "list", "has_more": false, "data": [
        { "id": "vs_1", "name": "Handbook", "file_counts": { "completed": 7 } },
        { "id": "vs_2", "name": "", "description": "Notes" }
    ] }))
    .await;
    let added = world
        .run(&[
            "kb",
            "add",
            "handbook",
            "--backend",
            "wiki",
            "--backend-id",
            "vs_1",
            "--description",
            "d",
            "--json",
        ])
        .await;
    assert_eq!(added.text("/strategy"), "engine");
    let engines = json!({
        "wiki": { "type": "openai", "url": url },
        "gone": { "type": "openai", "url": "http://127.0.0.1:1/v1" }
    });
    let (outcome, found, err) = discovered(&world, &engines, Some("wiki")).await;
    assert_eq!((outcome, err.as_str()), (Outcome::Done, ""));
    assert_eq!(
        found["items"],
        json!([
            { "engine": "wiki", "id": "vs_1", "name": "Handbook", "description": null,
              "document_count": 7, "entered_as": ["handbook"] },
            { "engine": "wiki", "id": "vs_2", "name": "vs_2", "description": "Notes",
              "document_count": null, "entered_as": [] }
        ])
    );
    let (outcome, found, err) = discovered(&world, &engines, None).await;
    assert_eq!(outcome, Outcome::Incomplete);
    assert_eq!(found["items"].as_array().unwrap().len(), 2);
    assert!(err.contains("gone"), "{err}");
}

#[tokio::test]
async fn an_engine_that_nobody_configured_is_not_found() {
    let world = World::start().await;
    let discovering = world.run(&["kb", "discover", "wiki"]).await;
    assert_eq!(discovering.outcome, Outcome::Usage, "{discovering:?}");
    let line = [
        "raglan",
        "kb",
        "add",
        "a",
        "--backend",
        "No Name",
        "--description",
        "d",
    ];
    assert!(Arguments::try_parse_from(line).is_err());
}
