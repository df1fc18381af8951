//! The two requests of the Lambda Extensions API that an internal extension makes.
//!
//! Source: AWS Lambda Developer Guide, "Using the Lambda Extensions API to create extensions". The crate
//! `lambda-extension` also serves the Logs and the Telemetry API, which would be 0.2 MB of the program.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, StatusCode};
use serde::Deserialize;

use crate::platform_api::{PlatformApi, PlatformApiError};

const IDENTIFIER: &str = "lambda-extension-identifier";

/// Why the Extensions API cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExtensionsApiError {
    /// There is no answer.
    #[error("no answer from the Extensions API: {0}")]
    Connection(#[from] PlatformApiError),
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
    api: PlatformApi,
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
    let api = PlatformApi::from_environment()?;
    let mut request = Request::new(Bytes::from_static(br#"{"events":["INVOKE"]}"#));
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    headers.insert("lambda-extension-name", HeaderValue::from_static(name));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let (identifier, _) = send(&api, "/2020-01-01/extension/register", request).await?;
    let identifier = identifier.ok_or(ExtensionsApiError::Unreadable)?;
    Ok(Registration { api, identifier })
}

impl Registration {
    /// Says that the extension has done its work, and waits for the next event.
    ///
    /// # Errors
    /// [`ExtensionsApiError`]
    pub async fn next(&self) -> Result<Event, ExtensionsApiError> {
        let mut request = Request::new(Bytes::new());
        let headers = request.headers_mut();
        headers.insert(IDENTIFIER, self.identifier.clone());
        let (_, event) = send(&self.api, "/2020-01-01/extension/event/next", request).await?;
        serde_json::from_slice(&event).map_err(|_| ExtensionsApiError::Unreadable)
    }
}

/// The identifier that the answer names, and its body.
async fn send(
    api: &PlatformApi,
    path: &str,
    request: Request<Bytes>,
) -> Result<(Option<HeaderValue>, Bytes), ExtensionsApiError> {
    let response = api.send(path, request).await?;
    if !response.status().is_success() {
        return Err(ExtensionsApiError::Refused(response.status()));
    }
    let identifier = response.headers().get(IDENTIFIER).cloned();
    Ok((identifier, response.into_body()))
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
