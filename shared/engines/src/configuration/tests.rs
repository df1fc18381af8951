use super::*;

fn problems(text: &str) -> String {
    parse(text).unwrap_err().join("; ")
}

#[test]
fn every_type_is_read_with_its_settings() {
    let engines = parse(
        r#"{
            "litellm": { "type": "openai", "url": "https://litellm.example/v1/",
                "credential": "secretsmanager:raglan/litellm#api_key", "ranker": "auto",
                "score_threshold": 0.25, "fields": { "updated_at": "modified" } },
            "dify": { "type": "dify", "url": "http://127.0.0.1:5001/v1", "credential": "env:DIFY_KEY",
                "search_method": "semantic_search",
                "rerank": { "provider": "cohere", "model": "rerank-v3" } },
            "wiki": { "type": "dify_external", "url": "https://wiki.example/dify",
                "knowledge_bases": [{ "id": "k1", "name": "Wiki" }], "tells_metadata": false },
            "flow": { "type": "ragflow", "url": "https://flow.example", "credential": "ssm:/raglan/flow",
                "vector_weight": 0.5, "request_timeout_seconds": 20, "moments": "rfc3339" },
            "aws": { "type": "bedrock", "region": "eu-central-1", "search_type": "hybrid",
                "knowledge_base_type": "managed", "guardrail": { "id": "g", "version": "1" } }
        }"#,
    )
    .unwrap();
    let litellm = &engines["litellm"];
    assert_eq!(litellm.attributes.of("updated_at"), "modified");
    assert_eq!(litellm.attributes.of("title"), "title");
    assert_eq!(litellm.score_threshold, Some(0.25));
    let Kind::OpenAi(settings) = &litellm.kind else {
        panic!("{litellm:?}");
    };
    assert_eq!(settings.url.to_string(), "https://litellm.example/v1");
    assert_eq!(settings.credential_header, CredentialHeader::Bearer);
    let Kind::DifyExternal(settings) = &engines["wiki"].kind else {
        panic!("{:?}", engines["wiki"]);
    };
    assert_eq!(settings.knowledge_bases[0].id, "k1");
    let Kind::Bedrock(settings) = &engines["aws"].kind else {
        panic!("{:?}", engines["aws"]);
    };
    assert_eq!(settings.knowledge_base_type, Some(BedrockType::Managed));
    assert_eq!(settings.search_type.as_deref(), Some("HYBRID"));
    assert_eq!(settings.region.as_deref(), Some("eu-central-1"));
    assert!(settings.rerank.is_none() && settings.tells_metadata);
    assert_eq!(engines["flow"].limits.attempt_timeout.as_secs(), 20);
    assert_eq!(engines["flow"].attributes.moments, MomentFormat::Rfc3339);
}

#[test]
fn one_line_names_every_bad_field_and_no_value() {
    let line = problems(
        r#"{
            "a": { "type": "openai", "url": "https://user:hunter2@a.example", "x": 1 },
            "b": { "type": "openai", "url": "http://b.example/v1", "credential": "sk-hunter2" },
            "c": { "type": "openai", "url": "https://c.example/v1", "credential": "sk-hunter2",
                   "score_threshold": 2, "request_timeout_seconds": 0, "retries": 3,
                   "fields": { "author": "writer" } },
            "d": { "type": "elastic" },
            "e": { "url": "https://e.example" },
            "f": { "type": "dify", "url": "https://f.example/v1?api_key=hunter2" },
            "g": { "type": "dify", "url": "https://g.example/v1", "search_method": "best",
                   "rerank": { "model": "m" } },
            "h": { "type": "dify_external", "url": "https://h.example", "knowledge_bases": [{}, 7] },
            "j": { "type": "bedrock", "credential": "env:KEY", "knowledge_base_type": "mine",
                   "endpoint_url": "http://j.example", "guardrail": { "id": "g" } },
            "embedded": {},
            "Upper": {},
            "i": 7
        }"#,
    );
    assert!(!line.contains("hunter2"), "{line}");
    for named in [
        "a.url: expected a URL without user and password",
        "b.url: expected an https URL",
        "c.credential: expected secretsmanager:NAME",
        "c.score_threshold: expected a number from 0 to 1",
        "c.request_timeout_seconds: expected a number from 1 to 300",
        "c.\"retries\" is not known",
        "c.fields.\"author\" is not known",
        "d.type: expected openai, dify, dify_external, ragflow or bedrock",
        "j.credential: Bedrock is asked with the role of the function",
        "j.knowledge_base_type: expected one of ask, managed, vector",
        "j.endpoint_url: expected an https URL",
        "j.guardrail.version: is missing",
        "e.type: is missing",
        "f.url: expected a URL without query and fragment",
        "g.search_method: expected one of hybrid_search",
        "g.rerank.provider: is missing",
        "h.knowledge_bases[0].id: is missing",
        "h.knowledge_bases[1]: expected an object",
        "the name \"embedded\"",
        "the name \"Upper\"",
        "i is no object",
    ] {
        assert!(line.contains(named), "{named} in {line}");
    }
    assert!(!line.contains('\n'));
}

#[test]
fn a_bad_url_hides_no_other_problem_and_no_value_is_told() {
    let told = problems(
        r#"{"x": {"type": "openai", "url": "http://wiki.example/v1", "credential": "sk-123secret", "tieout": 3},
            "y": {"type": "dify", "rerank": 1}}"#,
    );
    for place in [
        "x.url:",
        "x.credential:",
        "x.\"tieout\"",
        "y.url:",
        "y.rerank:",
    ] {
        assert!(told.contains(place), "{place} is missing: {told}");
    }
    assert!(
        !told.contains("sk-123secret") && !told.contains("wiki.example"),
        "{told}"
    );
}

#[test]
fn what_is_no_json_is_named_by_its_place_only() {
    assert_eq!(
        problems("{\"a\": hunter2}"),
        "is no JSON object from names to engines (line 1, column 7)"
    );
}

#[test]
fn plain_http_is_for_this_machine_only() {
    for good in [
        "https://engine.example",
        "http://localhost:8080/v1",
        "http://127.0.0.2",
        "http://[::1]:80",
    ] {
        assert!(EngineUrl::parse(good).is_ok(), "{good}");
    }
    for bad in [
        "",
        "engine.example",
        "/v1",
        "ftp://engine.example",
        "http://10.0.0.1",
        "http://169.254.169.254",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "https://engine.example#v1",
        "https://a@engine.example",
    ] {
        assert!(EngineUrl::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_engines_come_from_one_of_the_two_variables() {
    let read = |pairs: &[(&str, &str)]| {
        let mut settings = Settings::new(|name: &str| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        let engines = from_settings(&mut settings);
        settings.finish(engines)
    };
    assert!(read(&[]).unwrap().is_empty());
    let engine = r#"{ "a": { "type": "ragflow", "url": "https://a.example" } }"#;
    assert_eq!(read(&[(INLINE, engine)]).unwrap().len(), 1);
    let both = read(&[(INLINE, "{}"), (FILE, "/x")]).unwrap_err();
    assert!(
        both.to_string()
            .contains("BACKENDS and BACKENDS_FILE are both set")
    );
    let missing = read(&[(FILE, "/nonexistent/raglan.json")]).unwrap_err();
    assert!(missing.to_string().contains("BACKENDS_FILE cannot be read"));
    let bad = read(&[(INLINE, r#"{ "a": { "type": "x" } }"#)]).unwrap_err();
    assert!(bad.to_string().contains("BACKENDS: a.type: expected"));
}
