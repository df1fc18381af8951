//! rmcp's client over raglan's own HTTP client, so that the tests need no second one. The rules are
//! those of rmcp's own transports: 202 is an acknowledgement, a JSON-RPC error counts whatever its
//! status, 401 names the challenge.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use raglan_outbound::{Bounds, OutboundClient, OutboundError};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;

const SESSION_HEADER: &str = "mcp-session-id";
const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(30),
    response_max_bytes: 8 * 1024 * 1024,
};

type Error = StreamableHttpError<OutboundError>;

/// An HTTP client for rmcp.
#[derive(Clone, Default)]
pub struct HttpClient(Arc<OutboundClient>);

impl HttpClient {
    async fn send(
        &self,
        method: Method,
        uri: &str,
        body: Vec<u8>,
        headers: Headers,
    ) -> Result<http::Response<Bytes>, Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        if let Some(token) = headers.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(session) = headers.session {
            request = request.header(SESSION_HEADER, session.as_ref());
        }
        for (name, value) in headers.others {
            request = request.header(name, value);
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| unexpected(error.to_string()))?;
        self.0
            .send(request, BOUNDS)
            .await
            .map_err(StreamableHttpError::Client)
    }
}

struct Headers {
    token: Option<String>,
    session: Option<Arc<str>>,
    others: HashMap<HeaderName, HeaderValue>,
}

fn unexpected(text: String) -> Error {
    StreamableHttpError::UnexpectedServerResponse(Cow::Owned(text))
}

impl StreamableHttpClient for HttpClient {
    type Error = OutboundError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        others: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let headers = Headers {
            token,
            session,
            others,
        };
        let body = serde_json::to_vec(&message)?;
        let answer = self.send(Method::POST, &uri, body, headers).await?;
        let text = |name: &str| Some(answer.headers().get(name)?.to_str().ok()?.to_owned());
        match answer.status() {
            StatusCode::ACCEPTED => return Ok(StreamableHttpPostResponse::Accepted),
            StatusCode::UNAUTHORIZED => {
                let challenge = text(WWW_AUTHENTICATE.as_str()).unwrap_or_default();
                let error = AuthRequiredError::new(challenge);
                return Err(StreamableHttpError::AuthRequired(error));
            }
            _ => {}
        }
        match serde_json::from_slice::<ServerJsonRpcMessage>(answer.body()) {
            Ok(message) => Ok(StreamableHttpPostResponse::Json(
                message,
                text(SESSION_HEADER),
            )),
            Err(error) => Err(unexpected(format!("{}: {error}", answer.status()))),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        others: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Error> {
        let headers = Headers {
            token,
            session: Some(session),
            others,
        };
        let answer = self.send(Method::DELETE, &uri, Vec::new(), headers).await?;
        match answer.status() {
            StatusCode::METHOD_NOT_ALLOWED => {
                Err(StreamableHttpError::ServerDoesNotSupportDeleteSession)
            }
            status if status.is_success() => Ok(()),
            status => Err(unexpected(status.to_string())),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        _: Option<String>,
        token: Option<String>,
        others: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Error> {
        let headers = Headers {
            token,
            session,
            others,
        };
        let answer = self.send(Method::GET, &uri, Vec::new(), headers).await?;
        match answer.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status => Err(unexpected(status.to_string())),
        }
    }
}
