//! The two requests of the Lambda Extensions API that an internal extension makes.
//!
//! Source: AWS Lambda Developer Guide, "Using the Lambda Extensions API to create extensions". The crate
//! `lambda-extension` also serves the Logs and the Telemetry API, which would be 0.2 MB of the program.

use http::{HeaderValue, Request, StatusCode};
use http_body_util::BodyExt as _;
use lambda_runtime_api_client::body::Body;
use lambda_runtime_api_client::{BoxError, PooledClient, build_request};
use serde::Deserialize;

const IDENTIFIER: &str = "lambda-extension-identifier";

/// Why the Extensions API cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExtensionsApiError {
    /// There is no answer.
    #[error("no answer from the Extensions API: {0}")]
    Connection(#[source] BoxError),
    /// It refuses.
    #[error("the Extensions API answered with {0}")]
    Refused(StatusCode),
    /// It does not say what the extension is called by, or what happens.
    #[error("the Extensions API gave an answer that cannot be read")]
    Unreadable,
}

/// A registered extension.
#[derive(Debug)]
pub struct Registration {
    client: PooledClient,
    identifier: HeaderValue,
}

/// What the extension is told of.
#[derive(Debug, Deserialize)]
#[serde(tag = "eventType")]
pub enum Event {
    /// An invocation begins.
    #[serde(rename = "INVOKE")]
    Invocation(Invocation),
    /// Something that was not asked for.
    #[serde(other)]
    Other,
}

/// An invocation that begins.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Invocation {
    /// When the platform gives it up, in milliseconds since 1970.
    pub deadline_ms: u64,
    /// The invocation's id.
    pub request_id: String,
}

/// Registers an extension of this name. Internal extensions are told of invocations only.
///
/// # Errors
/// [`ExtensionsApiError`]
pub async fn register(name: &'static str) -> Result<Registration, ExtensionsApiError> {
    let client = PooledClient::builder().build();
    let request = build_request()
        .method("POST")
        .uri("/2020-01-01/extension/register")
        .header("lambda-extension-name", name)
        .header("content-type", "application/json")
        .body(Body::from(r#"{"events":["INVOKE"]}"#));
    let (identifier, _) = send(&client, request).await?;
    let identifier = identifier.ok_or(ExtensionsApiError::Unreadable)?;
    Ok(Registration { client, identifier })
}

impl Registration {
    /// Says that the extension has done its work, and waits for the next event.
    ///
    /// # Errors
    /// [`ExtensionsApiError`]
    pub async fn next(&self) -> Result<Event, ExtensionsApiError> {
        let request = build_request()
            .uri("/2020-01-01/extension/event/next")
            .header(IDENTIFIER, &self.identifier)
            .body(Body::empty());
        let (_, event) = send(&self.client, request).await?;
        serde_json::from_slice(&event).map_err(|_| ExtensionsApiError::Unreadable)
    }
}

/// The identifier that the answer names, and its body.
async fn send(
    client: &PooledClient,
    request: http::Result<Request<Body>>,
) -> Result<(Option<HeaderValue>, bytes::Bytes), ExtensionsApiError> {
    let broken = |error: BoxError| ExtensionsApiError::Connection(error);
    let request = request.map_err(|error| broken(error.into()))?;
    let response = client.call(request).await.map_err(broken)?;
    if !response.status().is_success() {
        return Err(ExtensionsApiError::Refused(response.status()));
    }
    let identifier = response.headers().get(IDENTIFIER).cloned();
    let body = response.into_body().collect().await;
    let body = body.map_err(|error| broken(error.into()))?;
    Ok((identifier, body.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_an_unknown_kind_is_no_reason_to_end() {
        let event = |text: &str| serde_json::from_str::<Event>(text);
        let invocation = r#"{"eventType":"INVOKE","deadlineMs":1764500000000,"requestId":"r-1",
            "invokedFunctionArn":"arn:aws:lambda:eu-west-1:123456789012:function:mcp",
            "tracing":{"type":"X-Amzn-Trace-Id","value":"Root=1-5bef4de7"}}"#;
        let Event::Invocation(invocation) = event(invocation).unwrap() else {
            panic!("no invocation");
        };
        assert_eq!(invocation.request_id, "r-1");
        assert_eq!(invocation.deadline_ms, 1_764_500_000_000);
        let other = r#"{"eventType":"SHUTDOWN","shutdownReason":"SPINDOWN","deadlineMs":1}"#;
        assert!(matches!(event(other).unwrap(), Event::Other));
    }
}
