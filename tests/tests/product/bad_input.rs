//! What comes in broken, and what is then answered: never a 5xx, never a guess.

use std::fs;
use std::path::{Path, PathBuf};

use raglan_core::clock::Clock as _;
use serde_json::{Value, json};

use crate::support::knowledge::index_handbook;
use crate::support::{Behaviour, Request, World, call, id, passage, rpc};

#[tokio::test]
async fn malformed_bodies_are_parse_errors_and_the_next_request_is_answered() {
    let world = World::start().await;
    let key = world.full_key().await;
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let truncated = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"#;
    let bodies: [&[u8]; 10] = [
        b"",
        b" ",
        b"{",
        b"nonsense",
        b"{'jsonrpc':'2.0'}",
        b"\xff\xfe\x00",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\x28\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} trailing",
        deep.as_bytes(),
        truncated.as_bytes(),
    ];
    for body in bodies {
        let answer = Request::post(body).in_base64().key(&key).send(&world).await;
        assert_eq!(
            (answer.status, answer.code()),
            (400, Some(-32700)),
            "{:?}",
            &body[..body.len().min(60)]
        );
    }
    let without_body = Request::new("POST", "/mcp").header("content-type", "application/json");
    let answer = without_body.key(&key).send(&world).await;
    assert_eq!((answer.status, answer.code()), (400, Some(-32700)));
    assert_eq!(
        rpc("ping", json!({})).key(&key).send(&world).await.status,
        200
    );
}

#[tokio::test]
async fn a_body_in_base64_is_the_same_body() {
    let world = World::start().await;
    let key = world.full_key().await;
    let request = || call("retrieve", json!({ "query": "年假", "kb_id": "handbook" })).key(&key);
    let plain = request().send(&world).await.structured();
    let encoded = request().in_base64().send(&world).await.structured();
    assert_eq!(plain["items"][0]["id"], encoded["items"][0]["id"]);
    assert_eq!(plain["items"][0]["metadata"]["title"], "年假");
}

#[tokio::test]
async fn the_body_limit_counts_bytes_and_is_exact() {
    let world = World::configured(|config| config.max_body_bytes = 1_000).await;
    let key = world.full_key().await;
    let padded = |size: usize| {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        Request::post(format!("{body}{}", " ".repeat(size - body.len()))).key(&key)
    };
    assert_eq!(padded(1_000).send(&world).await.status, 200);
    assert_eq!(padded(1_001).send(&world).await.status, 413);
    assert_eq!(padded(1_001).in_base64().send(&world).await.status, 413);
    assert_eq!(padded(1_000).in_base64().send(&world).await.status, 200);
}

#[tokio::test]
async fn json_is_recognised_by_its_media_type_alone() {
    let world = World::start().await;
    let key = world.full_key().await;
    for good in [
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        " application/json ;x=y",
    ] {
        let answer = rpc("ping", json!({}))
            .header("content-type", good)
            .key(&key)
            .send(&world)
            .await;
        assert_eq!(answer.status, 200, "{good}");
    }
    for bad in [
        "text/plain",
        "application/jsonp",
        "application/x-www-form-urlencoded",
        "",
        "json",
    ] {
        let answer = rpc("ping", json!({}))
            .header("content-type", bad)
            .key(&key)
            .send(&world)
            .await;
        assert_eq!(answer.status, 415, "{bad}");
    }
    let answer = rpc("ping", json!({}))
        .without("content-type")
        .key(&key)
        .send(&world)
        .await;
    assert_eq!(answer.status, 415);
}

#[tokio::test]
async fn the_key_is_asked_for_before_anything_of_the_body_is_judged() {
    let world = World::start().await;
    let huge = " ".repeat(600_000);
    for request in [
        Request::post("{"),
        Request::post(""),
        Request::post(huge),
        rpc("ping", json!({})).header("content-type", "text/plain"),
        Request::new("POST", "/mcp"),
    ] {
        assert_eq!(request.send(&world).await.status, 401);
    }
}

#[tokio::test]
async fn odd_paths_lead_to_the_endpoint_or_to_a_404_in_json() {
    let world = World::start().await;
    let key = world.full_key().await;
    let ping = |path: &str| rpc("ping", json!({})).path(path).key(&key);
    for path in ["/mcp", "/mcp/"] {
        assert_eq!(
            ping(path).query("a=b&c").send(&world).await.status,
            200,
            "{path}"
        );
    }
    for path in [
        "/",
        "/mcp//",
        "/MCP",
        "/mcp/x",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
        "/register",
        "/sse",
    ] {
        for request in [ping(path), Request::new("GET", path)] {
            let answer = request.send(&world).await;
            assert_eq!(
                (answer.status, &answer.json()["error"]),
                (404, &json!("not_found")),
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn a_switched_off_endpoint_is_a_404_for_every_method_before_the_key() {
    let world = World::configured(|config| config.mcp_enabled = false).await;
    let key = world.full_key().await;
    for request in [
        rpc("ping", json!({})).key(&key),
        rpc("ping", json!({})),
        Request::new("GET", "/mcp"),
        Request::new("DELETE", "/mcp"),
        Request::new("OPTIONS", "/mcp"),
    ] {
        assert_eq!(request.send(&world).await.status, 404);
    }
    assert_eq!(
        Request::new("GET", "/healthz").send(&world).await.status,
        200
    );
}

#[tokio::test]
async fn arguments_in_the_shapes_that_clients_are_known_to_send_are_understood() {
    let world = World::start().await;
    let key = world.full_key().await;
    for arguments in [
        json!({ "query": "leave", "top_k": "1" }),
        json!({ "query": "leave", "top_k": 1.0 }),
        json!({ "query": "leave", "top_k": "1.0" }),
        json!({ "query": "leave", "top_k": 1, "kb_id": "script" }),
        json!({ "query": "leave", "top_k": 1, "kb_id": "[\"script\"]" }),
        json!({ "query": "leave", "top_k": 1, "filters": "{\"domain\":\"hr\"}", "kb_id": ["script"] }),
        json!({ "query": "leave", "top_k": 1, "kb_id": null, "filters": null, "min_score": null }),
    ] {
        let found = call("retrieve", arguments.clone())
            .key(&key)
            .send(&world)
            .await
            .structured();
        assert_eq!(found["items"].as_array().unwrap().len(), 1, "{arguments}");
        assert_eq!(found.get("top_k_clamped"), None, "{arguments}");
    }
    for arguments in [Value::Null, json!(""), json!("{}"), json!({})] {
        let params = json!({ "name": "list_knowledge_bases", "arguments": arguments });
        match rpc("tools/call", params).key(&key).send(&world).await {
            answer if arguments == json!("") => assert_eq!(answer.code(), Some(-32602)),
            answer => assert_eq!(answer.structured()["items"].as_array().unwrap().len(), 4),
        }
    }
    let params = json!({ "name": "list_knowledge_bases" });
    rpc("tools/call", params)
        .key(&key)
        .send(&world)
        .await
        .structured();
    let params = json!({ "name": "retrieve", "arguments": "{\"query\":\"leave\"}" });
    rpc("tools/call", params)
        .key(&key)
        .send(&world)
        .await
        .structured();
}

#[tokio::test]
async fn arguments_that_cannot_be_understood_are_named_and_never_guessed() {
    let world = World::start().await;
    let key = world.full_key().await;
    for (arguments, named) in [
        (json!({ "query": "x", "top_k": -1 }), "`top_k`"),
        (json!({ "query": "x", "top_k": 0 }), "`top_k`"),
        (json!({ "query": "x", "top_k": "many" }), "`top_k`"),
        (json!({ "query": "x", "top_k": 2.5 }), "`top_k`"),
        (json!({ "query": "x", "top_k": [3] }), "`top_k`"),
        (json!({}), "`query`"),
        (json!({ "query": null }), "`query`"),
        (json!({ "query": "" }), "`query`"),
        (json!({ "query": " \n\t" }), "`query`"),
        (json!({ "query": 7 }), "`query`"),
        (json!({ "query": "x".repeat(8_001) }), "`query`"),
        (
            json!({ "query": "x", "kb_id": { "id": "script" } }),
            "`kb_id`",
        ),
        (
            json!({ "query": "x", "filters": { "updated_after": "yesterday" } }),
            "`filters.updated_after`",
        ),
        (json!({ "query": "x", "kb_ids": "script" }), "`kb_ids`"),
    ] {
        let answer = call("retrieve", arguments.clone())
            .key(&key)
            .send(&world)
            .await;
        let (text, meta) = answer.tool_error();
        assert_eq!(meta["code"], "invalid_arguments");
        assert!(text.contains(named), "{arguments}: {text}");
    }
    for arguments in [
        json!([]),
        json!(7),
        json!(true),
        json!("no json"),
        json!("[1]"),
    ] {
        let params = json!({ "name": "retrieve", "arguments": arguments });
        let answer = rpc("tools/call", params).key(&key).send(&world).await;
        assert_eq!(
            (answer.status, answer.code()),
            (400, Some(-32602)),
            "{arguments}"
        );
    }
    assert_eq!(world.engine.calls(), 0);
}

#[tokio::test]
async fn a_huge_top_k_is_clamped_and_says_so() {
    let world = World::start().await;
    let key = world.full_key().await;
    for top_k in [json!(51), json!(1_000_000), json!("1000000"), json!(1e300)] {
        for (tool, query) in [("retrieve", "query"), ("ask", "question")] {
            let arguments = json!({ query: "leave", "top_k": top_k, "kb_id": "script" });
            let result = call(tool, arguments)
                .key(&key)
                .send(&world)
                .await
                .structured();
            assert_eq!(result["top_k_clamped"], true, "{tool} {top_k}");
        }
    }
    assert!(
        world
            .engine
            .requests()
            .iter()
            .all(|request| request.top_k == 50)
    );
}

#[tokio::test]
async fn a_query_of_a_megabyte_is_refused_and_the_longest_allowed_one_is_searched() {
    let world = World::start().await;
    let key = world.full_key().await;
    let huge = call("retrieve", json!({ "query": "x".repeat(1_000_000) }));
    assert_eq!(huge.key(&key).send(&world).await.status, 413);
    let words = format!("leave {}", "word ".repeat(1_598));
    let longest: String = words
        .chars()
        .chain("x".repeat(8_000).chars())
        .take(8_000)
        .collect();
    for kb_id in ["handbook", "script"] {
        let arguments = json!({ "query": longest, "kb_id": kb_id });
        let found = call("retrieve", arguments)
            .key(&key)
            .send(&world)
            .await
            .structured();
        assert_eq!(found["status"], "success", "{kb_id}");
    }
}

#[tokio::test]
async fn queries_of_nothing_but_signs_are_searched_without_harm() {
    let world = World::start().await;
    let key = world.full_key().await;
    for query in [
        "?",
        "\"",
        "AND OR NOT",
        "title:(",
        "* OR 1=1",
        "\\",
        "\u{0}",
        "🦀🦀🦀",
        "\u{202e}evil",
        "{{7*7}}",
        "../../etc/passwd",
        "+-!(){}[]^~*?:",
    ] {
        for (tool, name) in [("retrieve", "query"), ("ask", "question")] {
            let arguments = json!({ name: query, "kb_id": "handbook" });
            call(tool, arguments)
                .key(&key)
                .send(&world)
                .await
                .structured();
        }
    }
}

#[tokio::test]
async fn lone_surrogates_and_odd_escapes_are_no_server_error() {
    let world = World::start().await;
    let key = world.full_key().await;
    let body = |query: &str| {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"retrieve","arguments":{{"query":"{query}"}}}}}}"#
        );
        Request::post(text).key(&key)
    };
    assert_eq!(body("\\ud800").send(&world).await.status, 400);
    assert_eq!(body("\\ud83e\\udd80").send(&world).await.status, 200);
    assert_eq!(body("\\u0000").send(&world).await.status, 200);
}

#[tokio::test]
async fn ids_that_no_knowledge_base_or_task_can_have_are_like_ids_that_are_not_there() {
    let world = World::start().await;
    let key = world.full_key().await;
    let absent = |tool: &str, arguments: Value| call(tool, arguments).key(&key);
    let expected = absent("retrieve", json!({ "query": "x", "kb_id": "no-such" }))
        .send(&world)
        .await;
    for odd in [
        "../handbook",
        "HANDBOOK",
        "handbook ",
        "owner#anna",
        "all",
        "*",
        "%68andbook",
        "机密",
    ] {
        let answer = absent("retrieve", json!({ "query": "x", "kb_id": odd }))
            .send(&world)
            .await;
        assert_eq!(answer, expected, "{odd}");
    }
    let expected = absent("get_task", json!({ "task_id": "no-such" }))
        .send(&world)
        .await;
    for odd in ["task#task-handbook", "*", "../task-handbook", "任务"] {
        let answer = absent("get_task", json!({ "task_id": odd }))
            .send(&world)
            .await;
        assert_eq!(answer, expected, "{odd}");
    }
}

/// What is wrong with an index, and how it comes about.
type Damage = (&'static str, fn(&World));

/// The folder of the generation that answers for `handbook`.
fn generation(world: &World) -> PathBuf {
    let directory = world.index_dir.join("handbook");
    let name = fs::read_to_string(directory.join("CURRENT")).unwrap();
    directory.join(name.trim())
}

fn edit_manifest(generation: &Path, change: impl FnOnce(&mut Value)) {
    let path = generation.join("manifest.json");
    let mut manifest = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut manifest);
    fs::write(&path, manifest.to_string()).unwrap();
}

#[tokio::test]
async fn an_index_that_is_missing_damaged_or_foreign_is_the_operators_fault_and_names_no_path() {
    let damages: [Damage; 8] = [
        ("missing root", |world| {
            fs::remove_dir_all(&world.index_dir).unwrap();
        }),
        ("missing index", |world| {
            fs::remove_dir_all(world.index_dir.join("handbook")).unwrap();
        }),
        ("missing generation", |world| {
            fs::remove_dir_all(generation(world)).unwrap();
        }),
        ("CURRENT leads away", |world| {
            fs::write(world.index_dir.join("handbook/CURRENT"), "../../../etc\n").unwrap();
        }),
        ("damaged manifest", |world| {
            fs::write(generation(world).join("manifest.json"), "{").unwrap();
        }),
        ("another format", |world| {
            edit_manifest(&generation(world), |manifest| {
                manifest["format_version"] = 999.into();
            });
        }),
        ("another tantivy", |world| {
            edit_manifest(&generation(world), |manifest| {
                manifest["tantivy_version"] = "0.1".into();
            });
        }),
        ("truncated files", |world| {
            for file in fs::read_dir(generation(world)).unwrap() {
                let path = file.unwrap().path();
                if path
                    .extension()
                    .is_some_and(|extension| extension != "json")
                {
                    fs::write(path, "x").unwrap();
                }
            }
        }),
    ];
    for (damage, damaged) in damages {
        let world = World::start().await;
        let key = world.full_key().await;
        damaged(&world);
        for (tool, arguments) in [
            ("retrieve", json!({ "query": "leave", "kb_id": "handbook" })),
            ("ask", json!({ "question": "leave?", "kb_id": "handbook" })),
            ("list_documents", json!({ "kb_id": "handbook" })),
        ] {
            let answer = call(tool, arguments).key(&key).send(&world).await;
            let (text, meta) = answer.tool_error();
            assert_eq!(
                meta["code"], "backend_misconfigured",
                "{damage}: {tool}: {text}"
            );
            assert_eq!(meta["retryable"], false, "{damage}");
            let tells = ["/", "tantivy", "manifest", "CURRENT"]
                .iter()
                .any(|word| text.contains(word));
            assert!(!tells, "{damage}: {text}");
        }
        let arguments = json!({ "kb_id": "handbook" });
        let described = call("get_knowledge_base", arguments)
            .key(&key)
            .send(&world)
            .await
            .structured();
        assert_eq!(
            described["warnings"].as_array().unwrap().len(),
            1,
            "{damage}"
        );
        // Beside one that works the damage is a warning.
        let found = call("retrieve", json!({ "query": "leave" }))
            .key(&key)
            .send(&world)
            .await
            .structured();
        assert_eq!(found["status"], "partial", "{damage}");
        // A new index answers at once.
        index_handbook(
            &world.index_dir,
            &id("handbook"),
            world.clock.now().plus_seconds(1),
        );
        let arguments = json!({ "query": "leave", "kb_id": "handbook" });
        let found = call("retrieve", arguments)
            .key(&key)
            .send(&world)
            .await
            .structured();
        assert_eq!(found["status"], "success", "{damage}");
    }
}

#[tokio::test]
async fn a_knowledge_base_of_an_engine_that_is_not_configured_is_the_operators_fault() {
    let world = World::start().await;
    world
        .add_knowledge_base("elsewhere", None, "no-such-engine")
        .await;
    let key = world.full_key().await;
    let arguments = json!({ "query": "leave", "kb_id": "elsewhere" });
    let (text, meta) = call("retrieve", arguments)
        .key(&key)
        .send(&world)
        .await
        .tool_error();
    assert_eq!(meta["code"], "backend_misconfigured");
    assert!(!text.contains("no-such-engine"), "{text}");
}

#[tokio::test]
async fn a_damaged_entry_of_the_catalogue_hides_itself_and_nothing_else() {
    let world = World::start().await;
    let key = world.full_key().await;
    let text = |text: &str| aws_sdk_dynamodb::types::AttributeValue::S(text.to_owned());
    for partition in ["all", "owner#anna"] {
        world
            .clients
            .dynamodb
            .sdk()
            .put_item()
            .table_name(&world.resources.catalog_table)
            .item("partition", text(partition))
            .item("sort", text("damaged"))
            .item("id", text("NOT AN ID"))
            .send()
            .await
            .unwrap();
    }
    let listed = call("list_knowledge_bases", json!({}))
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(listed["items"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn engine_text_with_hidden_characters_comes_out_clean_in_text_and_metadata() {
    let world = World::start().await;
    let key = world.full_key().await;
    let hidden = "\u{e0049}\u{e0047}\u{e004e}\u{200b}\u{202e}";
    let mut poisoned = passage(1, &format!("Leave{hidden} is thirty days."));
    poisoned.title = format!("Title{hidden}");
    poisoned.filename = format!("file{hidden}.md");
    poisoned.uri = Some(format!("https://wiki.example/{hidden}"));
    poisoned.section = Some(format!("Section{hidden}"));
    poisoned
        .metadata
        .insert(format!("name{hidden}"), format!("value{hidden}").into());
    world
        .engine
        .order("script", Behaviour::Passages(vec![poisoned]));
    for (tool, arguments) in [
        ("retrieve", json!({ "query": "leave", "kb_id": "script" })),
        (
            "ask",
            json!({ "question": "leave is thirty days?", "kb_id": "script" }),
        ),
        ("list_documents", json!({ "kb_id": "script" })),
    ] {
        let answer = call(tool, arguments).key(&key).send(&world).await;
        answer.structured();
        let found: Vec<char> = answer
            .body
            .chars()
            .filter(|c| hidden.contains(*c))
            .collect();
        assert!(found.is_empty(), "{tool}: {found:?}: {}", answer.body);
    }
}
