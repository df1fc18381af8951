//! Bad weather between a client and an AWS service: a share of the requests is refused, or gets lost on
//! the way there, or is answered with an answer that gets lost. Which ones is decided by a seed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use raglan_core::random::{Random as _, SequenceRandom};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::upstream::Upstream;

/// The connection breaks.
#[derive(Debug, thiserror::Error)]
#[error("the connection breaks")]
struct Broken;

/// A service in bad weather. It clears up when this is dropped: nobody listens any more.
pub struct Weather {
    /// Where clients connect.
    pub url: String,
    sky: Arc<Sky>,
    serving: AbortHandle,
}

struct Sky {
    upstream: Upstream,
    percent: u8,
    random: SequenceRandom,
    /// Operation and mishap, and how often.
    mishaps: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug, Clone, Copy)]
enum Mishap {
    Refused,
    RequestLost,
    AnswerLost,
}

impl Weather {
    /// In front of the service at `url`, with so many mishaps in a hundred requests.
    pub async fn before(url: &str, percent: u8, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own_url = format!("http://{}", listener.local_addr().unwrap());
        let sky = Arc::new(Sky {
            upstream: Upstream::at(url),
            percent,
            random: SequenceRandom::seeded(seed),
            mishaps: Mutex::default(),
        });
        let serving = tokio::spawn(serve(listener, Arc::clone(&sky))).abort_handle();
        Self {
            url: own_url,
            sky,
            serving,
        }
    }

    /// What happened so far: operation and mishap, and how often.
    pub fn mishaps(&self) -> BTreeMap<String, u64> {
        self.sky.mishaps.lock().unwrap().clone()
    }
}

impl Drop for Weather {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, sky: Arc<Sky>) {
    while let Ok((stream, _)) = listener.accept().await {
        let sky = Arc::clone(&sky);
        let service = service_fn(move |request| {
            let sky = Arc::clone(&sky);
            async move { sky.answer(request).await }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

impl Sky {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Broken> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
        let target = parts.headers.get("x-amz-target");
        let target = target.and_then(|target| target.to_str().ok()).unwrap_or("");
        let operation = target.rsplit('.').next().unwrap_or("").to_owned();
        let mishap = self.mishap();
        if let Some(mishap) = mishap {
            let name = format!("{operation} {mishap:?}");
            *self.mishaps.lock().unwrap().entry(name).or_default() += 1;
        }
        match mishap {
            Some(Mishap::Refused) => return Ok(refusal(&operation)),
            Some(Mishap::RequestLost) => return Err(Broken),
            _ => {}
        }
        let answer = self.upstream.answer(parts, body).await.ok_or(Broken)?;
        match mishap {
            Some(Mishap::AnswerLost) => Err(Broken),
            _ => Ok(answer),
        }
    }

    fn mishap(&self) -> Option<Mishap> {
        let mut bytes = [0; 2];
        self.random.fill(&mut bytes).unwrap();
        if u16::from_le_bytes(bytes) % 100 >= u16::from(self.percent) {
            return None;
        }
        let mut kind = [0];
        self.random.fill(&mut kind).unwrap();
        Some(match kind[0] % 3 {
            0 => Mishap::Refused,
            1 => Mishap::RequestLost,
            _ => Mishap::AnswerLost,
        })
    }
}

/// As the service says it when it has no room.
fn refusal(operation: &str) -> Response<Full<Bytes>> {
    let dynamodb = "com.amazonaws.dynamodb.v20120810#";
    let body = match operation {
        "TransactWriteItems" => serde_json::json!({
            "__type": format!("{dynamodb}TransactionCanceledException"),
            "message": "told to by a test",
            "CancellationReasons": [{ "Code": "TransactionConflict" }],
        }),
        "GetItem" => serde_json::json!({
            "__type": format!("{dynamodb}ProvisionedThroughputExceededException"),
            "message": "told to by a test",
        }),
        _ => serde_json::json!({
            "__type": "com.amazonaws.sqs#RequestThrottled",
            "message": "told to by a test",
        }),
    };
    Response::builder()
        .status(400)
        .header("content-type", "application/x-amz-json-1.0")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap()
}
