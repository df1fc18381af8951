//! Between Lambda's function-URL events and the function.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use lambda_http::request::RequestContext;
use lambda_http::{Adapter, Body, Request, RequestExt as _, service_fn};
use lambda_runtime::Runtime;
use lambda_runtime::layers::TracingLayer;
use lambda_runtime::tower::layer::layer_fn;
use raglan_core::clock::Timestamp;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::App;
use crate::config::AuditMode;
use crate::context::CallContext;
use crate::extension::{self, Answers, TellAnswers};

/// Answers invocations until the platform ends the process.
///
/// # Errors
/// When the Runtime API cannot be used.
pub async fn run(app: App) -> Result<(), lambda_http::Error> {
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
    let handler = service_fn(move |request: Request| {
        let app = Arc::clone(&app);
        async move { Ok::<_, Infallible>(handle(&app, request).await) }
    });
    let runtime = Runtime::new(Adapter::from(handler))
        .layer(TracingLayer::new())
        .layer(layer_fn(move |runtime| {
            TellAnswers::new(runtime, answers.clone())
        }));
    let mut terminated = signal(SignalKind::terminate())?;
    let beside = async {
        if let Some(extension) = extension {
            extension.await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = runtime.run() => ended,
        () = beside => Ok(()),
        _ = terminated.recv() => {
            trail.shut_down().await;
            Ok(())
        }
    }
}

/// Answers one function-URL event.
pub async fn handle(app: &App, request: Request) -> Response<Body> {
    let context = call_context(&request);
    let (parts, body) = request.into_parts();
    let bytes = match body {
        Body::Text(text) => Bytes::from(text),
        Body::Binary(bytes) => Bytes::from(bytes),
        // `Body` may grow; what we do not know holds nothing that we could read.
        _ => Bytes::new(),
    };
    let reply = app
        .handle(http::Request::from_parts(parts, bytes), &context)
        .await;
    reply.map(|bytes| {
        if bytes.is_empty() {
            return Body::Empty;
        }
        // Every body of ours is JSON, so it is UTF-8; the copy is made once.
        String::from_utf8(bytes.into())
            .map_or_else(|error| Body::Binary(error.into_bytes()), Body::Text)
    })
}

fn call_context(request: &Request) -> CallContext {
    let lambda = request.lambda_context_ref();
    let http = match request.request_context_ref() {
        Some(RequestContext::ApiGatewayV2(context)) => Some(&context.http),
        _ => None,
    };
    CallContext {
        request_id: lambda
            .map(|context| context.request_id.clone())
            .unwrap_or_default(),
        deadline: lambda
            .and_then(|context| i64::try_from(context.deadline).ok())
            .map(Timestamp::from_epoch_ms),
        source_ip: http.and_then(|http| http.source_ip.clone()),
    }
}
