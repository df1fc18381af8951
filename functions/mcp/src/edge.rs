//! Step 1 of a request: method, path, origin, size, content type. Nothing here needs a key.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, CACHE_CONTROL, CONTENT_TYPE, ORIGIN,
    VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use serde_json::json;

use crate::config::Config;
use crate::reply::{Refusal, Reply, empty_reply, json_reply};

/// Where the MCP endpoint is.
pub const MCP_PATH: &str = "/mcp";
const HEALTH_PATH: &str = "/healthz";
const X_CONTENT_TYPE_OPTIONS: HeaderName = HeaderName::from_static("x-content-type-options");

/// What is to be done with a request.
#[derive(Debug)]
pub enum Admission {
    /// It is a message for the MCP endpoint; a key is needed from here on.
    Mcp,
    /// It is answered already.
    Answered(Reply),
    /// It is refused.
    Refused(Refusal),
}

/// Decides on everything that can be decided without a key.
#[must_use]
pub fn admit(config: &Config, request: &Request<Bytes>) -> Admission {
    let path = normalised_path(request.uri().path());
    if path == HEALTH_PATH {
        return match *request.method() {
            Method::GET | Method::HEAD => Admission::Answered(health()),
            Method::OPTIONS => Admission::Answered(preflight("GET")),
            _ => Admission::Refused(Refusal::OnlyRead),
        };
    }
    let metadata = config
        .oauth
        .as_ref()
        .filter(|oauth| oauth.is_metadata_path(&path));
    if let Some(oauth) = metadata.filter(|_| config.mcp_enabled) {
        return match *request.method() {
            Method::GET | Method::HEAD => {
                Admission::Answered(json_reply(StatusCode::OK, &oauth.metadata()))
            }
            Method::OPTIONS => Admission::Answered(preflight("GET")),
            _ => Admission::Refused(Refusal::OnlyRead),
        };
    }
    if path != MCP_PATH || !config.mcp_enabled {
        return Admission::Refused(Refusal::NotFound);
    }
    if origin(request.headers()).is_some_and(|origin| !origin_allowed(config, origin)) {
        return Admission::Refused(Refusal::OriginNotAllowed);
    }
    match *request.method() {
        Method::POST => Admission::Mcp,
        Method::OPTIONS => Admission::Answered(preflight("POST")),
        _ => Admission::Refused(Refusal::MethodNotAllowed),
    }
}

/// Checks the body's size and declared type, before anything parses it.
///
/// # Errors
/// [`Refusal::BodyTooLarge`] or [`Refusal::NotJson`].
pub fn check_body(config: &Config, request: &Request<Bytes>) -> Result<(), Refusal> {
    if request.body().len() > config.max_body_bytes {
        return Err(Refusal::BodyTooLarge);
    }
    let declared = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = declared
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(Refusal::NotJson)
    }
}

/// Adds what every answer carries: CORS for allowed origins, and no caching of private answers.
pub fn finish(config: &Config, request_headers: &HeaderMap, reply: &mut Reply) {
    let allowed = origin(request_headers).filter(|origin| origin_allowed(config, origin));
    let headers = reply.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = allowed.and_then(|origin| HeaderValue::from_str(origin).ok()) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static(
                "mcp-session-id, www-authenticate, retry-after, ratelimit, ratelimit-policy",
            ),
        );
    }
}

fn health() -> Reply {
    json_reply(
        StatusCode::OK,
        &json!({ "status": "ok", "name": "raglan", "version": env!("CARGO_PKG_VERSION") }),
    )
}

fn preflight(methods: &'static str) -> Reply {
    let mut reply = empty_reply(StatusCode::NO_CONTENT);
    let headers = reply.headers_mut();
    headers.insert(
        ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static(methods),
    );
    headers.insert(
        ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static(
            "authorization, x-api-key, content-type, accept, mcp-protocol-version, mcp-session-id, \
             mcp-method, mcp-name, last-event-id, traceparent, tracestate",
        ),
    );
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
    reply
}

fn origin(headers: &HeaderMap) -> Option<&str> {
    // A header that is no text is no origin that anybody allows; the empty text matches nothing.
    headers
        .get(ORIGIN)
        .map(|value| value.to_str().unwrap_or_default())
}

fn origin_allowed(config: &Config, origin: &str) -> bool {
    config
        .allowed_origins
        .iter()
        .any(|allowed| allowed.allows(origin))
}

/// The path, decoded once and without a slash at its end: some fronts decode it, some do not.
fn normalised_path(raw: &str) -> String {
    let bytes = raw.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut position = 0;
    while let Some(&byte) = bytes.get(position) {
        let hex = bytes.get(position + 1..position + 3).and_then(|pair| {
            let text = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16)
                .ok()
                .filter(|_| pair.iter().all(u8::is_ascii_hexdigit))
        });
        if let (b'%', Some(value)) = (byte, hex) {
            decoded.push(value);
            position += 3;
        } else {
            decoded.push(byte);
            position += 1;
        }
    }
    let path = String::from_utf8_lossy(&decoded);
    let trimmed = path.strip_suffix('/').unwrap_or(&path);
    if trimmed.is_empty() {
        "/".to_owned()
    } else {
        trimmed.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_path_and_a_trailing_slash_are_the_same_endpoint() {
        for raw in ["/mcp", "/mcp/", "/%6dcp", "/mc%70/"] {
            assert_eq!(normalised_path(raw), "/mcp", "{raw}");
        }
        for raw in ["/", "", "/mcp//", "/MCP", "/mcp%2e", "/%+6dcp", "/mcp%"] {
            assert_ne!(normalised_path(raw), "/mcp", "{raw}");
        }
    }
}
