//! The table that turns causes into HTTP answers. Every answer with a body is JSON.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

/// An answer whose body is whole.
pub type Reply = Response<Bytes>;

/// The challenge of every 401 (RFC 6750 §3).
pub const CHALLENGE: &str = "Bearer realm=\"mcp\"";

/// Seconds after which a caller may try again when the store is away.
const STORE_RETRY_AFTER_SECONDS: u32 = 2;

/// Why a request ends before the protocol layer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No such path, or the endpoint is switched off.
    NotFound,
    /// The path takes other methods.
    MethodNotAllowed,
    /// The browser origin is not allowed.
    OriginNotAllowed,
    /// No key, or one that does not work. The same for every reason.
    Unauthorized,
    /// The keys cannot be looked up.
    StoreUnavailable,
    /// The body is larger than the limit.
    BodyTooLarge,
    /// The body is not declared as JSON.
    NotJson,
}

impl Refusal {
    /// Status, stable word and sentence for the caller.
    const fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "not_found",
                "Nothing is served here. The MCP endpoint is /mcp.",
            ),
            Self::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "Use POST: this endpoint speaks MCP over Streamable HTTP and answers in JSON.",
            ),
            Self::OriginNotAllowed => (
                StatusCode::FORBIDDEN,
                "origin_not_allowed",
                "Pages of this origin may not call this server.",
            ),
            Self::Unauthorized => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "A valid API key is needed: Authorization: Bearer <key>.",
            ),
            Self::StoreUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "temporarily_unavailable",
                "The key cannot be checked right now. It may well be good: try again shortly.",
            ),
            Self::BodyTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "body_too_large",
                "The request body is larger than this server takes.",
            ),
            Self::NotJson => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "Send Content-Type: application/json.",
            ),
        }
    }

    /// The stable word, also the audit event's error class.
    #[must_use]
    pub const fn class(self) -> &'static str {
        self.parts().1
    }

    /// The answer.
    #[must_use]
    pub fn reply(self, request_id: &str) -> Reply {
        let (status, class, message) = self.parts();
        let mut body = json!({ "error": class, "message": message, "request_id": request_id });
        if self == Self::Unauthorized {
            // Fronts are known to rename or drop the header; the body cannot be.
            body["www_authenticate"] = CHALLENGE.into();
        }
        let mut reply = json_reply(status, &body);
        let headers = reply.headers_mut();
        match self {
            Self::MethodNotAllowed => {
                headers.insert(ALLOW, HeaderValue::from_static("POST, OPTIONS"));
            }
            Self::Unauthorized => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
            }
            Self::StoreUnavailable => {
                headers.insert(RETRY_AFTER, HeaderValue::from(STORE_RETRY_AFTER_SECONDS));
            }
            _ => {}
        }
        reply
    }
}

/// A JSON answer.
#[must_use]
pub fn json_reply(status: StatusCode, body: &Value) -> Reply {
    let mut reply = Response::new(Bytes::from(body.to_string()));
    *reply.status_mut() = status;
    reply
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// An answer without a body.
#[must_use]
pub fn empty_reply(status: StatusCode) -> Reply {
    let mut reply = Response::new(Bytes::new());
    *reply.status_mut() = status;
    reply
}

/// A JSON-RPC error. `id` is `None` where the protocol revision wants it left out, and
/// [`Value::Null`] where it wants `null`.
#[must_use]
pub fn json_rpc_error(status: StatusCode, id: Option<Value>, code: i32, message: &str) -> Reply {
    let mut body = json!({ "jsonrpc": "2.0" });
    if let Some(id) = id {
        body["id"] = id;
    }
    body["error"] = json!({ "code": code, "message": message });
    json_reply(status, &body)
}
