//! Between Lambda's Runtime API and the function.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request};
use lambda_runtime::tower::layer::layer_fn;
use lambda_runtime::tower::util::BoxService;
use lambda_runtime::{Context as LambdaContext, Error, LambdaEvent, LambdaInvocation};
use lambda_runtime::{Runtime, Service, service_fn};
use raglan_core::clock::Timestamp;
use serde::de::{Deserialize, Deserializer, Error as _};
use tokio::signal::unix::{SignalKind, signal};

use crate::app::App;
use crate::config::AuditMode;
use crate::context::CallContext;
use crate::extension::{self, Answers};
use crate::function_url::{self, Event};
use crate::platform_api::PlatformApi;
use crate::trace::XRAY_HEADER;

/// Names an invocation once more, so that the answer to one that has timed out is not taken for the answer
/// to another.
const INVOCATION_ID_HEADER: &str = "lambda-runtime-invocation-id";

/// Answers invocations until the platform ends the process.
///
/// # Errors
/// When the Runtime API cannot be used.
pub async fn run(app: App) -> Result<(), Error> {
    let app = Arc::new(app);
    let trail = Arc::clone(app.trail());
    let answers = Answers::default();
    // Extensions must be registered before the runtime asks for its first event.
    let background = app.background().cloned();
    let extension = match (trail.mode(), &background) {
        (AuditMode::Strict, None) => None,
        (AuditMode::Strict, Some(_)) | (AuditMode::Deferred, _) => {
            let registered =
                extension::register(Arc::clone(&trail), background, answers.clone()).await;
            if let Err(reason) = &registered {
                tracing::info!(
                    %reason,
                    "no Lambda extension: audit events are sent before the answer"
                );
            }
            registered.ok()
        }
    };
    let api = Arc::new(PlatformApi::from_environment()?);
    let mut terminated = signal(SignalKind::terminate())?;
    // Tasks: whatever wakes the runtime's own future goes through the kernel, a dozen times for each call.
    let mut beside = tokio::spawn(async move {
        if let Some(extension) = extension {
            extension.await;
        }
        std::future::pending::<()>().await;
    });
    let mut answering = tokio::spawn(runtime(app, api, answers).run());
    tokio::select! {
        ended = &mut answering => ended?,
        // Only by a panic: without it no event would be sent any more, so the process ends and starts anew.
        ended = &mut beside => Ok(ended?),
        _ = terminated.recv() => {
            answering.abort();
            beside.abort();
            trail.shut_down().await;
            Ok(())
        }
    }
}

fn runtime(app: Arc<App>, api: Arc<PlatformApi>, answers: Answers) -> Runtime<Invocations> {
    Runtime::new(service_fn(unreadable)).layer(layer_fn(move |reports| Invocations {
        app: Arc::clone(&app),
        api: Arc::clone(&api),
        answers: answers.clone(),
        reports: BoxService::new(reports),
    }))
}

/// Answers invocations and posts the answers. The library would take an answer as a value to write as
/// JSON, which means to escape a body that is escaped already; here it is posted as it is.
struct Invocations {
    app: Arc<App>,
    api: Arc<PlatformApi>,
    answers: Answers,
    /// The library's own way. It reports what is no function-URL event.
    reports: BoxService<LambdaInvocation, (), Error>,
}

impl Service<LambdaInvocation> for Invocations {
    type Response = ();
    type Error = Error;
    type Future = BoxFuture<'static, Result<(), Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.reports.poll_ready(context)
    }

    fn call(&mut self, invocation: LambdaInvocation) -> Self::Future {
        let request_id = invocation.context.request_id.clone();
        let answers = self.answers.clone();
        let Ok(event) = serde_json::from_slice::<Event>(&invocation.body) else {
            let reporting = self.reports.call(invocation);
            return Box::pin(async move {
                let posted = reporting.await;
                answers.post(request_id);
                posted
            });
        };
        let (app, api) = (Arc::clone(&self.app), Arc::clone(&self.api));
        Box::pin(async move {
            let answer = answer(&app, event, &invocation.context).await;
            let path = format!("/2018-06-01/runtime/invocation/{request_id}/response");
            let mut request = Request::new(Bytes::from(answer));
            *request.method_mut() = Method::POST;
            if let Some(id) = invocation.parts.headers.get(INVOCATION_ID_HEADER) {
                request
                    .headers_mut()
                    .insert(INVOCATION_ID_HEADER, id.clone());
            }
            let posted = api.send(&path, request).await;
            answers.post(request_id);
            Ok(posted.map(|_accepted| ())?)
        })
    }
}

/// No payload is one of these: reading it gives the reason why it is no [`Event`].
enum Unreadable {}

impl<'de> Deserialize<'de> for Unreadable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Event::deserialize(deserializer)?;
        Err(D::Error::custom("the payload was readable a moment ago"))
    }
}

/// What the library would call: it never does, because reading the payload fails before.
async fn unreadable(event: LambdaEvent<Unreadable>) -> Result<(), Infallible> {
    match event.payload {}
}

/// Answers one function-URL event: JSON, as the function URL wants it.
pub async fn answer(app: &App, event: Event, lambda: &LambdaContext) -> Vec<u8> {
    let Event {
        mut request,
        source_ip,
    } = event;
    let context = CallContext {
        request_id: lambda.request_id.clone(),
        deadline: i64::try_from(lambda.deadline)
            .ok()
            .map(Timestamp::from_epoch_ms),
        source_ip,
    };
    let trace = lambda.xray_trace_id.as_deref();
    if let Some(Ok(trace)) = trace.map(HeaderValue::from_str) {
        request.headers_mut().insert(XRAY_HEADER, trace);
    }
    let reply = app.handle(request, &context).await;
    function_url::written(&reply)
}
