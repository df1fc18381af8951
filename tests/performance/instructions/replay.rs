//! HTTP clients below the AWS SDK: one that keeps the answers that it passes on, and one that answers from
//! what was kept. The first answer to each kind of request is the one that stays.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_dynamodb::config::SharedHttpClient;
use aws_smithy_http_client::Builder;
use aws_smithy_runtime_api::client::http::{
    HttpClient as _, HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
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

/// A client that asks over the network, and what it was answered.
pub fn keeping_answers() -> (SharedHttpClient, Arc<Mutex<KeptAnswers>>) {
    let (network, answers) = (
        Builder::new().build_http(),
        Arc::<Mutex<KeptAnswers>>::default(),
    );
    let kept = Arc::clone(&answers);
    let client = http_client_fn(move |settings, components| {
        SharedHttpConnector::new(Keeping {
            network: network.http_connector(settings, components),
            answers: Arc::clone(&kept),
        })
    });
    (client, answers)
}

/// A client that never asks anybody.
pub fn kept_answers(answers: KeptAnswers) -> SharedHttpClient {
    let connector = SharedHttpConnector::new(Kept { answers });
    http_client_fn(move |_, _| connector.clone())
}

#[derive(Debug)]
struct Keeping {
    network: SharedHttpConnector,
    answers: Arc<Mutex<KeptAnswers>>,
}

impl HttpConnector for Keeping {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (kind, answers) = (kind_of(&request), Arc::clone(&self.answers));
        let asking = self.network.call(request);
        HttpConnectorFuture::new(async move {
            let answer = asking.await?;
            let status = answer.status().as_u16();
            let body = ByteStream::new(answer.into_body()).collect().await;
            let body = body.map_err(|error| ConnectorError::io(error.into()))?;
            let body = String::from_utf8_lossy(&body.into_bytes()).into_owned();
            let answer = Answer { status, body };
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.entry(kind).or_insert(answer).response()
        })
    }
}

#[derive(Debug)]
struct Kept {
    answers: KeptAnswers,
}

impl HttpConnector for Kept {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let kind = kind_of(&request);
        HttpConnectorFuture::ready(match self.answers.get(&kind) {
            Some(answer) => answer.response(),
            None => Err(ConnectorError::user(
                format!("nothing was kept for {kind}").into(),
            )),
        })
    }
}

impl Answer {
    fn response(&self) -> Result<HttpResponse, ConnectorError> {
        let status = self.status.try_into();
        let status = status.map_err(|_| ConnectorError::user("no status".into()))?;
        Ok(HttpResponse::new(status, SdkBody::from(self.body.as_str())))
    }
}

/// The operation and what it is about; values and conditions are left out.
fn kind_of(request: &HttpRequest) -> String {
    let operation = request.headers().get("x-amz-target").unwrap_or_default();
    let body = request.body().bytes().unwrap_or_default();
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
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
