//! One execution environment of Lambda: the deployed program as a process, with a Runtime API and an
//! Extensions API that behave as AWS documents them. An invocation is given out when the runtime and
//! the extensions have asked for one; as soon as all of them have asked again, the process is frozen.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request as HttpRequest, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use raglan_core::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::message::{Answer, Request};
use super::timeline::Timeline;
use super::world::World;

/// Noted when the runtime asks for an invocation.
pub const RUNTIME_NEXT: &str = "runtime asks for next";
/// Noted when the extension asks for an event.
pub const EXTENSION_NEXT: &str = "extension asks for next";
/// Noted when the runtime posts an answer: Lambda gives it to the caller now.
pub const ANSWERED: &str = "answered";
/// Noted when the process may be frozen.
pub const FROZEN: &str = "frozen";

const PATIENCE: Duration = Duration::from_secs(30);

/// Whether the platform has an Extensions API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extensions {
    /// As Lambda has.
    Served,
    /// As some emulators have not.
    Missing,
}

/// A running function.
pub struct Environment {
    /// The steps of the platform and of the queue.
    pub timeline: Timeline,
    state: Arc<Mutex<State>>,
    child: Child,
    folder: TempDir,
    invocations: u32,
}

struct State {
    timeline: Timeline,
    extensions: Extensions,
    registered: bool,
    /// The program, once it runs.
    pid: Option<u32>,
    /// Who waits for an invocation: its headers and body.
    runtime: Option<oneshot::Sender<Invocation>>,
    extension: Option<oneshot::Sender<Value>>,
    /// Who waits for the answer.
    caller: Option<oneshot::Sender<Value>>,
}

struct Invocation {
    request_id: String,
    deadline_ms: i64,
    event: Value,
}

impl State {
    fn all_wait(&self) -> bool {
        self.runtime.is_some() && (!self.registered || self.extension.is_some())
    }

    /// To be called when somebody has begun to wait.
    fn freeze_if_all_wait(&self) {
        if let (true, Some(pid)) = (self.all_wait(), self.pid) {
            signal(pid, "-STOP");
            self.timeline.note(FROZEN);
        }
    }
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(status.unwrap().success(), "kill {name}");
}

impl Environment {
    /// Starts the function in this world. It is frozen when this returns: initialised, and idle.
    pub async fn start(world: &World, extensions: Extensions, variables: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let timeline = world.queue.timeline.clone();
        timeline.clear();
        let state = Arc::new(Mutex::new(State {
            timeline: timeline.clone(),
            extensions,
            registered: false,
            pid: None,
            runtime: None,
            extension: None,
            caller: None,
        }));
        tokio::spawn(serve(listener, Arc::clone(&state)));

        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_mcp-under-test"))
            .env_clear()
            .envs(&world.variables)
            .env("AWS_ENDPOINT_URL_DYNAMODB", &world.dynamodb.url)
            .env("AWS_ENDPOINT_URL_SQS", &world.sqs.url)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "local")
            .env("AWS_SECRET_ACCESS_KEY", "local")
            .env("AWS_LAMBDA_RUNTIME_API", &address)
            .env("AWS_LAMBDA_FUNCTION_NAME", "mcp")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .envs(variables.iter().copied())
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        {
            let mut state = state.lock().unwrap();
            state.pid = Some(child.id());
            state.freeze_if_all_wait();
        }
        let environment = Self {
            timeline,
            state,
            child,
            folder,
            invocations: 0,
        };
        environment.timeline.reach(FROZEN, 1).await;
        environment.timeline.clear();
        environment
    }

    /// Thaws the instance and gives it an invocation that the platform ends after `time_left`. Returns
    /// as soon as the answer is posted, as Lambda does.
    pub async fn invoke(&mut self, request: &Request, time_left: Duration) -> Answer {
        self.invocations += 1;
        let deadline_ms =
            SystemClock.now().epoch_ms() + i64::try_from(time_left.as_millis()).unwrap();
        let request_id = format!("00000000-0000-4000-8000-{:012}", self.invocations);
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.state.lock().unwrap();
            assert!(state.all_wait(), "the instance is still busy");
            signal(self.child.id(), "-CONT");
            state.caller = Some(answer);
            if let Some(extension) = state.extension.take() {
                let event = json!({
                    "eventType": "INVOKE", "deadlineMs": deadline_ms, "requestId": request_id,
                    "invokedFunctionArn": "arn:aws:lambda:us-east-1:123456789012:function:mcp",
                    "tracing": { "type": "X-Amzn-Trace-Id", "value": "" },
                });
                extension.send(event).unwrap();
            }
            let invocation = Invocation {
                request_id,
                deadline_ms,
                event: request.event(),
            };
            let runtime = state.runtime.take().unwrap();
            assert!(runtime.send(invocation).is_ok(), "the runtime is gone");
        }
        let answer = tokio::time::timeout(PATIENCE, answered).await;
        read_answer(&answer.unwrap().unwrap())
    }

    /// The same, and waits until the instance is frozen again.
    pub async fn invoke_to_the_end(&mut self, request: &Request) -> Answer {
        let before = self.timeline.count(FROZEN);
        let answer = self.invoke(request, PATIENCE).await;
        self.timeline.reach(FROZEN, before + 1).await;
        answer
    }

    /// Ends the process as Lambda does, and waits for it.
    pub async fn terminate(&mut self) -> ExitStatus {
        let pid = self.child.id();
        signal(pid, "-CONT");
        signal(pid, "-TERM");
        let exit = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, exit).await.unwrap()
    }

    /// Everything that the process has written.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// The events that are in the log because the queue did not take them.
    pub fn events_in_log(&self) -> Vec<Value> {
        let lines = self.log();
        let entries = lines
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        entries
            .filter(|entry| entry["marker"] == "AUDIT_NOT_SENT")
            .map(|entry| serde_json::from_str(entry["event"].as_str().unwrap()).unwrap())
            .collect()
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.state.lock().unwrap().pid = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        let service = service_fn(move |request| {
            let state = Arc::clone(&state);
            async move { Ok::<_, Infallible>(answer(&state, request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

async fn answer(state: &Mutex<State>, request: HttpRequest<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let path = parts.uri.path().to_owned();
    let steps: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (&parts.method, steps.as_slice()) {
        (&Method::GET, ["2018-06-01", "runtime", "invocation", "next"]) => {
            runtime_next(state).await
        }
        (&Method::POST, ["2018-06-01", "runtime", "invocation", _, "response"]) => {
            let mut state = state.lock().unwrap();
            state.timeline.note(ANSWERED);
            let caller = state.caller.take().unwrap();
            let _ = caller.send(serde_json::from_slice(&body).unwrap());
            status(StatusCode::ACCEPTED)
        }
        (&Method::POST, ["2020-01-01", "extension", "register"]) => {
            let mut state = state.lock().unwrap();
            if state.extensions == Extensions::Missing {
                return status(StatusCode::NOT_FOUND);
            }
            assert_eq!(body, r#"{"events":["INVOKE"]}"#);
            state.registered = true;
            let body = json!({
                "functionName": "mcp", "functionVersion": "$LATEST", "handler": "bootstrap"
            });
            Response::builder()
                .header("lambda-extension-identifier", "extension-1")
                .body(Full::new(Bytes::from(body.to_string())))
                .unwrap()
        }
        (&Method::GET, ["2020-01-01", "extension", "event", "next"]) => extension_next(state).await,
        _ => panic!("{} {path}: {body:?}", parts.method),
    }
}

async fn runtime_next(state: &Mutex<State>) -> Response<Full<Bytes>> {
    let (invoke, invoked) = oneshot::channel();
    {
        let mut state = state.lock().unwrap();
        state.timeline.note(RUNTIME_NEXT);
        state.runtime = Some(invoke);
        state.freeze_if_all_wait();
    }
    let Ok(invocation) = invoked.await else {
        return status(StatusCode::GONE);
    };
    Response::builder()
        .header("lambda-runtime-aws-request-id", invocation.request_id)
        .header("lambda-runtime-deadline-ms", invocation.deadline_ms)
        .header(
            "lambda-runtime-invoked-function-arn",
            "arn:aws:lambda:us-east-1:123456789012:function:mcp",
        )
        .body(Full::new(Bytes::from(invocation.event.to_string())))
        .unwrap()
}

async fn extension_next(state: &Mutex<State>) -> Response<Full<Bytes>> {
    let (invoke, invoked) = oneshot::channel();
    {
        let mut state = state.lock().unwrap();
        state.timeline.note(EXTENSION_NEXT);
        state.extension = Some(invoke);
        state.freeze_if_all_wait();
    }
    match invoked.await {
        Ok(event) => Response::new(Full::new(Bytes::from(event.to_string()))),
        Err(_) => status(StatusCode::GONE),
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .body(Full::default())
        .unwrap()
}

fn read_answer(response: &Value) -> Answer {
    let headers = response["headers"].as_object().cloned().unwrap_or_default();
    let headers: BTreeMap<String, String> = headers
        .into_iter()
        .map(|(name, value)| (name, value.as_str().unwrap().to_owned()))
        .collect();
    Answer {
        status: u16::try_from(response["statusCode"].as_u64().unwrap()).unwrap(),
        headers,
        body: response["body"].as_str().unwrap_or_default().to_owned(),
    }
}
