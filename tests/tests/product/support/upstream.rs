//! The service behind a stand-in that looks at requests before it passes them on.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// The service.
#[derive(Debug, Clone)]
pub struct Upstream {
    url: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Upstream {
    /// The service at `url`.
    pub fn at(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Its answer to a request; `None` when it gives none.
    pub async fn answer(
        &self,
        mut parts: http::request::Parts,
        body: Bytes,
    ) -> Option<Response<Full<Bytes>>> {
        let path = parts.uri.path_and_query().unwrap();
        parts.uri = format!("{}{path}", self.url).parse().unwrap();
        let request = Request::from_parts(parts, Full::new(body));
        let (parts, body) = self.client.request(request).await.ok()?.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some(Response::from_parts(parts, Full::new(body)))
    }
}
