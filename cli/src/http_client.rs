//! POSTs JSON to a server on this machine, the way any client does.

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The request cannot be made.
    #[error("not a usable request: {0}")]
    Request(#[from] http::Error),
    /// Nobody answers.
    #[error("{url} does not answer: {cause}")]
    Connection {
        /// The address.
        url: String,
        /// What the network says.
        cause: String,
    },
    /// The answer is no JSON.
    #[error("the answer ({status}) is not JSON: {cause}")]
    NotJson {
        /// Its status.
        status: StatusCode,
        /// What is wrong.
        cause: serde_json::Error,
    },
}

/// A client with a pool of connections.
#[derive(Debug, Clone)]
pub struct JsonClient {
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Default for JsonClient {
    fn default() -> Self {
        Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }
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
        let failed = |cause: String| ClientError::Connection {
            url: url.to_owned(),
            cause,
        };
        let response = self
            .client
            .request(request)
            .await
            .map_err(|error| failed(error.to_string()))?;
        let status = response.status();
        let collected = response.into_body().collect().await;
        let bytes = collected
            .map_err(|error| failed(error.to_string()))?
            .to_bytes();
        if bytes.is_empty() {
            return Ok((status, Value::Null));
        }
        let answer = serde_json::from_slice(&bytes)
            .map_err(|cause| ClientError::NotJson { status, cause })?;
        Ok((status, answer))
    }
}
