//! The server that is checked.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use raglan_core::clock::SystemClock;
use raglan_core::random::SystemRandom;
use raglan_engines::adapter::build;
use raglan_engines::call::Surroundings;
use raglan_engines::configuration::parse;
use raglan_outbound::{Bounds, OutboundClient, OutboundError};
use raglan_rag::backend::Backend;
use serde_json::{Value, json};

const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(20),
    response_max_bytes: 8 * 1024 * 1024,
};

/// An answer: its status, and its body as JSON (null when it is none).
pub type Answer = (u16, Value);

/// A server and one of its vector stores.
pub struct Subject {
    pub url: String,
    pub store: String,
    pub query: String,
    /// raglan's own adapter for it.
    pub adapter: Arc<dyn Backend>,
    pub has_token: bool,
    token: Option<String>,
    client: OutboundClient,
}

impl Subject {
    /// Finds out which vector store is meant; `token` comes with the name of its variable.
    pub async fn new(
        url: &str,
        token: Option<(String, String)>,
        query: String,
        store: Option<String>,
    ) -> Result<Self, String> {
        let mut engine = json!({ "type": "openai", "url": url });
        if let Some((name, _)) = &token {
            engine["credential"] = format!("env:{name}").into();
        }
        let configurations = parse(&json!({ "subject": engine }).to_string());
        let configurations = configurations.map_err(|problems| problems.join("; "))?;
        let surroundings =
            Surroundings::from_environment(Arc::new(SystemClock), Arc::new(SystemRandom));
        let adapter = build("subject", &configurations["subject"], &surroundings);
        let mut subject = Self {
            url: url.trim_end_matches('/').to_owned(),
            store: store.unwrap_or_default(),
            query,
            adapter: adapter.map_err(|error| error.to_string())?,
            has_token: token.is_some(),
            token: token.map(|(_, token)| token),
            client: OutboundClient::default(),
        };
        if subject.store.is_empty() {
            let (status, stores) = subject.get("/vector_stores").await?;
            let first = stores["data"][0]["id"].as_str();
            let Some(first) = first else {
                return Err(format!(
                    "GET /vector_stores answers {status} without a vector store; name one with \
                     --knowledge-base"
                ));
            };
            first.clone_into(&mut subject.store);
        }
        Ok(subject)
    }

    pub async fn get(&self, path: &str) -> Result<Answer, String> {
        self.send(Method::GET, path, None, self.token.as_deref())
            .await
    }

    /// GET without the token.
    pub async fn get_as_nobody(&self, path: &str) -> Result<Answer, String> {
        self.send(Method::GET, path, None, None).await
    }

    /// GET below the vector store.
    pub async fn of_store(&self, path: &str) -> Result<Answer, String> {
        self.get(&format!("/vector_stores/{}{path}", self.store))
            .await
    }

    /// A search with the query and these further fields.
    pub async fn search(&self, fields: Value) -> Result<Answer, String> {
        self.search_in(&self.store, fields).await
    }

    pub async fn search_in(&self, store: &str, fields: Value) -> Result<Answer, String> {
        let mut body = json!({ "query": self.query, "max_num_results": 20 });
        if let (Value::Object(body), Value::Object(fields)) = (&mut body, fields) {
            body.extend(fields);
        }
        let path = format!("/vector_stores/{store}/search");
        self.send(Method::POST, &path, Some(body), self.token.as_deref())
            .await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        token: Option<&str>,
    ) -> Result<Answer, String> {
        let what = format!("{method} {path}");
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("accept", "application/json")
            .header("content-type", "application/json")
            // Every request of raglan's belongs to a trace.
            .header(
                "traceparent",
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            );
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| format!("{what}: {error}"))?;
        let mut response = self.client.send(request.clone(), BOUNDS).await;
        // Reads are repeated, as raglan does: some servers close a connection after an error.
        if matches!(response, Err(OutboundError::Connection(_))) {
            response = self.client.send(request, BOUNDS).await;
        }
        let response = response.map_err(|error| format!("{what}: {error}"))?;
        let body = serde_json::from_slice(response.body()).unwrap_or(Value::Null);
        Ok((response.status().as_u16(), body))
    }
}
