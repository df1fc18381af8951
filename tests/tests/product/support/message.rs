//! Function-URL events (payload 2.0) into the function, and its answers.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lambda_runtime::Context;
use raglan_core::key::PlainKey;
use raglan_mcp::lambda;
use serde::Deserialize;
use serde_json::{Value, json};

use super::world::World;

/// The request id that every request of the tests has.
pub const REQUEST_ID: &str = "00000000-0000-4000-8000-000000000001";
const HOST: &str = "abcdefghij.lambda-url.eu-west-1.on.aws";

/// A request, as it is sent.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Option<Vec<u8>>,
    base64: bool,
    deadline_epoch_ms: u64,
}

impl Request {
    /// A request without body, key and content type.
    pub fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: String::new(),
            headers: BTreeMap::new(),
            body: None,
            base64: false,
            deadline_epoch_ms: 0,
        }
    }

    /// A POST of these bytes to the MCP endpoint, declared as JSON.
    pub fn post(body: impl Into<Vec<u8>>) -> Self {
        let mut request = Self::new("POST", "/mcp").header("content-type", "application/json");
        request.body = Some(body.into());
        request
    }

    /// The same with this key.
    pub fn key(self, key: &PlainKey) -> Self {
        self.header("authorization", &format!("Bearer {}", key.reveal()))
    }

    /// The same with this header in place of an earlier one. AWS joins repeated headers with a comma.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The same without this header.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    /// The same to another path.
    pub fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// The same with a query string.
    pub fn query(mut self, query: &str) -> Self {
        query.clone_into(&mut self.query);
        self
    }

    /// The same with its body in base64, as AWS sends what it takes for binary.
    pub fn in_base64(mut self) -> Self {
        self.base64 = true;
        self
    }

    /// The same, to be ended by the platform at this moment.
    pub fn deadline_epoch_ms(mut self, epoch_ms: i64) -> Self {
        self.deadline_epoch_ms = u64::try_from(epoch_ms).unwrap();
        self
    }

    /// The headers of the revisions without handshake, for a request with this method and name.
    pub fn modern(self, method: &str, name: Option<&str>) -> Self {
        let request = self
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        match name {
            Some(name) => request.header("mcp-name", name),
            None => request,
        }
    }

    /// The function-URL event.
    pub fn event(&self) -> Value {
        let mut headers = self.headers.clone();
        headers.insert("host".to_owned(), HOST.to_owned());
        headers.insert("x-forwarded-for".to_owned(), "203.0.113.9".to_owned());
        let mut event = json!({
            "version": "2.0", "routeKey": "$default", "rawPath": self.path,
            "rawQueryString": self.query, "headers": headers,
            "requestContext": {
                "accountId": "anonymous", "apiId": "abcdefghij", "domainName": HOST,
                "domainPrefix": "abcdefghij", "requestId": REQUEST_ID, "routeKey": "$default",
                "stage": "$default", "time": "30/Nov/2026:08:15:00 +0000",
                "timeEpoch": 1_796_026_500_000_u64,
                "http": {
                    "method": self.method, "path": self.path, "protocol": "HTTP/1.1",
                    "sourceIp": "203.0.113.9", "userAgent": "test/1"
                }
            },
            "isBase64Encoded": self.base64,
        });
        if let Some(body) = &self.body {
            event["body"] = if self.base64 {
                STANDARD.encode(body).into()
            } else {
                String::from_utf8(body.clone()).unwrap().into()
            };
        }
        event
    }

    /// Sends it.
    pub async fn send(&self, world: &World) -> Answer {
        let mut context = Context::default();
        REQUEST_ID.clone_into(&mut context.request_id);
        context.deadline = self.deadline_epoch_ms;
        let event = serde_json::from_value(self.event()).unwrap();
        let posted = lambda::answer(&world.app, event, &context).await;
        let posted: Posted = serde_json::from_slice(&posted).unwrap();
        assert!(!posted.is_base64_encoded);
        Answer {
            status: posted.status_code,
            headers: posted.headers,
            body: posted.body.unwrap_or_default(),
        }
    }
}

/// What the function URL is given.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Posted {
    status_code: u16,
    headers: BTreeMap<String, String>,
    body: Option<String>,
    is_base64_encoded: bool,
}

/// A JSON-RPC request with id 1.
pub fn rpc(method: &str, params: Value) -> Request {
    let mut body = json!({ "jsonrpc": "2.0", "id": 1, "method": method });
    if !params.is_null() {
        body["params"] = params;
    }
    Request::post(body.to_string())
}

/// A call of a tool.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers write the arguments on the spot"
)]
pub fn call(tool: &str, arguments: Value) -> Request {
    rpc(
        "tools/call",
        json!({ "name": tool, "arguments": arguments }),
    )
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The result of a tool that succeeded.
    pub fn structured(&self) -> Value {
        let body = self.json();
        assert_eq!(self.status, 200, "{body}");
        assert_ne!(body["result"]["isError"], true, "{body}");
        assert!(body["result"]["structuredContent"].is_object(), "{body}");
        body["result"]["structuredContent"].clone()
    }

    /// The text of a tool's error that the model is to read, and its machine part.
    pub fn tool_error(&self) -> (String, Value) {
        let body = self.json();
        assert_eq!(self.status, 200, "{body}");
        let result = &body["result"];
        assert_eq!(result["isError"], true, "{body}");
        assert_eq!(result.get("structuredContent"), None, "{body}");
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        (text, result["_meta"]["raglan/error"].clone())
    }

    /// The code of a JSON-RPC error.
    pub fn code(&self) -> Option<i64> {
        serde_json::from_str::<Value>(&self.body).ok()?["error"]["code"].as_i64()
    }

    /// The whole answer for a snapshot. The text of a tool's result must be its structured content
    /// once more; it is shown as that.
    pub fn shown(&self) -> Value {
        let mut body = if self.body.is_empty() {
            Value::Null
        } else {
            self.json()
        };
        if let Some(structured) = body.pointer("/result/structuredContent").cloned() {
            let text = body.pointer_mut("/result/content/0/text").unwrap();
            assert_eq!(*text, Value::from(structured.to_string()));
            *text = "(structuredContent as JSON)".into();
        }
        json!({ "status": self.status, "headers": self.headers, "body": body })
    }
}
