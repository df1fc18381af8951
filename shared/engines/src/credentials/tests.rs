use aws_config::{BehaviorVersion, Region};
use aws_sdk_secretsmanager::config::{Credentials as AwsKeys, SharedCredentialsProvider};
use raglan_core::clock::ManualClock;
use serde_json::json;

use crate::call::{CredentialHeader, EngineClient, EngineRequest, ExchangeLimits, Surroundings};
use crate::configuration::EngineUrl;
use crate::testing::{Behaviour, FakeEngine, clock, surroundings};

use super::*;

const TIME: Duration = Duration::from_secs(5);

/// The SDK, talking to a server that answers as AWS does.
fn credentials(aws: &FakeEngine, clock: &Arc<ManualClock>) -> Credentials {
    let keys = AwsKeys::new("local", "local", None, None, "test");
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("eu-central-1"))
        .credentials_provider(SharedCredentialsProvider::new(keys))
        .http_client(raglan_aws::transport::sdk_http_client())
        .retry_config(aws_config::retry::RetryConfig::disabled())
        .endpoint_url(&aws.url)
        .build();
    Credentials::of_config(&config, |_| None, Arc::clone(clock) as _)
}

fn aws_answer(status: u16, body: &Value) -> Behaviour {
    Behaviour::Answer(status, "application/x-amz-json-1.1", "", body.to_string())
}

fn secret_value(text: &str) -> Behaviour {
    aws_answer(
        200,
        &json!({ "Name": "raglan/engine", "SecretString": text }),
    )
}

fn reference(text: &str) -> CredentialReference {
    CredentialReference::parse(text).unwrap()
}

#[test]
fn references_are_read_and_written_alike_and_nothing_else_is_one() {
    for good in [
        "secretsmanager:raglan/engine",
        "secretsmanager:arn:aws:secretsmanager:eu-central-1:1:secret:raglan-a1b2c3",
        "secretsmanager:raglan/engine#api_key",
        "ssm:/raglan/engine",
        "env:ENGINE_KEY",
    ] {
        assert_eq!(reference(good).to_string(), good);
    }
    for bad in [
        "",
        "env:",
        "ssm: /a",
        "secretsmanager:#a",
        "secretsmanager:a#",
        "file:/etc/passwd",
    ] {
        assert!(CredentialReference::parse(bad).is_err(), "{bad}");
    }
    let error = CredentialReference::parse("sk-hunter2").unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_secret_is_asked_for_once_and_again_when_it_is_old() {
    let aws = FakeEngine::start([secret_value("first\n"), secret_value("second")]).await;
    let clock = clock();
    let credentials = credentials(&aws, &clock);
    let reference = reference("secretsmanager:raglan/engine");
    for _ in 0..3 {
        let secret = credentials.get(&reference, TIME).await.unwrap();
        assert_eq!(secret.expose(), "first");
    }
    let asked = aws.last();
    assert_eq!(
        asked.headers["x-amz-target"],
        "secretsmanager.GetSecretValue"
    );
    assert_eq!(asked.body, json!({ "SecretId": "raglan/engine" }));
    assert_eq!(aws.received().len(), 1);
    clock.advance_seconds(Credentials::TTL_SECONDS);
    let secret = credentials.get(&reference, TIME).await.unwrap();
    assert_eq!(secret.expose(), "second");
}

#[tokio::test]
async fn a_parameter_is_asked_for_decrypted_and_a_field_is_taken_out_of_its_object() {
    let parameter = aws_answer(200, &json!({ "Parameter": { "Value": "from-ssm" } }));
    let aws = FakeEngine::start([
        parameter,
        secret_value(r#"{ "user": "u", "api_key": "from-field" }"#),
    ])
    .await;
    let credentials = credentials(&aws, &clock());
    let secret = credentials
        .get(&reference("ssm:/raglan/engine"), TIME)
        .await;
    assert_eq!(secret.unwrap().expose(), "from-ssm");
    let asked = aws.last();
    assert_eq!(asked.headers["x-amz-target"], "AmazonSSM.GetParameter");
    assert_eq!(
        asked.body,
        json!({ "Name": "/raglan/engine", "WithDecryption": true })
    );
    let field = reference("secretsmanager:raglan/engine#api_key");
    let secret = credentials.get(&field, TIME).await;
    assert_eq!(secret.unwrap().expose(), "from-field");
}

#[tokio::test]
async fn what_is_missing_denied_or_no_secret_is_told_without_its_text() {
    let code = |code: &str| aws_answer(400, &json!({ "__type": code, "message": "hunter2" }));
    for (answer, retryable) in [
        (code("ResourceNotFoundException"), false),
        (code("AccessDeniedException"), false),
        (code("ThrottlingException"), true),
        (secret_value("hunter2"), false),
        (secret_value("{}"), false),
        (Behaviour::Close, true),
        (Behaviour::Hang, true),
    ] {
        let aws = FakeEngine::start([answer.clone()]).await;
        let credentials = credentials(&aws, &clock());
        let reference = reference("secretsmanager:raglan/engine#key");
        let time = Duration::from_millis(500);
        let error = credentials.get(&reference, time).await.unwrap_err();
        let error = BackendError::from(error);
        assert!(!error.to_string().contains("hunter2"), "{error}");
        assert_eq!(error.retryable(), retryable, "{answer:?}: {error}");
    }
    let aws = FakeEngine::start([]).await;
    let credentials = credentials(&aws, &clock());
    let error = credentials
        .get(&reference("env:NOT_SET"), TIME)
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "env:NOT_SET is not set");
}

#[tokio::test]
async fn an_old_secret_is_better_than_none_while_aws_is_away() {
    let aws = FakeEngine::start([secret_value("first"), Behaviour::Close]).await;
    let clock = clock();
    let credentials = credentials(&aws, &clock);
    let reference = reference("secretsmanager:raglan/engine");
    credentials.get(&reference, TIME).await.unwrap();
    clock.advance_seconds(Credentials::TTL_SECONDS);
    let secret = credentials.get(&reference, TIME).await.unwrap();
    assert_eq!(secret.expose(), "first");
}

fn engine_with(credentials: Credentials, url: &str, clock: &Arc<ManualClock>) -> EngineClient {
    EngineClient::new(
        "engine".to_owned(),
        EngineUrl::parse(url).unwrap(),
        Some(reference("secretsmanager:raglan/engine")),
        CredentialHeader::Bearer,
        ExchangeLimits {
            attempt_timeout: TIME,
            response_max_bytes: 65_536,
        },
        Surroundings {
            credentials: Arc::new(credentials),
            ..surroundings(clock)
        },
    )
}

#[tokio::test]
async fn a_rotated_secret_is_found_out_by_a_401_without_a_failed_call() {
    let aws = FakeEngine::start([secret_value("old"), secret_value("new")]).await;
    let refused = Behaviour::status(401, &json!({}));
    let engine = FakeEngine::start([refused.clone()]).await;
    let clock = clock();
    let client = engine_with(credentials(&aws, &clock), &engine.url, &clock);
    let request = EngineRequest::get(&["x"]);
    let call = raglan_rag::backend::EngineCall::within(TIME);
    // The secret is read now and is too young to be read again by the same call.
    assert!(client.send(&request, &call).await.is_err());
    engine.order_all([refused, Behaviour::json(&json!({}))]);
    clock.advance_seconds(Credentials::RENEWAL_SECONDS);
    assert!(client.send(&request, &call).await.is_ok());
    let sent: Vec<String> = engine
        .received()
        .iter()
        .map(|received| received.headers["authorization"].clone())
        .collect();
    assert_eq!(sent, ["Bearer old", "Bearer old", "Bearer new"]);
}

#[tokio::test]
async fn a_secret_that_stays_refused_does_not_become_many_calls_to_aws() {
    let aws = FakeEngine::start([secret_value("wrong")]).await;
    let engine = FakeEngine::start([Behaviour::status(401, &json!({}))]).await;
    let clock = clock();
    let client = engine_with(credentials(&aws, &clock), &engine.url, &clock);
    let call = raglan_rag::backend::EngineCall::within(TIME);
    for _ in 0..10 {
        let answer = client.send(&EngineRequest::get(&["x"]), &call).await;
        assert!(
            BackendError::from(answer.unwrap_err())
                .to_string()
                .contains("401")
        );
    }
    assert_eq!(aws.received().len(), 1);
}
