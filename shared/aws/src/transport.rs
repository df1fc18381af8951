//! Requests over the network: for the light client, and below the SDK's own clients.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use raglan_outbound::{Bounds, Connections, DirectClient, OutboundError, broken};

/// Opening a connection, TLS handshake excluded.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// One attempt, TLS handshake included: the first one on a small function takes most of a second.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// A page of a table is at most 1 MiB, a batch of items 16 MiB.
pub const ANSWER_MAX_BYTES: usize = 32 * 1024 * 1024;

/// Carries one request and its whole answer. The network's in a program; a test may put its own here.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Sends the request once, and has an answer or an error within the bounds.
    fn send(
        &self,
        request: Request<Bytes>,
        bounds: Bounds,
    ) -> BoxFuture<'_, Result<Response<Bytes>, OutboundError>>;
}

/// HTTP/1.1, over TLS by rustls and ring where the URL wants it.
#[must_use]
pub fn network() -> Arc<dyn Transport> {
    Arc::new(DirectClient::with_connect_timeout(CONNECT_TIMEOUT))
}

impl Transport for DirectClient {
    fn send(
        &self,
        request: Request<Bytes>,
        bounds: Bounds,
    ) -> BoxFuture<'_, Result<Response<Bytes>, OutboundError>> {
        Box::pin(Self::send(self, request, bounds))
    }
}

/// The same network for the SDK's own clients, whose bodies may be streams.
#[must_use]
pub fn sdk_http_client() -> SharedHttpClient {
    let connections = Connections::with_connect_timeout(CONNECT_TIMEOUT);
    let connector = SharedHttpConnector::new(SdkConnector { connections });
    http_client_fn(move |_, _| connector.clone())
}

#[derive(Debug)]
struct SdkConnector {
    connections: Connections<SdkBody>,
}

impl HttpConnector for SdkConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let sent = request
            .try_into_http1x()
            .map_err(|error| ConnectorError::user(error.into()))
            .and_then(|request| self.connections.send(request).map_err(connector_error));
        let sent = match sent {
            Ok(sent) => sent,
            Err(error) => return HttpConnectorFuture::ready(Err(error)),
        };
        HttpConnectorFuture::new(async move {
            let response = sent
                .await
                .map_err(|error| connector_error(broken(&error)))?;
            HttpResponse::try_from(response.map(SdkBody::from_body_1_x))
                .map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}

/// In the SDK's terms.
pub(crate) fn connector_error(error: OutboundError) -> ConnectorError {
    match &error {
        OutboundError::TimedOut(_) => ConnectorError::timeout(error.into()),
        OutboundError::Connection(_) => ConnectorError::io(error.into()),
        OutboundError::Certificates(_) | OutboundError::TooLarge(_) => {
            ConnectorError::other(error.into(), None)
        }
    }
}
