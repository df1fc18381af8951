//! What a client sees: the endpoint, its refusals, its clock, and calls with a key.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use raglan_core::clock::{Clock, Timestamp};
use raglan_outbound::{Bounds, OutboundClient};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use super::finding::Finding;

use crate::language::text;

/// A cold start and a slow engine fit into it.
const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(35),
    response_max_bytes: 6 * 1024 * 1024,
};
/// AWS refuses signatures that are five minutes off; a minute is where people should look.
const SKEW_MAX_SECONDS: i64 = 60;
/// So many knowledge bases are searched once.
const SEARCHED_MAX: usize = 20;

/// Asks an endpoint.
pub struct Outside<'a> {
    client: OutboundClient,
    url: &'a str,
    clock: &'a dyn Clock,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
}

impl<'a> Outside<'a> {
    /// Asks the MCP endpoint at `url`.
    #[must_use]
    pub fn new(url: &'a str, clock: &'a dyn Clock) -> Self {
        Self {
            client: OutboundClient::default(),
            url,
            clock,
        }
    }

    /// Whether it answers at all, in which version, and what time it is there.
    pub async fn health(&self) -> Vec<Finding> {
        let (base, _) = self.url.rsplit_once('/').unwrap_or((self.url, ""));
        let answer = match self
            .send(Method::GET, &format!("{base}/healthz"), None, None)
            .await
        {
            Ok(answer) => answer,
            Err(cause) => {
                return vec![Finding::failed(
                    "endpoint",
                    text!("{url} does not answer: {cause}", url = self.url, cause),
                    text!(
                        "Look whether the URL is right, whether the stack is deployed and whether this \
                     machine reaches it."
                    ),
                )];
            }
        };
        let version = answer.body["version"].as_str().unwrap_or("unknown");
        let own = env!("CARGO_PKG_VERSION");
        let endpoint = if answer.status != StatusCode::OK || answer.body["name"] != "raglan" {
            Finding::failed(
                "endpoint",
                text!(
                    "{url} answers {status}, and not as raglan does",
                    url = self.url,
                    status = answer.status
                ),
                text!(
                    "Look whether the URL is right; 403 means that a permission of the function URL is \
                 missing, 502 that the function does not start: its log says why."
                ),
            )
        } else if version == own {
            Finding::ok(
                "endpoint",
                text!("{url} answers, version {version}", url = self.url, version),
            )
        } else {
            Finding::warning(
                "endpoint",
                text!(
                    "the endpoint has version {version}, this command has {own}",
                    version,
                    own
                ),
                text!("Use the command line of the version that is deployed."),
            )
        };
        vec![endpoint, self.clock_skew(&answer.headers)]
    }

    fn clock_skew(&self, headers: &HeaderMap) -> Finding {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let there = date.and_then(|date| OffsetDateTime::parse(date, &Rfc2822).ok());
        let Some(there) = there else {
            return Finding::skipped(
                "clock",
                text!("the endpoint does not say what time it is"),
                text!("Compare this machine's clock with another one."),
            );
        };
        let there = Timestamp::from_epoch_seconds(there.unix_timestamp());
        let skew_seconds = self.clock.now().epoch_seconds() - there.epoch_seconds();
        if skew_seconds.abs() > SKEW_MAX_SECONDS {
            return Finding::failed(
                "clock",
                text!(
                    "this machine's clock is {skew_seconds} s ahead of the endpoint's",
                    skew_seconds
                ),
                text!(
                    "Set this machine's clock: keys would end at the wrong time, and AWS refuses requests \
                 that are five minutes off."
                ),
            );
        }
        Finding::ok("clock", text!("{skew_seconds} s apart", skew_seconds))
    }

    /// Whether it refuses who has no key.
    pub async fn refusal(&self) -> Finding {
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
        let answer = self.send(Method::POST, self.url, None, Some(&list)).await;
        match answer.map(|answer| answer.status) {
            Err(cause) => Finding::failed(
                "no_key",
                text!("a request without a key is not answered: {cause}", cause),
                text!("Look at the function's log."),
            ),
            Ok(StatusCode::UNAUTHORIZED) => Finding::ok("no_key", text!("refused with 401")),
            Ok(StatusCode::NOT_FOUND) => Finding::failed(
                "no_key",
                text!("the endpoint is switched off or has another path"),
                text!("Deploy with McpEnabled=true, and name the path /mcp."),
            ),
            Ok(status) if status.is_success() => Finding::failed(
                "no_key",
                text!("a request without a key is served ({status})", status),
                text!(
                    "Close the endpoint (McpEnabled=false) and find out what answers at this URL."
                ),
            ),
            Ok(status) => Finding::failed(
                "no_key",
                text!(
                    "a request without a key is answered with {status}, expected 401",
                    status
                ),
                text!("Look whether something in front of the function answers in its place."),
            ),
        }
    }

    /// Whether a key works, and whether everything that it sees can be searched.
    pub async fn calls(&self, key: &str) -> Vec<Finding> {
        let listed = self.call(key, "list_knowledge_bases", json!({})).await;
        let items = match listed {
            Ok(result) => result["structuredContent"]["items"].clone(),
            Err(finding) => return vec![finding],
        };
        let items = items.as_array().cloned().unwrap_or_default();
        let mut findings = vec![Finding::ok(
            "key",
            text!(
                "works, and sees {count} knowledge bases",
                count = items.len()
            ),
        )];
        let ids: Vec<&str> = items
            .iter()
            .filter_map(|item| item["id"].as_str())
            .collect();
        if ids.is_empty() {
            findings.push(Finding::warning(
                "knowledge",
                text!("the key sees no knowledge base"),
                text!("Add one (`raglan index`, `raglan kb add`), or widen the key (`raglan key grant`)."),
            ));
        }
        for id in ids.iter().take(SEARCHED_MAX) {
            findings.push(self.search(key, id).await);
        }
        if ids.len() > SEARCHED_MAX {
            findings.push(Finding::skipped(
                "knowledge",
                text!(
                    "{count} more were not searched",
                    count = ids.len() - SEARCHED_MAX
                ),
                text!("Use keys that see fewer knowledge bases to check the rest."),
            ));
        }
        findings
    }

    async fn search(&self, key: &str, id: &str) -> Finding {
        let arguments = json!({"query": "raglan", "kb_id": id, "top_k": 1});
        let result = match self.call(key, "retrieve", arguments).await {
            Ok(result) => result,
            Err(finding) => return finding,
        };
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        let partial = &result["structuredContent"]["warnings"];
        if result["isError"] == true {
            return Finding::failed(
                "knowledge",
                text!("{id} cannot be searched: {text}", id, text),
                text!(
                    "Look at the function's log for the request's identifier. An index that another version \
                 wrote, or that is not there, has to be built and published again (`raglan index`)."
                ),
            );
        }
        if let Some(warnings) = partial.as_array().filter(|warnings| !warnings.is_empty()) {
            return Finding::warning(
                "knowledge",
                text!(
                    "{id} answers in part: {from}",
                    id,
                    from = Value::from(warnings.clone())
                ),
                text!("Look at the engine that answers for it."),
            );
        }
        Finding::ok("knowledge", text!("{id} can be searched", id))
    }

    /// The result of a tool, or what is in the way of calling it.
    async fn call(&self, key: &str, tool: &str, arguments: Value) -> Result<Value, Finding> {
        let call = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}
        });
        let answer = self
            .send(Method::POST, self.url, Some(key), Some(&call))
            .await;
        let failed = |detail: String, advice: &str| Err(Finding::failed("key", detail, advice));
        let answer = match answer {
            Ok(answer) => answer,
            Err(cause) => {
                let detail = text!("a call of {tool} is not answered: {cause}", tool, cause);
                return failed(detail, text!("Look at the function's log."));
            }
        };
        match answer.status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => {
                return failed(
                    text!("the key is refused").to_owned(),
                    text!(
                        "Look at it with `printf %s \"$RAGLAN_KEY\" | raglan key show -`: it may be unknown \
                     here, switched off, expired or revoked."
                    ),
                );
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                return failed(
                    text!("the function cannot ask its tables or its queue (503)").to_owned(),
                    text!(
                        "Look at the function's log, at the tables' alarms, and at AWS's health dashboard."
                    ),
                );
            }
            StatusCode::TOO_MANY_REQUESTS => {
                return failed(
                    text!("the key's rate limit is used up (429)").to_owned(),
                    text!("Wait a minute, or raise it with `raglan key grant --rate-limit`."),
                );
            }
            status => {
                return failed(
                    text!("{tool} is answered with {status}", tool, status),
                    text!("Look at the function's log."),
                );
            }
        }
        match answer.body.get("error") {
            None => Ok(answer.body["result"].clone()),
            Some(error) => failed(
                text!(
                    "{tool} is refused: {message}",
                    tool,
                    message = error["message"]
                ),
                text!("Grant the key list_knowledge_bases and retrieve, or use --temporary-key."),
            ),
        }
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answer, String> {
        let mut request = Request::builder().method(method).uri(url);
        if let Some(key) = key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        let bytes = body.map(|body| Bytes::from(body.to_string()));
        if bytes.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::new(bytes.unwrap_or_default()))
            .map_err(|error| error.to_string())?;
        let response = self.client.send(request, BOUNDS).await;
        let (parts, bytes) = response.map_err(|error| error.to_string())?.into_parts();
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        })
    }
}
