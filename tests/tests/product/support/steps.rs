//! The function's AWS calls, in an order that a test wants.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use raglan_aws::transport::{Transport, network};
use raglan_outbound::{Bounds, OutboundError};
use tokio::sync::watch;

/// A transport over the network that can hold back one operation until another one begins.
#[derive(Debug)]
pub struct Steps {
    network: Arc<dyn Transport>,
    held: Mutex<Option<Held>>,
    begun: watch::Sender<Vec<String>>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    operation: &'static str,
    until: &'static str,
}

impl Steps {
    /// Holds nothing.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            network: network(),
            held: Mutex::default(),
            begun: watch::Sender::default(),
        })
    }

    /// From now on `operation` is sent when `until` has begun, and forgets what has begun before.
    pub fn hold(&self, operation: &'static str, until: &'static str) {
        *self.held.lock().unwrap() = Some(Held { operation, until });
        self.begun.send_replace(Vec::new());
    }

    /// The operations that have begun since.
    pub fn begun(&self) -> Vec<String> {
        self.begun.borrow().clone()
    }
}

impl Transport for Steps {
    fn send(
        &self,
        request: Request<Bytes>,
        bounds: Bounds,
    ) -> BoxFuture<'_, Result<Response<Bytes>, OutboundError>> {
        let target = request.headers()["x-amz-target"].to_str().unwrap();
        let operation = target.rsplit('.').next().unwrap().to_owned();
        let held = self
            .held
            .lock()
            .unwrap()
            .filter(|held| held.operation == operation);
        self.begun.send_modify(|begun| begun.push(operation));
        Box::pin(async move {
            if let Some(Held { until, .. }) = held {
                let mut begun = self.begun.subscribe();
                let met = begun.wait_for(|begun| begun.iter().any(|one| one == until));
                met.await.unwrap();
            }
            self.network.send(request, bounds).await
        })
    }
}
