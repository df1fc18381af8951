use std::time::Duration;

use raglan_engines::breaker::FAILURES_TO_OPEN;
use raglan_rag::backend::{Backend as _, BackendError, EngineCall};
use serde_json::json;

use crate::testing::{FakeBedrock, KB, Reply, call, request, result, results};

async fn fake(replies: impl IntoIterator<Item = Reply>) -> FakeBedrock {
    let fake = FakeBedrock::start().await;
    fake.on_retrieve(replies);
    fake
}

/// No question about the kind comes before the search.
fn settings() -> serde_json::Value {
    json!({ "knowledge_base_type": "vector" })
}

async fn outcome(fake: &FakeBedrock, call: &EngineCall) -> Result<usize, BackendError> {
    let backend = fake.backend(&settings());
    let found = backend.retrieve(KB, &request(), call).await?;
    Ok(found.passages.len())
}

#[tokio::test]
async fn every_failure_of_the_service_is_told_in_our_words() {
    type Check = fn(&BackendError) -> bool;
    let table: [(Reply, Check); 10] = [
        (Reply::Error(429, "ThrottlingException", "slow down"), |e| {
            matches!(e, BackendError::Throttled)
        }),
        (
            Reply::Error(400, "ServiceQuotaExceededException", "quota"),
            |e| matches!(e, BackendError::Throttled),
        ),
        (Reply::Error(403, "AccessDeniedException", "no"), |e| {
            matches!(e, BackendError::Refused(_))
        }),
        (
            Reply::Error(403, "UnrecognizedClientException", "token"),
            |e| matches!(e, BackendError::Refused(_)),
        ),
        (
            Reply::Error(404, "ResourceNotFoundException", "no kb"),
            |e| matches!(e, BackendError::UnknownKnowledgeBase(_)),
        ),
        (Reply::Error(400, "ValidationException", "bad"), |e| {
            matches!(e, BackendError::Refused(_))
        }),
        (
            Reply::Error(424, "DependencyFailedException", "store"),
            |e| matches!(e, BackendError::Unavailable(_)),
        ),
        (Reply::Error(500, "InternalServerException", "oops"), |e| {
            matches!(e, BackendError::Unavailable(_))
        }),
        (Reply::Html, |e| {
            matches!(e, BackendError::UnreadableAnswer(_))
        }),
        (Reply::TooLarge, |e| {
            matches!(e, BackendError::UnreadableAnswer(_))
        }),
    ];
    for (reply, is_expected) in table {
        let fake = fake([reply.clone()]).await;
        let error = outcome(&fake, &call()).await.unwrap_err();
        assert!(is_expected(&error), "{reply:?}: {error}");
    }
}

#[tokio::test]
async fn half_a_body_is_no_answer() {
    let fake = fake([Reply::HalfABody]).await;
    let error = outcome(&fake, &call()).await.unwrap_err();
    assert!(error.retryable(), "{error}");
}

#[tokio::test]
async fn what_may_succeed_a_moment_later_is_asked_again() {
    for reply in [
        Reply::Error(429, "ThrottlingException", "slow down"),
        Reply::Error(500, "InternalServerException", "oops"),
    ] {
        let good = results(&[result("Thirty days.", 0.5, &json!({}))]);
        let fake = fake([reply, good]).await;
        assert_eq!(outcome(&fake, &call()).await.unwrap(), 1);
        assert_eq!(fake.searches().len(), 2);
    }
}

#[tokio::test]
async fn what_cannot_succeed_is_asked_once() {
    for code in ["ValidationException", "AccessDeniedException"] {
        let fake = fake([Reply::Error(400, code, "no")]).await;
        outcome(&fake, &call()).await.unwrap_err();
        assert_eq!(fake.searches().len(), 1, "{code}");
    }
}

#[tokio::test]
async fn a_service_that_says_nothing_is_given_up_at_the_callers_deadline() {
    let fake = fake([Reply::Hang]).await;
    let call = EngineCall::within(Duration::from_millis(400));
    let error = tokio::time::timeout(Duration::from_secs(30), outcome(&fake, &call));
    let error = error.await.unwrap().unwrap_err();
    assert!(matches!(error, BackendError::TimedOut(_)), "{error}");
}

#[tokio::test]
async fn nothing_is_asked_when_there_is_no_time() {
    let fake = fake([results(&[])]).await;
    let call = EngineCall::within(Duration::from_millis(30));
    let error = outcome(&fake, &call).await.unwrap_err();
    assert!(matches!(error, BackendError::TimedOut(_)), "{error}");
    assert!(fake.asked("").is_empty());
}

#[tokio::test]
async fn a_service_that_keeps_failing_is_left_alone() {
    let fake = fake([Reply::Error(500, "InternalServerException", "oops")]).await;
    let backend = fake.backend(&settings());
    for _ in 0..FAILURES_TO_OPEN {
        backend.retrieve(KB, &request(), &call()).await.unwrap_err();
    }
    let asked = fake.searches().len();
    let error = backend.retrieve(KB, &request(), &call()).await.unwrap_err();
    assert!(error.to_string().contains("left alone"), "{error}");
    assert_eq!(fake.searches().len(), asked);
    // What lists documents is another service.
    fake.is_of_type("VECTOR");
    fake.on(&format!("POST /knowledgebases/{KB}/datasources"), []);
    assert!(backend.describe(KB, &call()).await.is_ok());
}

#[tokio::test]
async fn requests_carry_the_trace_and_a_signature_and_nothing_of_the_caller() {
    let fake = fake([results(&[])]).await;
    let backend = fake.backend(&settings());
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let call = EngineCall {
        traceparent: Some(traceparent.to_owned()),
        ..call()
    };
    backend.retrieve(KB, &request(), &call).await.unwrap();
    let asked = fake.asked("/retrieve").pop().unwrap();
    assert_eq!(asked.headers["traceparent"], traceparent);
    let signature = &asked.headers["authorization"];
    assert!(signature.starts_with("AWS4-HMAC-SHA256 "), "{signature}");
    assert!(signature.contains("/bedrock/aws4_request"), "{signature}");
}

#[tokio::test]
async fn the_region_of_the_configuration_comes_before_the_accounts() {
    let fake = fake([results(&[])]).await;
    let backend = fake.backend(&json!({ "knowledge_base_type": "vector", "region": "us-west-2" }));
    backend.retrieve(KB, &request(), &call()).await.unwrap();
    let asked = fake.asked("/retrieve").pop().unwrap();
    assert!(asked.headers["authorization"].contains("/us-west-2/bedrock/"));
}
