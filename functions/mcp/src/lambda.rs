//! Between Lambda's function-URL events and the function.

use bytes::Bytes;
use http::Response;
use lambda_http::request::RequestContext;
use lambda_http::{Body, Request, RequestExt as _};
use raglan_core::clock::Timestamp;

use crate::app::App;
use crate::context::CallContext;

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
