//! HTTPS requests to systems that are not ours: bounded in time and in size, never redirected.

mod certificates;
mod direct;
mod http1;

pub use direct::DirectClient;

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::TokioExecutor;

/// How much a request may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// From the beginning to the last byte of the answer.
    pub time: Duration,
    /// Size of the answer's body.
    pub response_max_bytes: usize,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    /// The system's certificates cannot be read.
    #[error("the system's certificates cannot be read: {0}")]
    Certificates(std::io::Error),
    /// Nobody answers, or the connection breaks.
    #[error("no connection: {0}")]
    Connection(String),
    /// The time was over first.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The answer is larger than it may be.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
}

/// A client with a pool of connections. Making one costs nothing: certificates are read at the first
/// request over HTTPS, so that a machine without any can still talk to itself.
#[derive(Debug, Default)]
pub struct OutboundClient {
    connections: Connections<Full<Bytes>>,
}

impl OutboundClient {
    /// The same, and opening a connection takes no longer than this (the TLS handshake excluded).
    #[must_use]
    pub fn with_connect_timeout(connect_timeout: Duration) -> Self {
        Self {
            connections: Connections::with_connect_timeout(connect_timeout),
        }
    }

    /// Sends a request, and leaves it to the caller how long it may take and how the answer is read.
    ///
    /// # Errors
    /// [`OutboundError::Certificates`]; what else can happen is the future's.
    pub fn open(&self, request: Request<Bytes>) -> Result<ResponseFuture, OutboundError> {
        self.connections.send(request.map(Full::new))
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// [`OutboundError`]
    pub async fn send(
        &self,
        request: Request<Full<Bytes>>,
        bounds: Bounds,
    ) -> Result<Response<Bytes>, OutboundError> {
        let sent = self.connections.send(request)?;
        let work = async {
            let response = sent.await.map_err(|error| broken(&error))?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, bounds.response_max_bytes)
                .collect()
                .await;
            match body {
                Ok(body) => Ok(Response::from_parts(parts, body.to_bytes())),
                Err(error) if error.is::<LengthLimitError>() => {
                    Err(OutboundError::TooLarge(bounds.response_max_bytes))
                }
                Err(error) => Err(OutboundError::Connection(error.to_string())),
            }
        };
        let answer = tokio::time::timeout(bounds.time, work).await;
        answer.unwrap_or(Err(OutboundError::TimedOut(bounds.time)))
    }
}

/// One type for both, so that there is one of it in a program.
type HttpClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// A pool of connections for requests with bodies of one type. Nothing bounds a request here.
pub struct Connections<B> {
    https: OnceLock<HttpClient<B>>,
    plain: OnceLock<HttpClient<B>>,
    connect_timeout: Option<Duration>,
}

impl<B> Default for Connections<B> {
    fn default() -> Self {
        Self {
            https: OnceLock::new(),
            plain: OnceLock::new(),
            connect_timeout: None,
        }
    }
}

impl<B> fmt::Debug for Connections<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Connections");
        let shown = shown.field("connect_timeout", &self.connect_timeout);
        shown.finish_non_exhaustive()
    }
}

impl<B> Connections<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Opening a connection takes no longer than this (the TLS handshake excluded).
    #[must_use]
    pub fn with_connect_timeout(connect_timeout: Duration) -> Self {
        Self {
            connect_timeout: Some(connect_timeout),
            ..Self::default()
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// [`OutboundError::Certificates`]; what else can happen is the future's.
    pub fn send(&self, request: Request<B>) -> Result<ResponseFuture, OutboundError> {
        let is_plain = request.uri().scheme() == Some(&Scheme::HTTP);
        let client = if is_plain { &self.plain } else { &self.https };
        if let Some(client) = client.get() {
            return Ok(client.request(request));
        }
        let config = if is_plain {
            certificates::trusting_nobody()
        } else {
            certificates::client_config()
        };
        let mut tcp = self.tcp();
        tcp.enforce_http(false);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config.map_err(OutboundError::Certificates)?);
        let connector = if is_plain {
            connector.https_or_http()
        } else {
            connector.https_only()
        };
        let connector = connector.enable_http1().wrap_connector(tcp);
        let client = client.get_or_init(|| Client::builder(TokioExecutor::new()).build(connector));
        Ok(client.request(request))
    }

    fn tcp(&self) -> HttpConnector {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(self.connect_timeout);
        tcp
    }
}

/// No connection, by the innermost cause, which says the most: "connection refused" and not "client error (Connect)".
#[must_use]
pub fn broken(error: &hyper_util::client::legacy::Error) -> OutboundError {
    OutboundError::Connection(innermost(error))
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers one request with these bytes, then stays silent.
    async fn server(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer).await;
            std::future::pending::<()>().await;
        });
        url
    }

    async fn get(url: &str) -> Result<Response<Bytes>, OutboundError> {
        let bounds = Bounds {
            time: Duration::from_millis(400),
            response_max_bytes: 8,
        };
        let request = Request::get(url).body(Full::default()).unwrap();
        OutboundClient::default().send(request, bounds).await
    }

    #[tokio::test]
    async fn a_whole_answer_is_returned() {
        let url = server(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
        assert_eq!(&get(&url).await.unwrap().body()[..], b"hello");
    }

    #[tokio::test]
    async fn an_answer_beyond_the_bounds_is_an_error() {
        let large = server(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nnine byte").await;
        assert!(matches!(get(&large).await, Err(OutboundError::TooLarge(8))));
        let half = server(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf").await;
        assert!(matches!(get(&half).await, Err(OutboundError::TimedOut(_))));
        let silent = server(b"").await;
        assert!(matches!(
            get(&silent).await,
            Err(OutboundError::TimedOut(_))
        ));
    }

    #[tokio::test]
    async fn a_closed_port_is_named_as_such() {
        let error = get("http://127.0.0.1:1/").await.unwrap_err();
        assert!(error.to_string().contains("refused"), "{error}");
    }
}
