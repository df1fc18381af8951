//! Requests over connections that are kept, and driven by the one who waits for the answer.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::ServerName;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tower_service::Service as _;

use crate::http1::{Connection, ExchangeError, Stream};
use crate::{Bounds, OutboundError, certificates, innermost};

/// A connection that was not used for this long is closed.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// So many wait for the next request at most.
const IDLE_MAX: usize = 256;

/// A client for the few hosts that a call waits for. What it saves, compared with
/// [`OutboundClient`](crate::OutboundClient), is a task for each connection and two messages for each request.
///
/// Making one costs nothing: certificates are read at the first request over HTTPS.
#[derive(Default)]
pub struct DirectClient {
    idle: Mutex<Vec<Idle>>,
    tls: OnceLock<TlsConnector>,
    connect_timeout: Option<Duration>,
}

struct Idle {
    origin: Origin,
    connection: Connection,
    since: Instant,
}

/// Where a connection leads.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    is_encrypted: bool,
    authority: Authority,
}

impl fmt::Debug for DirectClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("DirectClient");
        let shown = shown.field("connect_timeout", &self.connect_timeout);
        shown.finish_non_exhaustive()
    }
}

impl DirectClient {
    /// Opening a connection takes no longer than this (the TLS handshake excluded).
    #[must_use]
    pub fn with_connect_timeout(connect_timeout: Duration) -> Self {
        Self {
            connect_timeout: Some(connect_timeout),
            ..Self::default()
        }
    }

    /// Sends a request with an absolute URI, and reads the whole answer.
    ///
    /// # Errors
    /// [`OutboundError`]
    pub async fn send(
        &self,
        request: Request<Bytes>,
        bounds: Bounds,
    ) -> Result<Response<Bytes>, OutboundError> {
        let work = self.send_without_deadline(&request, bounds.response_max_bytes);
        let answer = tokio::time::timeout(bounds.time, work).await;
        answer.unwrap_or(Err(OutboundError::TimedOut(bounds.time)))
    }

    /// The same, however long it takes.
    ///
    /// # Errors
    /// [`OutboundError`]
    pub async fn send_without_deadline(
        &self,
        request: &Request<Bytes>,
        response_max_bytes: usize,
    ) -> Result<Response<Bytes>, OutboundError> {
        let origin = Origin::of(request.uri())?;
        let mut connection = match self.take_idle(&origin).await {
            Some(connection) => connection,
            None => self.connect(request.uri(), &origin).await?,
        };
        let exchanged = connection.exchange(request, response_max_bytes).await;
        let exchanged = exchanged.map_err(|error| match error {
            ExchangeError::TooLarge => OutboundError::TooLarge(response_max_bytes),
            other => OutboundError::Connection(other.to_string()),
        })?;
        if exchanged.is_reusable {
            self.keep(origin, connection);
        }
        Ok(exchanged.response)
    }

    /// The connection that was used last, if one is still open.
    async fn take_idle(&self, origin: &Origin) -> Option<Connection> {
        loop {
            let found = {
                let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                let at = idle.iter().rposition(|idle| idle.origin == *origin)?;
                idle.remove(at)
            };
            let mut connection = found.connection;
            if found.since.elapsed() < IDLE_TIME && connection.is_quiet().await {
                return Some(connection);
            }
        }
    }

    fn keep(&self, origin: Origin, connection: Connection) {
        let since = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= IDLE_MAX {
            idle.remove(0);
        }
        idle.push(Idle {
            origin,
            connection,
            since,
        });
    }

    async fn connect(&self, uri: &Uri, origin: &Origin) -> Result<Connection, OutboundError> {
        let broken = |error: &dyn std::error::Error| OutboundError::Connection(innermost(error));
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(self.connect_timeout);
        let tcp = tcp
            .call(uri.clone())
            .await
            .map_err(|error| broken(&error))?;
        let tcp = tcp.into_inner();
        let stream: Box<dyn Stream> = if origin.is_encrypted {
            let host = origin.authority.host();
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let name = ServerName::try_from(host.to_owned()).map_err(|error| broken(&error))?;
            let encrypted = self.tls()?.connect(name, tcp).await;
            Box::new(encrypted.map_err(|error| broken(&error))?)
        } else {
            Box::new(tcp)
        };
        Ok(Connection::new(stream))
    }

    fn tls(&self) -> Result<&TlsConnector, OutboundError> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls);
        }
        let mut config = certificates::client_config().map_err(OutboundError::Certificates)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(self
            .tls
            .get_or_init(|| TlsConnector::from(Arc::new(config))))
    }
}

impl Origin {
    fn of(uri: &Uri) -> Result<Self, OutboundError> {
        let authority = uri.authority().cloned();
        Ok(Self {
            is_encrypted: uri.scheme() != Some(&Scheme::HTTP),
            authority: authority
                .ok_or_else(|| OutboundError::Connection("the URL names no host".to_owned()))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        time: Duration::from_secs(10),
        response_max_bytes: 8,
    };

    /// A server that answers every request with these bytes, and closes a connection behind `most` answers.
    struct Server {
        url: String,
        connections: Arc<AtomicUsize>,
    }

    impl Server {
        async fn start(answer: &'static [u8], most: usize) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            let connections = Arc::<AtomicUsize>::default();
            let counted = Arc::clone(&connections);
            tokio::spawn(async move {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    counted.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(async move {
                        for _ in 0..most {
                            let mut request = Vec::new();
                            while !request.ends_with(b"\r\n\r\n") {
                                let Ok(byte) = stream.read_u8().await else {
                                    return;
                                };
                                request.push(byte);
                            }
                            let _ = stream.write_all(answer).await;
                        }
                    });
                }
            });
            Self { url, connections }
        }

        async fn ask(&self, client: &DirectClient) -> Result<Bytes, OutboundError> {
            let request = Request::get(&self.url).body(Bytes::new()).unwrap();
            Ok(client.send(request, BOUNDS).await?.into_body())
        }

        fn connections(&self) -> usize {
            self.connections.load(Ordering::SeqCst)
        }
    }

    const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    const FAREWELL: &[u8] =
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello";

    #[tokio::test]
    async fn one_connection_serves_requests_that_follow_each_other() {
        let server = Server::start(HELLO, usize::MAX).await;
        let client = DirectClient::default();
        for _ in 0..5 {
            assert_eq!(server.ask(&client).await.unwrap(), "hello");
        }
        assert_eq!(server.connections(), 1);
        let both = tokio::join!(server.ask(&client), server.ask(&client));
        assert!(both.0.is_ok() && both.1.is_ok());
        assert_eq!(server.connections(), 2);
    }

    #[tokio::test]
    async fn a_connection_that_is_closed_meanwhile_is_replaced_and_nobody_notices() {
        for (answer, most) in [(FAREWELL, usize::MAX), (HELLO, 1)] {
            let server = Server::start(answer, most).await;
            let client = DirectClient::default();
            for expected in 1..4 {
                assert_eq!(server.ask(&client).await.unwrap(), "hello");
                assert_eq!(server.connections(), expected);
                // Until the end of the connection has arrived.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    #[tokio::test]
    async fn a_connection_that_was_idle_for_long_is_not_used_again() {
        let server = Server::start(HELLO, usize::MAX).await;
        let client = DirectClient::default();
        for (pause, expected) in [(Duration::ZERO, 1), (IDLE_TIME / 2, 1), (IDLE_TIME, 2)] {
            for idle in client.idle.lock().unwrap().iter_mut() {
                idle.since = idle.since.checked_sub(pause).unwrap();
            }
            server.ask(&client).await.unwrap();
            assert_eq!(server.connections(), expected);
        }
    }

    #[tokio::test]
    async fn what_is_too_large_too_late_or_not_there_is_an_error_of_its_own() {
        let client = DirectClient::default();
        let large = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nnine byte";
        let error = Server::start(large, 1).await.ask(&client).await;
        assert!(
            matches!(error, Err(OutboundError::TooLarge(8))),
            "{error:?}"
        );

        let silent = Server::start(b"", usize::MAX).await;
        let request = Request::get(&silent.url).body(Bytes::new()).unwrap();
        let time = Duration::from_millis(50);
        let error = client.send(request, Bounds { time, ..BOUNDS }).await;
        assert!(
            matches!(error, Err(OutboundError::TimedOut(t)) if t == time),
            "{error:?}"
        );
        // The answer may still come, to nobody.
        assert!(client.idle.lock().unwrap().is_empty());

        let half = Server::start(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel", 1).await;
        let error = half.ask(&client).await.unwrap_err().to_string();
        assert!(error.contains("ended before the answer"), "{error}");

        for (url, expected) in [("http://127.0.0.1:1/", "refused"), ("/path", "no host")] {
            let request = Request::get(url).body(Bytes::new()).unwrap();
            let error = client.send(request, BOUNDS).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn an_encrypted_connection_is_never_replaced_by_a_plain_one() {
        let server = Server::start(HELLO, usize::MAX).await;
        let client = DirectClient::default();
        server.ask(&client).await.unwrap();
        let url = server.url.replace("http://", "https://");
        let request = Request::get(&url).body(Bytes::new()).unwrap();
        let bounds = Bounds {
            time: Duration::from_millis(500),
            ..BOUNDS
        };
        client.send(request, bounds).await.unwrap_err();
        assert_eq!(server.connections(), 2);
    }
}
