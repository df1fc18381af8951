//! The calls: function-URL events, and the status that each must be answered with.

use anyhow::ensure;
use lambda_runtime::Context;
use raglan_core::key::PlainKey;
use raglan_core::random::SequenceRandom;
use raglan_mcp::app::App;
use raglan_mcp::lambda;
use serde::Deserialize;
use serde_json::{Value, json};

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// The handshake.
    Initialize,
    /// What there is.
    ListTools,
    /// A search with a result.
    Retrieve,
    /// A search in a knowledge base that does not exist.
    Refusal,
    /// A key that nobody has.
    BadKey,
}

/// What is looked at of an answer.
#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "statusCode")]
    status_code: u16,
}

impl Call {
    /// Every call.
    pub const ALL: [Self; 5] = [
        Self::Initialize,
        Self::ListTools,
        Self::Retrieve,
        Self::Refusal,
        Self::BadKey,
    ];

    /// Its name in `instructions.toml`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::ListTools => "tools_list",
            Self::Retrieve => "retrieve",
            Self::Refusal => "refusal",
            Self::BadKey => "bad_key",
        }
    }

    /// The call of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.name() == name)
    }

    /// Calls once.
    ///
    /// # Errors
    /// The answer is not the one that this call must have.
    pub async fn send(self, app: &App, key: &str) -> anyhow::Result<()> {
        let event = self.event(key)?.to_string();
        let event = serde_json::from_str(&event)?;
        let mut context = Context::default();
        "00000000-0000-4000-8000-000000000001".clone_into(&mut context.request_id);
        let answer = lambda::answer(app, event, &context).await;
        let answer: Answer = serde_json::from_slice(&answer)?;
        let (status, expected) = (answer.status_code, self.status());
        ensure!(
            status == expected,
            "{} was answered with {status} instead of {expected}",
            self.name()
        );
        Ok(())
    }

    const fn status(self) -> u16 {
        match self {
            Self::BadKey => 401,
            _ => 200,
        }
    }

    fn event(self, key: &str) -> anyhow::Result<Value> {
        let unknown = PlainKey::generate(&SequenceRandom::seeded(1))?;
        let key = match self {
            Self::BadKey => unknown.reveal(),
            _ => key,
        };
        Ok(json!({
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": "/mcp",
            "rawQueryString": "",
            "headers": {
                "host": "abcdefghij.lambda-url.eu-west-1.on.aws",
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
                "authorization": format!("Bearer {key}"),
                "user-agent": "instructions/1",
                "x-amzn-trace-id": "Root=1-67f0c0de-000000000000000000000001"
            },
            "requestContext": {
                "accountId": "anonymous",
                "apiId": "abcdefghij",
                "domainName": "abcdefghij.lambda-url.eu-west-1.on.aws",
                "http": {
                    "method": "POST", "path": "/mcp", "protocol": "HTTP/1.1",
                    "sourceIp": "203.0.113.9", "userAgent": "instructions/1"
                },
                "requestId": "00000000-0000-4000-8000-000000000001",
                "routeKey": "$default",
                "stage": "$default",
                "time": "30/Nov/2026:08:15:00 +0000",
                "timeEpoch": 1_796_000_000_000_i64
            },
            "isBase64Encoded": false,
            "body": self.message().to_string()
        }))
    }

    fn message(self) -> Value {
        let of = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let retrieve = |kb_id: Option<&str>| {
            let mut arguments = json!({
                "query": "How long can the old key stay valid after a rotation?", "top_k": 3
            });
            if let Some(kb_id) = kb_id {
                arguments["kb_id"] = kb_id.into();
            }
            of(
                "tools/call",
                json!({ "name": "retrieve", "arguments": arguments }),
            )
        };
        match self {
            Self::Initialize => of(
                "initialize",
                json!({
                    "protocolVersion": "2025-06-18",
                    "capabilities": {},
                    "clientInfo": { "name": "instructions", "version": "1" }
                }),
            ),
            Self::ListTools | Self::BadKey => of("tools/list", json!({})),
            Self::Retrieve => retrieve(None),
            Self::Refusal => retrieve(Some("not-mine")),
        }
    }
}
