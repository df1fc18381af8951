//! POSTs JSON to a server on this machine, the way any client does.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_body_util::Full;
use raglan_outbound::{Bounds, OutboundClient, OutboundError};
use serde_json::Value;

use crate::language::text;

/// A function under `cargo lambda watch` may have to be compiled first.
const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(10),
    response_max_bytes: 16 * 1024 * 1024,
};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The request cannot be made.
    #[error("{}", text!("not a usable request: {cause}", cause = .0))]
    Request(#[from] http::Error),
    /// Nobody answers.
    #[error("{}", text!("{url} does not answer: {cause}", url = .url, cause = .cause))]
    Connection {
        /// The address.
        url: String,
        /// Why there is no answer.
        cause: OutboundError,
    },
    /// The answer is no JSON.
    #[error(
        "{}",
        text!(
            "the answer ({status}) is not JSON: {cause}",
            status = .status,
            cause = .cause
        )
    )]
    NotJson {
        /// Its status.
        status: StatusCode,
        /// What is wrong.
        cause: serde_json::Error,
    },
}

/// A client with a pool of connections.
#[derive(Debug, Default)]
pub struct JsonClient {
    client: OutboundClient,
}

impl JsonClient {
    /// POSTs `body` and returns status and answer; an empty answer is `null`.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn post(
        &self,
        url: &str,
        bearer: Option<&str>,
        body: &Value,
    ) -> Result<(StatusCode, Value), ClientError> {
        let mut request = Request::post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        if let Some(bearer) = bearer {
            request = request.header(AUTHORIZATION, format!("Bearer {bearer}"));
        }
        let request = request.body(Full::new(Bytes::from(body.to_string())))?;
        let response = self.client.send(request, BOUNDS).await;
        let (parts, bytes) = response
            .map_err(|cause| ClientError::Connection {
                url: url.to_owned(),
                cause,
            })?
            .into_parts();
        let status = parts.status;
        if bytes.is_empty() {
            return Ok((status, Value::Null));
        }
        let answer = serde_json::from_slice(&bytes)
            .map_err(|cause| ClientError::NotJson { status, cause })?;
        Ok((status, answer))
    }
}
