//! The API that Lambda has for each of its instances: the Runtime API and the Extensions API, under one address.

use bytes::Bytes;
use http::{Request, Response, Uri};
use raglan_outbound::{DirectClient, OutboundError};

/// Says where it is: a host and a port; `cargo lambda watch` says a URL, which may have a path.
const ADDRESS: &str = "AWS_LAMBDA_RUNTIME_API";
/// Events for extensions are small, and so is what is said of an answer.
const ANSWER_MAX_BYTES: usize = 64 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum PlatformApiError {
    /// This is no instance of a function.
    #[error("{ADDRESS} is not set")]
    NoAddress,
    /// The address and the path are no URL.
    #[error("it is at no URL: {0}")]
    NoUrl(#[from] http::uri::InvalidUri),
    /// It does not answer.
    #[error(transparent)]
    Connection(#[from] OutboundError),
}

/// A client of the platform's API.
#[derive(Debug)]
pub struct PlatformApi {
    address: String,
    client: DirectClient,
}

impl PlatformApi {
    /// The API of this instance.
    ///
    /// # Errors
    /// [`PlatformApiError::NoAddress`]
    pub fn from_environment() -> Result<Self, PlatformApiError> {
        let address = std::env::var(ADDRESS).map_err(|_| PlatformApiError::NoAddress)?;
        Ok(Self::at(&address))
    }

    fn at(address: &str) -> Self {
        let address = address.strip_prefix("http://").unwrap_or(address);
        Self {
            address: address.trim_end_matches('/').to_owned(),
            client: DirectClient::default(),
        }
    }

    fn url(&self, path: &str) -> Result<Uri, PlatformApiError> {
        Ok(Uri::try_from(format!("http://{}{path}", self.address))?)
    }

    /// Sends a request to a path, however long the answer takes: an event comes when there is one.
    ///
    /// # Errors
    /// [`PlatformApiError`]
    pub async fn send(
        &self,
        path: &str,
        mut request: Request<Bytes>,
    ) -> Result<Response<Bytes>, PlatformApiError> {
        *request.uri_mut() = self.url(path)?;
        let sent = self
            .client
            .send_without_deadline(&request, ANSWER_MAX_BYTES);
        Ok(sent.await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_lambdas_or_that_of_a_local_emulator() {
        for (address, url) in [
            ("127.0.0.1:9001", "http://127.0.0.1:9001/next"),
            (
                "http://127.0.0.1:9100/mcp",
                "http://127.0.0.1:9100/mcp/next",
            ),
            ("http://127.0.0.1:9100/", "http://127.0.0.1:9100/next"),
        ] {
            assert_eq!(PlatformApi::at(address).url("/next").unwrap(), url);
        }
    }
}
