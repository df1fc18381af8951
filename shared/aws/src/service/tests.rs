use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;

use aws_config::Region;
use aws_config::timeout::TimeoutConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::{SharedCredentialsProvider, future};
use aws_sdk_dynamodb::error::ProvideErrorMetadata as _;
use aws_sdk_dynamodb::operation::get_item::{GetItemError, GetItemInput, GetItemOutput};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_sqs::operation::send_message::SendMessageInput;
use aws_smithy_async::time::StaticTimeSource;
use futures::future::BoxFuture;
use serde_json::json;

use super::*;
use crate::clients::configuration;

/// 2026-11-30T08:00:00Z
const NOW_EPOCH_SECONDS: u64 = 1_796_025_600;

type Answer = Result<Response<Bytes>, OutboundError>;

/// Answers one after the other, then never again; keeps what it was asked.
#[derive(Debug, Default)]
struct Script {
    answers: Mutex<VecDeque<Answer>>,
    requests: Mutex<Vec<Request<Bytes>>>,
}

impl Script {
    fn of(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers.into_iter().collect()),
            requests: Mutex::default(),
        })
    }

    fn requests(&self) -> Vec<Request<Bytes>> {
        self.requests.lock().unwrap().clone()
    }
}

impl Transport for Script {
    fn send(&self, request: Request<Bytes>, _: Bounds) -> BoxFuture<'_, Answer> {
        self.requests.lock().unwrap().push(request);
        match self.answers.lock().unwrap().pop_front() {
            Some(answer) => Box::pin(async { answer }),
            None => Box::pin(std::future::pending()),
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "one of the answers of a script")]
fn answer(status: u16, body: &str) -> Answer {
    let response = Response::builder().status(status);
    Ok(response
        .body(Bytes::copy_from_slice(body.as_bytes()))
        .unwrap())
}

fn refused(code: &str) -> Answer {
    let body =
        json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "m" });
    answer(400, &body.to_string())
}

fn found() -> Answer {
    answer(200, r#"{"Item":{"id":{"S":"x"}}}"#)
}

fn no_connection() -> Answer {
    Err(OutboundError::Connection("connection refused".to_owned()))
}

fn account() -> aws_types::sdk_config::Builder {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_EPOCH_SECONDS);
    let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
    configuration()
        .region(Region::from_static("eu-west-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .time_source(StaticTimeSource::new(now))
}

async fn get(
    client: &ServiceClient<DynamoDb>,
) -> Result<GetItemOutput, SdkError<GetItemError, HttpResponse>> {
    let key = AttributeValue::S("x".to_owned());
    let input = GetItemInput::builder().table_name("keys").key("id", key);
    client.send(input.build()).await
}

async fn get_over(
    script: &Arc<Script>,
) -> Result<GetItemOutput, SdkError<GetItemError, HttpResponse>> {
    get(&ServiceClient::new(
        account().build(),
        Arc::clone(script) as _,
    ))
    .await
}

#[tokio::test]
async fn an_operation_is_written_signed_and_read() {
    let script = Script::of([found()]);
    let output = get_over(&script).await.unwrap();
    assert_eq!(
        output.item.unwrap()["id"],
        AttributeValue::S("x".to_owned())
    );
    let [request] = &script.requests()[..] else {
        panic!("one request");
    };
    assert_eq!(request.uri(), "https://dynamodb.eu-west-1.amazonaws.com/");
    let header = |name| request.headers()[name].to_str().unwrap();
    assert_eq!(header("x-amz-target"), "DynamoDB_20120810.GetItem");
    assert_eq!(header("x-amz-date"), "20261130T080000Z");
    let signed = "Credential=AKIDEXAMPLE/20261130/eu-west-1/dynamodb/aws4_request, \
                  SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=";
    assert!(
        header("authorization").contains(signed),
        "{}",
        header("authorization")
    );
    let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
    assert_eq!(
        body,
        json!({ "TableName": "keys", "Key": { "id": { "S": "x" } } })
    );
}

#[tokio::test]
async fn the_queue_is_asked_in_its_own_protocol() {
    let script = Script::of([answer(200, r#"{"MessageId":"m-1"}"#)]);
    let client = ServiceClient::<Sqs>::new(account().build(), Arc::clone(&script) as _);
    let input = SendMessageInput::builder()
        .queue_url("https://sqs/1/audit")
        .message_body("{}");
    let output = client.send(input.build()).await.unwrap();
    assert_eq!(output.message_id.as_deref(), Some("m-1"));
    let requests = script.requests();
    assert_eq!(requests[0].uri(), "https://sqs.eu-west-1.amazonaws.com/");
    assert_eq!(
        requests[0].headers()["x-amz-target"],
        "AmazonSQS.SendMessage"
    );
}

#[tokio::test]
async fn what_may_pass_is_tried_three_times_and_what_stays_is_not() {
    let throttled = || refused("ThrottlingException");
    let rows: [(Vec<Answer>, usize, bool); 7] = [
        (vec![throttled(), found()], 2, true),
        (
            vec![answer(503, "<html>"), no_connection(), found()],
            3,
            true,
        ),
        (
            vec![Err(OutboundError::TimedOut(Duration::ZERO)), found()],
            2,
            true,
        ),
        (
            vec![throttled(), throttled(), throttled(), found()],
            3,
            false,
        ),
        (
            vec![no_connection(), no_connection(), no_connection(), found()],
            3,
            false,
        ),
        (vec![refused("ValidationException"), found()], 1, false),
        (vec![Err(OutboundError::TooLarge(1)), found()], 1, false),
    ];
    for (answers, attempts, succeeds) in rows {
        let shown = format!("{answers:?}");
        let script = Script::of(answers);
        assert_eq!(get_over(&script).await.is_ok(), succeeds, "{shown}");
        assert_eq!(script.requests().len(), attempts, "{shown}");
    }
}

#[tokio::test]
async fn a_refusal_is_the_sdks_and_has_the_services_code() {
    let script = Script::of([refused("ResourceNotFoundException")]);
    let error = get_over(&script).await.unwrap_err();
    assert!(matches!(
        error.as_service_error(),
        Some(GetItemError::ResourceNotFoundException(_))
    ));
    assert_eq!(error.code(), Some("ResourceNotFoundException"));

    let script = Script::of([answer(200, "no json")]);
    let error = get_over(&script).await.unwrap_err();
    assert!(
        error.code().is_none() && error.raw_response().is_some(),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_reader_gets_the_success_and_the_sdk_the_rest() {
    let length = |body: &[u8]| Some(body.len());
    let nothing = |_: &[u8]| None::<usize>;
    let never = |_: &[u8]| -> Option<usize> { panic!("a refusal is the SDK's") };
    let get = async |answers: Vec<Answer>, reader: &dyn Fn(&[u8]) -> Option<usize>| {
        let script = Script::of(answers);
        let client = ServiceClient::<DynamoDb>::new(account().build(), Arc::clone(&script) as _);
        let input = GetItemInput::builder().table_name("keys").build();
        client.send_with_reader(input, reader).await
    };
    let body = r#"{"Item":{"id":{"S":"x"}}}"#;

    let read = get(vec![refused("ThrottlingException"), found()], &length).await;
    assert!(matches!(read, Ok(super::Answer::Read(length)) if length == body.len()));
    let read = get(vec![found()], &nothing).await;
    let Ok(super::Answer::Output(output)) = read else {
        panic!("{read:?}");
    };
    assert!(output.item.unwrap().contains_key("id"));
    let error = get(vec![refused("ResourceNotFoundException")], &never).await;
    assert_eq!(error.unwrap_err().code(), Some("ResourceNotFoundException"));
    let error = get(vec![answer(200, "no json")], &nothing).await;
    assert!(error.unwrap_err().raw_response().is_some());
}

#[tokio::test]
async fn a_service_that_never_answers_is_given_up() {
    let short = TimeoutConfig::builder().operation_timeout(Duration::from_millis(20));
    let config = account().timeout_config(short.build()).build();
    let error = get(&ServiceClient::new(config, Script::of([]) as _))
        .await
        .unwrap_err();
    assert!(matches!(error, SdkError::TimeoutError(_)), "{error:?}");
}

#[tokio::test]
async fn a_clock_that_is_wrong_is_corrected_and_a_wrong_key_is_not_tried_twice() {
    let at = |answer: Answer, date: &str| {
        let mut answer = answer.unwrap();
        let date = HeaderValue::from_str(date).unwrap();
        answer.headers_mut().insert(header::DATE, date);
        Ok(answer)
    };
    let skewed = || refused("InvalidSignatureException");
    let script = Script::of([
        at(skewed(), "Mon, 30 Nov 2026 08:20:00 GMT"),
        found(),
        found(),
    ]);
    let client = ServiceClient::new(account().build(), Arc::clone(&script) as _);
    get(&client).await.unwrap();
    get(&client).await.unwrap();
    let dates = script.requests();
    let dates: Vec<_> = dates
        .iter()
        .map(|request| &request.headers()["x-amz-date"])
        .collect();
    assert_eq!(
        dates,
        ["20261130T080000Z", "20261130T082000Z", "20261130T082000Z"]
    );

    let script = Script::of([at(skewed(), "Mon, 30 Nov 2026 08:00:03 GMT"), found()]);
    let error = get_over(&script).await.unwrap_err();
    assert_eq!(error.code(), Some("InvalidSignatureException"));
    assert_eq!(script.requests().len(), 1);
}

#[derive(Debug, Default)]
struct CountedCredentials {
    asked: Arc<AtomicUsize>,
    lifetime: Option<Duration>,
}

impl aws_credential_types::provider::ProvideCredentials for CountedCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_EPOCH_SECONDS);
        let expiry = self.lifetime.map(|lifetime| now + lifetime);
        let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, expiry, "test");
        future::ProvideCredentials::ready(Ok(credentials))
    }
}

#[tokio::test]
async fn credentials_are_asked_for_once_and_again_before_they_expire() {
    let rows = [
        (None, 1),
        (Some(Duration::from_hours(1)), 1),
        (Some(Duration::from_secs(30)), 3),
    ];
    for (lifetime, expected) in rows {
        let asked = Arc::<AtomicUsize>::default();
        let provider = CountedCredentials {
            asked: Arc::clone(&asked),
            lifetime,
        };
        let config = account().credentials_provider(SharedCredentialsProvider::new(provider));
        let script = Script::of([found(), found(), found()]);
        let client = ServiceClient::new(config.build(), script as _);
        for _ in 0..3 {
            get(&client).await.unwrap();
        }
        assert_eq!(asked.load(Ordering::SeqCst), expected, "{lifetime:?}");
    }
}

#[tokio::test]
async fn without_credentials_or_region_nothing_is_sent() {
    let without_region = {
        let mut config = account();
        config
            .set_region(None)
            .set_endpoint_url(Some("http://127.0.0.1:1".to_owned()));
        config.build()
    };
    let without_credentials = {
        let mut config = account();
        config.set_credentials_provider(None);
        config.build()
    };
    for config in [without_region, without_credentials] {
        let script = Script::of([found()]);
        let client = ServiceClient::new(config, Arc::clone(&script) as _);
        let error = get(&client).await.unwrap_err();
        assert!(
            matches!(error, SdkError::ConstructionFailure(_)),
            "{error:?}"
        );
        assert!(script.requests().is_empty());
    }
}

#[tokio::test]
async fn the_endpoint_is_the_configured_one_or_the_one_that_the_sdk_knows() {
    let mut fips = account();
    fips.set_use_fips(Some(true));
    let mut dual_stack = account();
    dual_stack.set_use_dual_stack(Some(true));
    let rows = [
        (account(), "https://dynamodb.eu-west-1.amazonaws.com/"),
        (
            account().region(Region::new("cn-north-1")),
            "https://dynamodb.cn-north-1.amazonaws.com.cn/",
        ),
        (fips, "https://dynamodb-fips.eu-west-1.amazonaws.com/"),
        (dual_stack, "https://dynamodb.eu-west-1.api.aws/"),
        (
            account().endpoint_url("http://127.0.0.1:8000"),
            "http://127.0.0.1:8000/",
        ),
        (
            account().endpoint_url("http://127.0.0.1:8000/tenant/"),
            "http://127.0.0.1:8000/tenant/",
        ),
    ];
    for (config, expected) in rows {
        let script = Script::of([found()]);
        let client = ServiceClient::new(config.build(), Arc::clone(&script) as _);
        get(&client).await.unwrap();
        assert_eq!(script.requests()[0].uri(), expected);
    }
}

#[tokio::test]
async fn a_call_with_limits_of_its_own_is_tried_as_often_as_they_say_and_carries_their_header() {
    let script = Script::of([refused("ThrottlingException"), found()]);
    let client = ServiceClient::<DynamoDb>::new(account().build(), Arc::clone(&script) as _);
    let traceparent = HeaderName::from_static("traceparent");
    let limits = CallLimits {
        attempts: 1,
        header: Some((traceparent.clone(), HeaderValue::from_static("00-a-b-01"))),
        ..CallLimits::default()
    };
    let input = GetItemInput::builder().table_name("keys").build();
    client.send_within(input, &limits).await.unwrap_err();
    let [request] = &script.requests()[..] else {
        panic!("one request");
    };
    assert_eq!(request.headers()[&traceparent], "00-a-b-01");
    let authorization = request.headers()["authorization"].to_str().unwrap();
    assert!(authorization.contains(";traceparent;"), "{authorization}");
}

#[test]
fn a_request_keeps_its_path_and_query_behind_the_endpoints() {
    for (endpoint, request, joined) in [
        ("https://a.example", "/", "https://a.example/"),
        (
            "https://a.example",
            "/model/m%3A0/converse",
            "https://a.example/model/m%3A0/converse",
        ),
        (
            "http://127.0.0.1:9000/bucket/",
            "/a/b.json?x-id=GetObject",
            "http://127.0.0.1:9000/bucket/a/b.json?x-id=GetObject",
        ),
    ] {
        let endpoint = Endpoint::at(endpoint).unwrap();
        let uri = endpoint.join(&request.parse().unwrap()).unwrap();
        assert_eq!(uri.to_string(), joined);
    }
}
