//! Step 4 of a request: the MCP protocol. Our own checks first ([`envelope`]), then the official SDK
//! behind them, and the tools behind that ([`server`]).

pub mod answer_parts;
pub mod descriptions;
pub mod envelope;
pub mod exchange;
mod failure;
pub mod server;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::join_all;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use memchr::memmem;
use raglan_texts::{Language, text};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;

use self::envelope::{
    Body, Envelope, EnvelopeFault, INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, Message,
    SESSION_HEADER,
};
use self::exchange::Exchange;
use crate::body::RequestBody;
use crate::json_body::JsonBody;
use crate::record::CallRecord;
use crate::reply::{Reply, empty_reply, in_json, json_rpc_error};

/// Longer than any tool may take: only a fault in the library itself is caught by it.
const LIBRARY_GRACE: Duration = Duration::from_millis(400);

/// The library's answer to an unknown method holds the method and the id, which both come from a
/// request. Longer answers are not looked at.
const UNKNOWN_METHOD_MAX_BYTES: usize = 4 * 1024;
/// [`METHOD_NOT_FOUND`] as it is written.
const METHOD_NOT_FOUND_TEXT: &[u8] = b"-32601";
/// An unknown method is repeated in the error up to here.
const METHOD_SHOWN_CHARS: usize = 80;

/// The protocol layer in front of a server: the product's ([`server::Server`]), or the conformance
/// suite's in `tests/conformance`. A server is cloned for every request.
pub struct Protocol<S> {
    service: StreamableHttpService<S, NeverSessionManager>,
}

impl<S: ServerHandler + Clone> Protocol<S> {
    /// The protocol layer in front of this server.
    #[must_use]
    pub fn new(server: S, max_body_bytes: usize) -> Self {
        // Host and Origin are judged at the edge; Lambda's host names are not known beforehand.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(max_body_bytes)
            .disable_allowed_hosts()
            .disable_allowed_origins();
        let sessions = Arc::new(NeverSessionManager::default());
        Self {
            service: StreamableHttpService::new(move || Ok(server.clone()), sessions, config),
        }
    }

    /// Answers one message of a known caller. `session_id` is what a handshake's answer carries.
    pub async fn answer(
        &self,
        headers: &HeaderMap,
        body: &RequestBody,
        exchange: Arc<Exchange>,
        session_id: impl FnOnce() -> Option<String>,
    ) -> Reply {
        let read = envelope::read(headers, body.json(), exchange.language);
        let body = body.bytes();
        match read {
            Ok(Body::Single(envelope)) => {
                let opens_session = envelope.opens_session();
                let mut reply = self.answer_one(headers, body, envelope, exchange).await;
                if opens_session && reply.status().is_success() {
                    let value = session_id().and_then(|id| HeaderValue::from_str(&id).ok());
                    if let Some(value) = value {
                        reply
                            .headers_mut()
                            .insert(HeaderName::from_static(SESSION_HEADER), value);
                    }
                }
                reply
            }
            Ok(Body::Batch(elements)) => {
                self.answer_batch(headers, body, elements, &exchange).await
            }
            Err(fault) => refuse(&fault, &exchange.record),
        }
    }

    /// Answers the messages of a batch at the same time, in one array; notifications alone need none.
    async fn answer_batch(
        &self,
        headers: &HeaderMap,
        body: &Bytes,
        elements: Vec<Result<Envelope, EnvelopeFault>>,
        whole: &Exchange,
    ) -> Reply {
        let answers = elements.into_iter().map(|element| {
            let exchange = Arc::new(whole.element());
            async move {
                match element {
                    Ok(envelope) => self.answer_one(headers, body, envelope, exchange).await,
                    Err(fault) => refuse(&fault, &exchange.record),
                }
            }
        });
        let answers = join_all(answers).await;
        let mut array = JsonBody::default();
        for answer in answers.into_iter().map(Reply::into_body) {
            if answer.is_empty() {
                continue;
            }
            let separator = if array.is_empty() { "[" } else { "," };
            array.push(Bytes::from_static(separator.as_bytes()));
            array.append(answer);
        }
        if array.is_empty() {
            return empty_reply(StatusCode::ACCEPTED);
        }
        array.push(Bytes::from_static(b"]"));
        in_json(StatusCode::OK, array)
    }

    async fn answer_one(
        &self,
        headers: &HeaderMap,
        body: &Bytes,
        envelope: Envelope,
        exchange: Arc<Exchange>,
    ) -> Reply {
        let (record, language) = (Arc::clone(&exchange.record), exchange.language);
        let (id, method, replaced) = match envelope.message {
            // There is no state that a notification or a response could change.
            Message::Notification { method } => {
                record.method(&method, envelope.meta_version.as_deref());
                return empty_reply(StatusCode::ACCEPTED);
            }
            Message::Response => return empty_reply(StatusCode::ACCEPTED),
            Message::Request {
                id,
                method,
                replaced,
            } => (id, method, replaced),
        };
        record.method(&method, envelope.meta_version.as_deref());
        let body = replaced.map_or_else(|| body.clone(), |message| message.to_string().into());
        let until = exchange.until + LIBRARY_GRACE;
        let request = library_request(headers, body, Arc::clone(&exchange));
        let work = AssertUnwindSafe(self.call_library(request)).catch_unwind();
        match tokio::time::timeout_at(until, work).await {
            Ok(Ok(answer)) => finish(&answer, &id, &method, &exchange),
            outcome => {
                tracing::error!(timed_out = outcome.is_err(), "the protocol library failed");
                record.failed("internal_error");
                internal_error(id, language)
            }
        }
    }

    async fn call_library(&self, request: Request<Full<Bytes>>) -> Response<Bytes> {
        let (parts, body) = self.service.handle(request).await.into_parts();
        let bytes = match body.collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(never) => match never {},
        };
        Response::from_parts(parts, bytes)
    }
}

fn refuse(fault: &EnvelopeFault, record: &CallRecord) -> Reply {
    if let Some(method) = fault.method() {
        record.method(method, None);
    }
    record.failed(fault.class());
    fault.reply()
}

/// The request as the library wants it: it insists on headers that clients get wrong and that decide
/// nothing here, because the answer is JSON in any case.
fn library_request(
    headers: &HeaderMap,
    body: Bytes,
    exchange: Arc<Exchange>,
) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    let target = request.headers_mut();
    for (name, value) in headers {
        let for_the_library = name.as_str().starts_with("mcp-") && name != SESSION_HEADER;
        // White space around a value is no part of it (RFC 9110 §5.5); the library would compare it.
        let value = HeaderValue::from_bytes(value.as_bytes().trim_ascii());
        if let (true, Ok(value)) = (for_the_library, value) {
            target.append(name, value);
        }
    }
    target.insert(
        ACCEPT,
        HeaderValue::from_static("application/json, text/event-stream"),
    );
    target.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    target.insert(HOST, HeaderValue::from_static("localhost"));
    request.extensions_mut().insert(exchange);
    request
}

/// The answer as it leaves. The library answers some faults in plain text; clients that negotiate need
/// a JSON-RPC body.
fn finish(answer: &Response<Bytes>, id: &Value, method: &str, exchange: &Exchange) -> Reply {
    let (status, language) = (answer.status(), exchange.language);
    let declared = answer
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    if declared.is_some_and(|declared| declared.starts_with("application/json")) {
        if is_unknown_method(answer.body()) {
            let message = unknown_method(method, language);
            return json_rpc_error(status, Some(id.clone()), METHOD_NOT_FOUND, &message);
        }
        if let Some(body) = exchange.parts.put_into(answer.body()) {
            return in_json(status, body);
        }
        tracing::error!("the protocol library left no place for a part of the answer");
        exchange.record.failed("internal_error");
        return internal_error(id.clone(), language);
    }
    if status.is_success() && answer.body().is_empty() {
        return empty_reply(status);
    }
    if status.is_client_error() {
        return json_rpc_error(
            status,
            Some(id.clone()),
            INVALID_REQUEST,
            text!(language, "The request is not valid."),
        );
    }
    tracing::error!(%status, "the protocol library answered in no JSON");
    internal_error(id.clone(), language)
}

fn internal_error(id: Value, language: Language) -> Reply {
    json_rpc_error(
        StatusCode::OK,
        Some(id),
        INTERNAL_ERROR,
        text!(language, "Something went wrong here."),
    )
}

/// Whether this is the library's error for a method that is not served. Its text is the bare method.
fn is_unknown_method(body: &[u8]) -> bool {
    // Most answers are no errors, and need not be parsed to know that.
    let may_be = || memmem::find(body, METHOD_NOT_FOUND_TEXT).is_some();
    if body.len() > UNKNOWN_METHOD_MAX_BYTES || !may_be() {
        return false;
    }
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    answer["error"]["code"] == METHOD_NOT_FOUND
}

fn unknown_method(method: &str, language: Language) -> String {
    let mut shown: String = method.chars().take(METHOD_SHOWN_CHARS).collect();
    if shown.len() < method.len() {
        shown.push('…');
    }
    text!(
        language,
        "unknown method {method}",
        method = format_args!("{shown:?}")
    )
}
