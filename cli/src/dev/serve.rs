//! The local front of the MCP function: HTTP on a loopback port instead of a function URL.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use raglan_core::clock::{Clock, SystemClock};
use raglan_core::ids;
use raglan_core::random::SystemRandom;
use raglan_mcp::app::App;
use raglan_mcp::context::CallContext;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::metrics;

/// Lambda takes no larger request.
const BODY_MAX_BYTES: usize = 6 * 1024 * 1024;
/// How long answers that are under way may take when the server stops.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);

/// Answers connections until `stopped` turns true.
pub async fn serve(listener: TcpListener, app: Arc<App>, mut stopped: watch::Receiver<bool>) {
    let graceful = GracefulShutdown::new();
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = stop_signal(&mut stopped) => break,
        };
        // Without this, small answers wait for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        let app = Arc::clone(&app);
        let service = service_fn(move |request| {
            let app = Arc::clone(&app);
            async move { Ok::<_, Infallible>(answer(&app, request, peer).await) }
        });
        let builder = auto::Builder::new(TokioExecutor::new());
        let connection = builder
            .serve_connection(TokioIo::new(stream), service)
            .into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    if tokio::time::timeout(SHUTDOWN_PATIENCE, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("some answers were still under way when the server stopped");
    }
}

/// Ends when `stopped` turns true, or when nobody can turn it any more.
async fn stop_signal(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn answer(app: &App, request: Request<Incoming>, peer: SocketAddr) -> Response<Full<Bytes>> {
    if request.method() == Method::GET && request.uri().path() == metrics::PATH {
        let mut response = Response::new(Full::from(metrics::text()));
        let content_type = HeaderValue::from_static(metrics::CONTENT_TYPE);
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        return response;
    }
    let (parts, body) = request.into_parts();
    // Beyond Lambda's limit the function would never see the request; it answers the same 413 here.
    let body = match Limited::new(body, BODY_MAX_BYTES).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(_) => Bytes::from(vec![b' '; BODY_MAX_BYTES + 1]),
    };
    let context = CallContext {
        request_id: ids::time_sortable(SystemClock.now(), &SystemRandom).unwrap_or_default(),
        deadline: None,
        source_ip: Some(peer.ip().to_string()),
    };
    app.handle(Request::from_parts(parts, body), &context)
        .await
        .map(|body| Full::new(body.into_bytes()))
}
