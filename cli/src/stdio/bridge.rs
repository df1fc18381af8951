//! One JSON-RPC message of a local host, as one HTTP request and back.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use raglan_outbound::{Bounds, OutboundClient};
use serde_json::{Value, json};

use crate::language::text;

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(2),
    response_max_bytes: 8 * 1024 * 1024,
};
const VERSION_META: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
const PARSE_ERROR: i32 = -32700;
const INTERNAL_ERROR: i32 = -32603;

/// Hands messages to an endpoint.
pub struct Bridge {
    client: OutboundClient,
    url: String,
    key: String,
    /// The revision that the handshake agreed on.
    negotiated: Mutex<Option<String>>,
}

/// Whether this line is the handshake's first message.
pub fn opens_session(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|message| message["method"] == "initialize")
}

impl Bridge {
    /// A bridge to this endpoint with this key.
    pub fn new(url: String, key: String) -> Self {
        Self {
            client: OutboundClient::default(),
            url,
            key,
            negotiated: Mutex::new(None),
        }
    }

    /// The line that answers this one; `None` when there is nothing to say.
    pub async fn answer(&self, line: &str) -> Option<String> {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            return Some(error(
                &Value::Null,
                PARSE_ERROR,
                text!("The line is not JSON."),
            ));
        };
        let id = message.get("id").cloned();
        let answer = match self.request(&message, line) {
            Ok(request) => self
                .client
                .send(request, BOUNDS)
                .await
                .map_err(|e| e.to_string()),
            Err(problem) => Err(problem.to_string()),
        };
        match answer {
            Ok(answer) => self.read(&message, id, &answer),
            Err(problem) => {
                let text = text!("{url} does not answer: {problem}", url = self.url, problem);
                id.map(|id| error(&id, INTERNAL_ERROR, &text))
            }
        }
    }

    /// The headers say what the body says: routers in between read only those.
    fn request(&self, message: &Value, line: &str) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::post(&self.url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .header(AUTHORIZATION, format!("Bearer {}", self.key));
        let own_version = message.pointer(VERSION_META).and_then(Value::as_str);
        let negotiated = self
            .negotiated
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(version) = own_version.map(ToOwned::to_owned).or(negotiated) {
            request = request.header("mcp-protocol-version", version);
        }
        if let (Some(_), Some(method)) = (own_version, message["method"].as_str()) {
            request = request.header("mcp-method", encoded(method));
            let name = match method {
                "tools/call" | "prompts/get" => message.pointer("/params/name"),
                "resources/read" => message.pointer("/params/uri"),
                _ => None,
            };
            if let Some(name) = name.and_then(Value::as_str) {
                request = request.header("mcp-name", encoded(name));
            }
        }
        request.body(Full::new(Bytes::from(line.to_owned())))
    }

    fn read(&self, message: &Value, id: Option<Value>, answer: &Response<Bytes>) -> Option<String> {
        if answer.body().is_empty() {
            return None;
        }
        let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        let is_message = body.is_array() || body.get("jsonrpc").is_some();
        if !is_message {
            let word = body["message"]
                .as_str()
                .unwrap_or(text!("the answer is not for MCP"));
            let text = format!("{}: {word}", answer.status());
            return id.map(|id| error(&id, INTERNAL_ERROR, &text));
        }
        if message["method"] == "initialize"
            && let Some(version) = body
                .pointer("/result/protocolVersion")
                .and_then(Value::as_str)
        {
            let mut negotiated = self
                .negotiated
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *negotiated = Some(version.to_owned());
        }
        Some(body.to_string())
    }
}

/// A header value as MCP 2026-07-28 writes what no header can hold.
fn encoded(text: &str) -> String {
    let plain = text
        .bytes()
        .all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && text.trim() == text
        && !text.starts_with("=?base64?")
        && HeaderValue::from_str(text).is_ok();
    if plain {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(text))
    }
}

fn error(id: &Value, code: i32, message: &str) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bridge() -> Bridge {
        Bridge::new("http://127.0.0.1:1/mcp".to_owned(), "key".to_owned())
    }

    fn headers(line: &str) -> Vec<(String, String)> {
        let message = serde_json::from_str(line).unwrap();
        let request = bridge().request(&message, line).unwrap();
        let named = request
            .headers()
            .iter()
            .filter(|(name, _)| name.as_str().starts_with("mcp-"));
        named
            .map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_owned()))
            .collect()
    }

    #[test]
    fn a_request_that_names_its_revision_gets_the_headers_that_go_with_it() {
        let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"检索",
            "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        assert_eq!(
            headers(line),
            [
                ("mcp-protocol-version".to_owned(), "2026-07-28".to_owned()),
                ("mcp-method".to_owned(), "tools/call".to_owned()),
                (
                    "mcp-name".to_owned(),
                    format!("=?base64?{}?=", STANDARD.encode("检索"))
                ),
            ]
        );
        assert_eq!(headers(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), []);
    }

    #[tokio::test]
    async fn what_cannot_be_delivered_is_an_error_for_requests_and_silence_for_notifications() {
        let answer = bridge()
            .answer(r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#)
            .await
            .unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!("a"), &json!(-32603))
        );
        assert_eq!(
            bridge()
                .answer(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#)
                .await,
            None
        );
        let answer = bridge().answer("no json").await.unwrap();
        assert!(answer.contains("-32700"), "{answer}");
    }
}
