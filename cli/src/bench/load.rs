//! The load itself: connections that call one after the other, and what they saw.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use hdrhistogram::Histogram;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, Uri};
use http_body_util::Full;
use raglan_outbound::{Bounds, OutboundClient};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::version;

use crate::language::text;

const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(30),
    response_max_bytes: 8 * 1024 * 1024,
};
/// Calls before the clock runs, so that connections are open and caches are warm.
const WARM_UP_CALLS: usize = 3;
/// An error must not make the loop spin.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);
/// Precision of the histogram: three digits.
const SIGNIFICANT_DIGITS: u8 = 3;

/// What one number of connections gave.
pub struct Measured {
    /// How long calls took, in microseconds; answered calls only.
    pub times_us: Histogram<u64>,
    /// What went wrong, and how often.
    pub problems: BTreeMap<String, u64>,
    /// How long was measured.
    took: Duration,
}

impl Measured {
    fn empty() -> anyhow::Result<Self> {
        Ok(Self {
            times_us: Histogram::new(SIGNIFICANT_DIGITS)?,
            problems: BTreeMap::new(),
            took: Duration::ZERO,
        })
    }

    /// How many calls were not answered well.
    pub fn errors(&self) -> u64 {
        self.problems.values().sum()
    }

    /// Well answered calls in a second.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a count of calls is far below 2^52"
    )]
    pub fn calls_per_second(&self) -> f64 {
        self.times_us.len() as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// The endpoint, and the calls that take turns.
pub struct Target {
    uri: Uri,
    authorization: HeaderValue,
    bodies: Vec<Bytes>,
}

impl Target {
    /// The endpoint at `url`. The key is marked as a secret, so that nothing prints it.
    ///
    /// # Errors
    /// What is wrong with the URL or the key.
    pub fn new(url: &str, key: &str, bodies: Vec<Value>) -> anyhow::Result<Self> {
        let uri = url
            .parse()
            .with_context(|| text!("{url} is not a usable URL", url))?;
        let mut authorization = HeaderValue::from_str(&format!("Bearer {key}"))
            .context(text!("the key holds characters that no header can"))?;
        authorization.set_sensitive(true);
        let bodies = bodies.into_iter().map(|body| body.to_string().into());
        Ok(Self {
            uri,
            authorization,
            bodies: bodies.collect(),
        })
    }

    /// Calls once.
    ///
    /// # Errors
    /// Why measuring has no sense.
    pub async fn check(&self) -> anyhow::Result<()> {
        let client = OutboundClient::default();
        self.call(&client, 0).await.map_err(|problem| {
            anyhow::anyhow!(text!(
                "{uri} cannot be measured: {problem}",
                uri = self.uri,
                problem
            ))
        })
    }

    /// Keeps `connections` busy for `duration`.
    ///
    /// # Errors
    /// A connection's loop broke off.
    pub async fn measure(
        self: &Arc<Self>,
        connections: u16,
        duration: Duration,
    ) -> anyhow::Result<Measured> {
        let mut loops = JoinSet::new();
        for number in 0..connections {
            let target = Arc::clone(self);
            loops.spawn(async move { target.keep_calling(usize::from(number), duration).await });
        }
        let mut whole = Measured::empty()?;
        whole.took = duration;
        while let Some(part) = loops.join_next().await {
            let part = part.context(text!("a connection's loop broke off"))??;
            whole.times_us.add(&part.times_us)?;
            for (problem, count) in part.problems {
                *whole.problems.entry(problem).or_default() += count;
            }
        }
        Ok(whole)
    }

    async fn keep_calling(&self, number: usize, duration: Duration) -> anyhow::Result<Measured> {
        // A client of its own is a connection of its own.
        let client = OutboundClient::default();
        for turn in 0..WARM_UP_CALLS {
            let _ = self.call(&client, number + turn).await;
        }
        let mut measured = Measured::empty()?;
        let end = Instant::now() + duration;
        let mut turn = number;
        loop {
            let began = Instant::now();
            if began >= end {
                return Ok(measured);
            }
            match self.call(&client, turn).await {
                Ok(()) => {
                    let took = began.elapsed().as_micros();
                    // The histogram grows with its values; a saturating record would keep it small.
                    measured
                        .times_us
                        .record(u64::try_from(took).unwrap_or(u64::MAX))?;
                }
                Err(problem) => {
                    *measured.problems.entry(problem).or_default() += 1;
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                }
            }
            turn += 1;
        }
    }

    /// One call; the problem is a short text without anything that differs from call to call.
    async fn call(&self, client: &OutboundClient, turn: usize) -> Result<(), String> {
        let body = self.bodies[turn % self.bodies.len()].clone();
        let request = Request::post(self.uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .header(AUTHORIZATION, self.authorization.clone())
            .header("mcp-protocol-version", version())
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let answer = client
            .send(request, BOUNDS)
            .await
            .map_err(|error| error.to_string())?;
        if !answer.status().is_success() {
            return Err(format!("HTTP {}", answer.status()));
        }
        let answer: Value = serde_json::from_slice(answer.body())
            .map_err(|_| text!("the answer is not JSON").to_owned())?;
        if let Some(code) = answer.pointer("/error/code") {
            return Err(format!("JSON-RPC error {code}"));
        }
        match answer.pointer("/result/isError") {
            Some(Value::Bool(true)) => Err(text!("the tool answered with an error").to_owned()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;

    /// Answers every call with these status and body.
    async fn server(status: u16, body: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = service_fn(move |_| async move {
                    http::Response::builder()
                        .status(status)
                        .body(Full::new(Bytes::from_static(body.as_bytes())))
                });
                let builder = hyper::server::conn::http1::Builder::new();
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
            }
        });
        url
    }

    async fn measured(status: u16, body: &'static str) -> (Result<(), String>, Measured) {
        let url = server(status, body).await;
        let target = Arc::new(Target::new(&url, "rgl_key", vec![json!({})]).unwrap());
        let checked = target.check().await.map_err(|error| error.to_string());
        let measured = target.measure(2, Duration::from_millis(100)).await.unwrap();
        (checked, measured)
    }

    #[tokio::test]
    async fn calls_that_are_answered_are_counted_as_answered() {
        let (checked, measured) = measured(200, r#"{"result":{}}"#).await;
        assert!(checked.is_ok());
        assert_eq!(measured.errors(), 0);
        assert!(measured.calls_per_second() > 0.0);
        // No answer crosses a socket in a microsecond or two.
        assert!(measured.times_us.max() > 5);
    }

    #[tokio::test]
    async fn an_answer_that_is_no_result_is_an_error_with_its_reason() {
        for (status, body, reason) in [
            (429, "{}", "HTTP 429 Too Many Requests"),
            (200, "<html>", "the answer is not JSON"),
            (200, r#"{"error":{"code":-32001}}"#, "JSON-RPC error -32001"),
            (
                200,
                r#"{"result":{"isError":true}}"#,
                "the tool answered with an error",
            ),
        ] {
            let (checked, measured) = measured(status, body).await;
            assert!(checked.unwrap_err().contains(reason), "{reason}");
            assert_eq!(measured.times_us.len(), 0);
            let problems: Vec<&str> = measured.problems.keys().map(String::as_str).collect();
            assert_eq!(problems, [reason]);
        }
    }
}
