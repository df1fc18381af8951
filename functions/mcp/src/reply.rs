//! The table that turns causes into HTTP answers. Every answer with a body is JSON.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use raglan_texts::{Language, text};
use serde_json::{Value, json};

use crate::json_body::JsonBody;
use crate::oauth::OauthConfig;

/// An answer whose body is whole.
pub type Reply = Response<JsonBody>;

/// The challenge of every 401 where only keys are accepted (RFC 6750 §3).
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
    /// The path is only read.
    OnlyRead,
    /// The browser origin is not allowed.
    OriginNotAllowed,
    /// No key, or one that does not work. The same for every reason.
    Unauthorized,
    /// The access token is good, but not for this server's scope.
    InsufficientScope,
    /// The keys cannot be looked up.
    StoreUnavailable,
    /// The key asks too much.
    RateLimited {
        /// Seconds until the call may be repeated.
        retry_after_seconds: u64,
    },
    /// The address has failed to present a good key too often.
    TooManyFailures {
        /// Seconds until it may try again.
        retry_after_seconds: u64,
    },
    /// The call cannot be counted against its limits.
    LimiterUnavailable,
    /// The call cannot be written down, and is therefore not answered.
    AuditUnavailable,
    /// The program failed.
    Internal,
    /// The body is larger than the limit.
    BodyTooLarge,
    /// The body is not declared as JSON.
    NotJson,
}

impl Refusal {
    /// Status and stable word.
    const fn parts(self) -> (StatusCode, &'static str) {
        match self {
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Self::MethodNotAllowed | Self::OnlyRead => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed")
            }
            Self::OriginNotAllowed => (StatusCode::FORBIDDEN, "origin_not_allowed"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::InsufficientScope => (StatusCode::FORBIDDEN, "insufficient_scope"),
            Self::StoreUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable"),
            Self::RateLimited { .. } => (StatusCode::TOO_MANY_REQUESTS, "rate_limited"),
            Self::TooManyFailures { .. } => (StatusCode::TOO_MANY_REQUESTS, "too_many_failures"),
            Self::LimiterUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "limiter_unavailable"),
            Self::AuditUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "audit_unavailable"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::NotJson => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type"),
        }
    }

    /// The sentence for the caller.
    fn message(self, language: Language) -> &'static str {
        match self {
            Self::NotFound => text!(
                language,
                "Nothing is served here. The MCP endpoint is /mcp."
            ),
            Self::MethodNotAllowed => text!(
                language,
                "Use POST: this endpoint speaks MCP over Streamable HTTP and answers in JSON."
            ),
            Self::OnlyRead => text!(
                language,
                "Use GET: this address is only read. The MCP endpoint is /mcp."
            ),
            Self::OriginNotAllowed => {
                text!(language, "Pages of this origin may not call this server.")
            }
            Self::Unauthorized => text!(
                language,
                "A valid API key is needed: Authorization: Bearer <key>."
            ),
            Self::InsufficientScope => {
                text!(language, "The access token lacks the scope `raglan`.")
            }
            Self::StoreUnavailable => text!(
                language,
                "The store cannot be reached right now. Your key may well be good: try again shortly."
            ),
            Self::RateLimited { .. } => text!(
                language,
                "This key calls too often. Wait as long as Retry-After says."
            ),
            Self::TooManyFailures { .. } => text!(
                language,
                "Too many requests without a valid key came from this address. Wait as long as \
                 Retry-After says."
            ),
            Self::LimiterUnavailable => text!(
                language,
                "The limits of this key cannot be checked right now: try again shortly."
            ),
            Self::AuditUnavailable => text!(
                language,
                "This call cannot be recorded right now, and is not answered unrecorded: try again \
                 shortly."
            ),
            Self::Internal => text!(language, "Something went wrong here."),
            Self::BodyTooLarge => text!(
                language,
                "The request body is larger than this server takes."
            ),
            Self::NotJson => text!(language, "Send Content-Type: application/json."),
        }
    }

    /// The stable word, also the audit event's error class.
    #[must_use]
    pub const fn class(self) -> &'static str {
        self.parts().1
    }

    /// The status of the answer.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        self.parts().0
    }

    /// The answer where only keys are accepted.
    #[must_use]
    pub fn reply(self, language: Language, request_id: &str) -> Reply {
        self.reply_with(language, request_id, None)
    }

    /// The answer. `oauth` is named in the challenge where access tokens are accepted.
    #[must_use]
    pub fn reply_with(
        self,
        language: Language,
        request_id: &str,
        oauth: Option<&OauthConfig>,
    ) -> Reply {
        let (status, class) = self.parts();
        let message = self.message(language);
        let mut body = json!({ "error": class, "message": message, "request_id": request_id });
        let challenge = self.challenge(oauth);
        if let Some(challenge) = &challenge {
            // Fronts are known to rename or drop the header; the body cannot be.
            body["www_authenticate"] = challenge.as_str().into();
        }
        let mut reply = json_reply(status, &body);
        let headers = reply.headers_mut();
        match self {
            Self::MethodNotAllowed => {
                headers.insert(ALLOW, HeaderValue::from_static("POST, OPTIONS"));
            }
            Self::OnlyRead => {
                headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
            }
            Self::RateLimited {
                retry_after_seconds,
            }
            | Self::TooManyFailures {
                retry_after_seconds,
            } => {
                headers.insert(RETRY_AFTER, HeaderValue::from(retry_after_seconds));
            }
            Self::StoreUnavailable | Self::LimiterUnavailable | Self::AuditUnavailable => {
                headers.insert(RETRY_AFTER, HeaderValue::from(STORE_RETRY_AFTER_SECONDS));
            }
            _ => {}
        }
        if let Some(value) = challenge.and_then(|text| HeaderValue::from_str(&text).ok()) {
            reply.headers_mut().insert(WWW_AUTHENTICATE, value);
        }
        reply
    }

    fn challenge(self, oauth: Option<&OauthConfig>) -> Option<String> {
        match (self, oauth) {
            (Self::Unauthorized, None) => Some(CHALLENGE.to_owned()),
            (Self::Unauthorized, Some(oauth)) => Some(oauth.challenge(false)),
            (Self::InsufficientScope, Some(oauth)) => Some(oauth.challenge(true)),
            _ => None,
        }
    }
}

/// A JSON answer.
#[must_use]
pub fn json_reply(status: StatusCode, body: &Value) -> Reply {
    in_json(status, JsonBody::from(Bytes::from(body.to_string())))
}

/// An answer with this body.
#[must_use]
pub fn in_json(status: StatusCode, body: JsonBody) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// An answer without a body.
#[must_use]
pub fn empty_reply(status: StatusCode) -> Reply {
    let mut reply = Response::new(JsonBody::default());
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
