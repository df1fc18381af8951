use serde_json::json;

use crate::breaker::{FAILURES_TO_OPEN, OPEN_SECONDS};
use crate::testing::{Behaviour, FakeEngine, SECRET, client, clock, surroundings};

use super::*;

/// Long enough for every answer that comes at all, short enough to wait for those that don't.
const PATIENCE: Duration = Duration::from_millis(700);

async fn ask(url: &str) -> Result<Value, CallError> {
    let client = client(url, surroundings(&clock()));
    send(&client).await
}

async fn send(client: &EngineClient) -> Result<Value, CallError> {
    let request = EngineRequest::post(&["kb 1/2", "search"], json!({ "query": "q" }));
    client.send(&request, &EngineCall::within(PATIENCE)).await
}

async fn ask_for(script: impl IntoIterator<Item = Behaviour>) -> (Result<Value, CallError>, usize) {
    let engine = FakeEngine::start(script).await;
    let answer = ask(&engine.url).await;
    (answer, engine.received().len())
}

fn good() -> Behaviour {
    Behaviour::json(&json!({ "ok": true }))
}

fn engine_error(answer: Result<Value, CallError>) -> BackendError {
    match answer.unwrap_err() {
        CallError::Engine(error) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_request_carries_the_engines_credential_and_the_trace_and_nothing_else() {
    let engine = FakeEngine::start([good()]).await;
    let client = client(&format!("{}/v1/", engine.url), surroundings(&clock()));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let call = EngineCall {
        time_left: PATIENCE,
        traceparent: Some(trace.to_owned()),
    };
    let request = EngineRequest::post(&["kb 1/2?", "search"], json!({ "query": "休假" }))
        .with_parameter("after", "a&b=c");
    assert_eq!(client.send(&request, &call).await.unwrap()["ok"], true);
    let received = engine.last();
    assert_eq!(
        received.line,
        "POST /v1/kb%201%2F2%3F/search?after=a%26b%3Dc"
    );
    assert_eq!(received.body, json!({ "query": "休假" }));
    let names: Vec<&str> = received.headers.keys().map(String::as_str).collect();
    let expected = [
        "accept",
        "authorization",
        "content-length",
        "content-type",
        "host",
        "traceparent",
        "user-agent",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        received.headers["authorization"],
        format!("Bearer {SECRET}")
    );
    assert_eq!(received.headers["traceparent"], trace);
}

#[tokio::test]
async fn an_identifier_that_would_leave_its_folder_is_not_asked_for() {
    let engine = FakeEngine::start([good()]).await;
    let client = client(&engine.url, surroundings(&clock()));
    for id in ["", ".", ".."] {
        let request = EngineRequest::get(&["vector_stores", id]);
        let answer = client.send(&request, &EngineCall::within(PATIENCE)).await;
        assert!(matches!(answer, Err(CallError::NotFound(_))), "{answer:?}");
    }
    assert!(engine.received().is_empty());
}

#[tokio::test]
async fn every_refusal_is_told_apart_and_asked_once() {
    let refusal = json!({ "error": { "message": format!("the key {SECRET} is not good") } });
    for status in [400, 422] {
        let (answer, asked) = ask_for([Behaviour::status(status, &refusal)]).await;
        let Err(CallError::Rejected {
            status: told,
            message,
        }) = answer
        else {
            panic!("{answer:?}");
        };
        assert_eq!((told, asked), (status, 1));
        assert_eq!(message, "\"the key (secret) is not good\"");
    }
    let (answer, asked) = ask_for([Behaviour::status(401, &refusal)]).await;
    let error = engine_error(answer);
    assert!(matches!(error, BackendError::Refused(_)), "{error}");
    assert!(!error.to_string().contains(SECRET), "{error}");
    assert_eq!(asked, 1);
    let (answer, asked) = ask_for([Behaviour::html(403)]).await;
    assert!(matches!(engine_error(answer), BackendError::Refused(_)));
    assert_eq!(asked, 1);
    let (answer, asked) = ask_for([Behaviour::status(404, &refusal)]).await;
    assert!(matches!(answer, Err(CallError::NotFound(_))), "{answer:?}");
    assert_eq!(asked, 1);
}

#[tokio::test]
async fn what_may_pass_is_asked_again_and_then_told() {
    for bad in [
        Behaviour::status(500, &json!({})),
        Behaviour::html(502),
        Behaviour::status(503, &json!({ "detail": "starting" })),
        Behaviour::HalfABody,
        Behaviour::Close,
    ] {
        let (answer, asked) = ask_for([bad.clone(), bad.clone(), good()]).await;
        assert!(answer.is_ok(), "{bad:?}: {answer:?}");
        assert_eq!(asked, 3);
        let (answer, asked) = ask_for([bad.clone()]).await;
        let error = engine_error(answer);
        assert!(
            matches!(error, BackendError::Unavailable(_)),
            "{bad:?}: {error}"
        );
        assert_eq!(asked, 3, "{bad:?}");
    }
    let error = engine_error(ask("http://127.0.0.1:1").await);
    assert!(matches!(error, BackendError::Unavailable(_)), "{error}");
}

#[tokio::test]
async fn what_never_ends_ends_at_the_deadline() {
    for endless in [Behaviour::Hang, Behaviour::Trickle] {
        let (answer, asked) = ask_for([endless]).await;
        assert!(matches!(engine_error(answer), BackendError::TimedOut(_)));
        assert_eq!(asked, 1);
    }
}

#[tokio::test]
async fn an_answer_that_is_not_the_promised_one_is_unreadable() {
    for odd in [
        Behaviour::html(200),
        Behaviour::TenMegabytes,
        Behaviour::Answer(200, "application/json", "", "{\"data\":[".to_owned()),
        Behaviour::Answer(200, "application/json", "", "[".repeat(100_000)),
        Behaviour::Answer(200, "application/json", "", String::new()),
    ] {
        let (answer, asked) = ask_for([odd.clone()]).await;
        let error = engine_error(answer);
        assert!(
            matches!(error, BackendError::UnreadableAnswer(_)),
            "{error}"
        );
        assert_eq!(asked, 1);
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = FakeEngine::start([good()]).await;
    let location = format!("location: {}/\r\n", elsewhere.url);
    let redirect = Behaviour::Answer(307, "text/html", location.leak(), String::new());
    let (answer, asked) = ask_for([redirect]).await;
    assert!(matches!(engine_error(answer), BackendError::Refused(_)));
    assert_eq!(asked, 1);
    assert!(elsewhere.received().is_empty());
}

#[tokio::test]
async fn retry_after_decides_when_it_fits_and_is_remembered_when_not() {
    let throttled = |after| Behaviour::Answer(429, "application/json", after, "{}".to_owned());
    let (answer, asked) = ask_for([throttled("retry-after: 0\r\n"), good()]).await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(asked, 2);

    // Until 30 seconds after the test's present, as a date.
    for long in [
        "retry-after: 30\r\n",
        "retry-after: Mon, 30 Nov 2026 12:00:30 GMT\r\n",
    ] {
        let engine = FakeEngine::start([throttled(long), good()]).await;
        let clock = clock();
        let client = client(&engine.url, surroundings(&clock));
        let error = engine_error(send(&client).await);
        assert!(matches!(error, BackendError::Throttled), "{error}");
        let error = engine_error(send(&client).await);
        assert!(matches!(error, BackendError::Throttled), "{error}");
        assert_eq!(engine.received().len(), 1, "{long}");
        clock.advance_seconds(31);
        assert!(send(&client).await.is_ok());
    }
}

#[tokio::test]
async fn a_request_that_is_too_dear_is_sent_once() {
    let engine = FakeEngine::start([Behaviour::status(503, &json!({}))]).await;
    let client = client(&engine.url, surroundings(&clock()));
    let request = EngineRequest::post(&["chat"], json!({})).once();
    let answer = client.send(&request, &EngineCall::within(PATIENCE)).await;
    assert!(matches!(engine_error(answer), BackendError::Unavailable(_)));
    assert_eq!(engine.received().len(), 1);
}

#[tokio::test]
async fn an_engine_that_keeps_failing_is_left_alone_and_found_again() {
    let engine = FakeEngine::start([Behaviour::status(500, &json!({}))]).await;
    let clock = clock();
    let client = client(&engine.url, surroundings(&clock));
    for _ in 0..FAILURES_TO_OPEN {
        let error = engine_error(send(&client).await);
        assert!(matches!(error, BackendError::Unavailable(_)), "{error}");
    }
    assert_eq!(engine.received().len(), FAILURES_TO_OPEN as usize);
    engine.order(good());
    let error = engine_error(send(&client).await);
    assert!(error.to_string().contains("left alone"), "{error}");
    assert_eq!(engine.received().len(), FAILURES_TO_OPEN as usize);
    clock.advance_seconds(OPEN_SECONDS);
    assert!(send(&client).await.is_ok());
    assert!(send(&client).await.is_ok());
}

#[tokio::test]
async fn refusals_do_not_open_the_circuit() {
    let engine = FakeEngine::start([Behaviour::status(400, &json!({}))]).await;
    let client = client(&engine.url, surroundings(&clock()));
    for _ in 0..2 * FAILURES_TO_OPEN {
        assert!(matches!(
            send(&client).await,
            Err(CallError::Rejected { .. })
        ));
    }
}

#[tokio::test]
async fn nothing_secret_is_in_what_can_be_printed() {
    let client = client("http://127.0.0.1:1", surroundings(&clock()));
    assert!(!format!("{client:?}").contains(SECRET));
}
