use std::sync::Arc;

use raglan_aws::LazyAccount;
use raglan_core::clock::{ManualClock, Timestamp};
use raglan_core::random::SequenceRandom;
use raglan_engines::configuration::EngineUrl;
use raglan_engines::credentials::{CredentialReference, Credentials};
use raglan_outbound::OutboundClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Answers one request with this status and body, and tells what it was asked.
async fn server(status: &str, body: &Value) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let body = body.to_string();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        let mut part = [0; 4096];
        // The body is one JSON object.
        while !request.ends_with(b"}") {
            let read = stream.read(&mut part).await.unwrap();
            request.extend_from_slice(&part[..read]);
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap()
    });
    (url, asked)
}

fn embedder(url: &str, purpose: PurposeStyle, dimension: Option<usize>) -> OpenAiEmbedder {
    let now = Timestamp::from_epoch_seconds(0);
    let clock = Arc::new(ManualClock::at(now));
    let environment = |name: &str| (name == "KEY").then(|| "sk-secret".to_owned());
    let account = aws_config();
    let configuration = EmbeddingsConfiguration {
        url: EngineUrl::parse(url).unwrap(),
        model: "e5".to_owned(),
        credential: Some(CredentialReference::parse("env:KEY").unwrap()),
        purpose,
        dimension,
    };
    OpenAiEmbedder::new(
        configuration,
        Surroundings {
            outbound: Arc::new(OutboundClient::default()),
            credentials: Arc::new(Credentials::of_config(
                &account,
                environment,
                Arc::clone(&clock) as _,
            )),
            account: Arc::new(LazyAccount::loaded(account)),
            clock,
            random: Arc::new(SequenceRandom::seeded(1)),
        },
    )
}

fn aws_config() -> aws_config::SdkConfig {
    aws_config::SdkConfig::builder()
        .behavior_version(aws_config::BehaviorVersion::latest())
        .build()
}

fn texts() -> Vec<String> {
    vec!["one".to_owned(), "two".to_owned()]
}

async fn ask(embedder: &OpenAiEmbedder) -> Result<Vec<Vec<f32>>, BackendError> {
    let call = EngineCall::within(Duration::from_secs(30));
    embedder.embed(&texts(), Purpose::Query, &call).await
}

#[tokio::test]
async fn vectors_come_back_in_the_order_of_the_texts() {
    let body = json!({ "data": [
        { "index": 1, "embedding": [0.0, 1.0] }, { "index": 0, "embedding": [1, 0] } ] });
    let (url, asked) = server("200 OK", &body).await;
    let found = ask(&embedder(&url, PurposeStyle::Prefix, Some(2))).await;
    assert_eq!(found.unwrap(), [[1.0, 0.0], [0.0, 1.0]]);
    let asked = asked.await.unwrap();
    assert!(asked.starts_with("POST /v1/embeddings HTTP/1.1"), "{asked}");
    assert!(asked.contains("authorization: Bearer sk-secret"), "{asked}");
    let body: Value = serde_json::from_str(asked.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(
        body,
        json!({ "model": "e5", "input": ["query: one", "query: two"],
            "encoding_format": "float", "dimensions": 2 })
    );
}

#[tokio::test]
async fn the_purpose_is_a_field_where_the_model_wants_it() {
    let body = json!({ "data": [
        { "index": 0, "embedding": [1.0] }, { "index": 1, "embedding": [2.0] } ] });
    let (url, asked) = server("200 OK", &body).await;
    ask(&embedder(&url, PurposeStyle::InputType, None))
        .await
        .unwrap();
    let asked = asked.await.unwrap();
    assert!(asked.contains(r#""input":["one","two"]"#), "{asked}");
    assert!(asked.contains(r#""input_type":"query""#), "{asked}");
}

#[tokio::test]
async fn an_answer_with_other_vectors_than_asked_for_is_no_answer() {
    for data in [
        json!([{ "index": 0, "embedding": [1.0] }]),
        json!([{ "index": 0, "embedding": [1.0] }, { "index": 0, "embedding": [1.0] }]),
        json!([{ "index": 0, "embedding": [1.0] }, { "index": 1, "embedding": [1.0, 2.0] }]),
        json!([{ "index": 0, "embedding": [] }, { "index": 1, "embedding": [] }]),
        json!([{ "index": 0, "embedding": "AAAA" }, { "index": 1, "embedding": "AAAA" }]),
    ] {
        let (url, _asked) = server("200 OK", &json!({ "data": data })).await;
        let found = ask(&embedder(&url, PurposeStyle::None, None)).await;
        assert!(
            matches!(found, Err(BackendError::UnreadableAnswer(_))),
            "{data}: {found:?}"
        );
    }
}

#[tokio::test]
async fn a_model_that_is_not_there_is_no_empty_answer() {
    let (url, _asked) = server("404 Not Found", &json!({ "error": { "message": "no" } })).await;
    let found = ask(&embedder(&url, PurposeStyle::None, None)).await;
    assert!(
        matches!(found, Err(BackendError::Unsupported(_))),
        "{found:?}"
    );
}
