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
        let tcp = tcp.call(uri.clone()).await.map_err(|error| broken(&error))?;
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
        Ok(self.tls.get_or_init(|| TlsConnector::from(Arc::new(config))))
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
