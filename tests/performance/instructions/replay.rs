//! Transports below the AWS client: one that keeps the answers that it passes on, and one that answers from
//! what was kept. The first answer to each kind of request is the one that stays.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use raglan_aws::transport::{Transport, network};
use raglan_outbound::{Bounds, OutboundError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Answers by the kind of request.
pub type KeptAnswers = BTreeMap<String, Answer>;

/// One answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answer {
    status: u16,
    body: String,
}

/// A transport over the network, and what it was answered.
pub fn keeping_answers() -> (Arc<dyn Transport>, Arc<Mutex<KeptAnswers>>) {
    let answers = Arc::<Mutex<KeptAnswers>>::default();
    let keeping = Keeping {
        network: network(),
        answers: Arc::clone(&answers),
    };
    (Arc::new(keeping), answers)
}

/// A transport that never asks anybody.
pub fn kept_answers(answers: KeptAnswers) -> Arc<dyn Transport> {
    Arc::new(Kept { answers })
}

#[derive(Debug)]
struct Keeping {
    network: Arc<dyn Transport>,
    answers: Arc<Mutex<KeptAnswers>>,
}

impl Transport for Keeping {
    fn send(
        &self,
        request: Request<Bytes>,
        bounds: Bounds,
    ) -> BoxFuture<'_, Result<Response<Bytes>, OutboundError>> {
        let kind = kind_of(&request);
        Box::pin(async move {
            let answer = self.network.send(request, bounds).await?;
            let answer = Answer {
                status: answer.status().as_u16(),
                body: String::from_utf8_lossy(answer.body()).into_owned(),
            };
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.entry(kind).or_insert(answer).response()
        })
    }
}

#[derive(Debug)]
struct Kept {
    answers: KeptAnswers,
}

impl Transport for Kept {
    fn send(
        &self,
        request: Request<Bytes>,
        _: Bounds,
    ) -> BoxFuture<'_, Result<Response<Bytes>, OutboundError>> {
        let kind = kind_of(&request);
        let answer = self.answers.get(&kind).map(Answer::response);
        let missing = || OutboundError::Connection(format!("nothing was kept for {kind}"));
        let answer = answer.unwrap_or_else(|| Err(missing()));
        Box::pin(async { answer })
    }
}

impl Answer {
    fn response(&self) -> Result<Response<Bytes>, OutboundError> {
        let response = Response::builder().status(self.status);
        let response = response.body(Bytes::from(self.body.clone()));
        response.map_err(|error| OutboundError::Connection(error.to_string()))
    }
}

/// The operation and what it is about; values and conditions are left out.
fn kind_of(request: &Request<Bytes>) -> String {
    let operation = request.headers().get("x-amz-target");
    let operation = operation
        .and_then(|name| name.to_str().ok())
        .unwrap_or_default();
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let values = operation
        .ends_with("Query")
        .then_some(&body["ExpressionAttributeValues"]);
    let about = [Some(&body["Key"]), values].map(|names| names.map(in_order));
    json!([operation, body["TableName"], about]).to_string()
}

/// The SDK writes maps in any order.
fn in_order(map: &Value) -> BTreeMap<&String, &Value> {
    map.as_object().into_iter().flatten().collect()
}
