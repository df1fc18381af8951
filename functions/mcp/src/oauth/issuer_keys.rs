//! The issuer's public keys (RFC 7517), fetched when a token first needs them and kept for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use raglan_core::clock::Timestamp;
use raglan_outbound::{Bounds, OutboundClient, OutboundError};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::metadata::split_origin;
use super::token::PublicKey;

/// Keys are fetched anew after this long.
const LIFETIME_SECONDS: i64 = 600;
/// An unknown key id makes us look again, but no more often than this: anybody can invent key ids.
const LOOK_AGAIN_SECONDS: i64 = 30;
/// An issuer that fails is left alone for this long: callers would wait for it one after the other.
const RETRY_SECONDS: i64 = 2;
const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(3),
    response_max_bytes: 256 * 1024,
};
/// The issuer's keys cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum IssuerKeysError {
    /// The issuer does not answer.
    #[error("{url}: {cause}")]
    Unreachable {
        /// What was asked.
        url: String,
        /// Why there is no answer.
        cause: OutboundError,
    },
    /// The issuer answers something else than its metadata or its keys.
    #[error("{url}: {what}")]
    Unusable {
        /// What was asked.
        url: String,
        /// What is wrong.
        what: String,
    },
    /// It failed a moment ago; it was not asked again.
    #[error("the issuer failed a moment ago")]
    JustFailed,
}

/// Keeps the issuer's keys.
pub struct IssuerKeys {
    issuer: String,
    client: OutboundClient,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Option<Known>,
    failed_at: Option<Timestamp>,
}

struct Known {
    fetched_at: Timestamp,
    by_id: BTreeMap<String, PublicKey>,
}

#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

/// The members of a JSON Web Key that we need (RFC 7518 §6.2, §6.3).
#[derive(Deserialize)]
struct JsonWebKey {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, rename = "use")]
    usage: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

impl IssuerKeys {
    /// Keys of this issuer; nothing is fetched yet.
    pub fn new(issuer: String, client: OutboundClient) -> Self {
        Self {
            issuer,
            client,
            state: Mutex::default(),
        }
    }

    /// The key with this id; without an id, the issuer's only key.
    ///
    /// # Errors
    /// [`IssuerKeysError`]
    pub async fn find(
        &self,
        key_id: Option<&str>,
        now: Timestamp,
    ) -> Result<Option<PublicKey>, IssuerKeysError> {
        // Held while fetching: calls that come at the same time wait for one answer.
        let mut state = self.state.lock().await;
        let seconds_since = |at: Timestamp| now.epoch_seconds() - at.epoch_seconds();
        if let Some(known) = &state.known {
            let age = seconds_since(known.fetched_at);
            let found = choose(&known.by_id, key_id);
            if age < LOOK_AGAIN_SECONDS || (age < LIFETIME_SECONDS && found.is_some()) {
                return Ok(found);
            }
        }
        if let Some(failed_at) = state.failed_at
            && seconds_since(failed_at) < RETRY_SECONDS
        {
            return Err(IssuerKeysError::JustFailed);
        }
        match self.fetch().await {
            Ok(by_id) => {
                let found = choose(&by_id, key_id);
                let fetched_at = now;
                state.known = Some(Known { fetched_at, by_id });
                state.failed_at = None;
                Ok(found)
            }
            Err(error) => {
                state.failed_at = Some(now);
                Err(error)
            }
        }
    }

    async fn fetch(&self) -> Result<BTreeMap<String, PublicKey>, IssuerKeysError> {
        let mut first_error = None;
        for url in metadata_urls(&self.issuer) {
            match self.get::<Metadata>(&url).await {
                // RFC 8414 §3.3: metadata of another issuer must not be used.
                // Keys over plain HTTP would be anybody's.
                Ok(metadata)
                    if self.issuer.starts_with("https://")
                        && !metadata.jwks_uri.starts_with("https://") =>
                {
                    let what = "its keys are not served over https".to_owned();
                    return Err(IssuerKeysError::Unusable { url, what });
                }
                Ok(metadata) if metadata.issuer == self.issuer => {
                    let set: KeySet = self.get(&metadata.jwks_uri).await?;
                    return Ok(usable(set));
                }
                Ok(_) => {
                    let what = "the metadata is of another issuer".to_owned();
                    first_error.get_or_insert(IssuerKeysError::Unusable { url, what });
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or_else(|| IssuerKeysError::Unusable {
            url: self.issuer.clone(),
            what: "no metadata".to_owned(),
        }))
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, url: &str) -> Result<T, IssuerKeysError> {
        let unusable = |what: String| IssuerKeysError::Unusable {
            url: url.to_owned(),
            what,
        };
        let request = Request::get(url)
            .header(http::header::ACCEPT, "application/json")
            .body(Full::<Bytes>::default())
            .map_err(|error| unusable(error.to_string()))?;
        let answer = self.client.send(request, BOUNDS).await;
        let answer = answer.map_err(|cause| IssuerKeysError::Unreachable {
            url: url.to_owned(),
            cause,
        })?;
        if !answer.status().is_success() {
            return Err(unusable(format!("status {}", answer.status())));
        }
        serde_json::from_slice(answer.body()).map_err(|error| unusable(error.to_string()))
    }
}

/// Where an issuer may say where its keys are, in the order in which MCP wants them tried: before the
/// path (RFC 8414 §3.1) and, for `OpenID` Connect Discovery (§4), after it as well.
fn metadata_urls(issuer: &str) -> Vec<String> {
    let issuer = issuer.trim_end_matches('/');
    let (origin, path) = split_origin(issuer);
    let mut urls = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        urls.push(format!("{issuer}/.well-known/openid-configuration"));
    }
    urls
}

fn choose(by_id: &BTreeMap<String, PublicKey>, key_id: Option<&str>) -> Option<PublicKey> {
    match key_id {
        Some(key_id) => by_id.get(key_id).cloned(),
        None if by_id.len() == 1 => by_id.values().next().cloned(),
        None => None,
    }
}

/// The keys that we can use; others are left out (RFC 7517 §5).
fn usable(set: KeySet) -> BTreeMap<String, PublicKey> {
    let parsed = set
        .keys
        .into_iter()
        .filter_map(|key| serde_json::from_value(key).ok());
    parsed
        .filter(|key: &JsonWebKey| key.usage.as_deref().is_none_or(|usage| usage == "sig"))
        .filter_map(|key| Some((key.kid.clone().unwrap_or_default(), public_key(&key)?)))
        .collect()
}

fn public_key(key: &JsonWebKey) -> Option<PublicKey> {
    let bytes = |member: &Option<String>| URL_SAFE_NO_PAD.decode(member.as_deref()?).ok();
    match (key.kty.as_str(), key.crv.as_deref()) {
        ("RSA", _) => Some(PublicKey::Rsa {
            modulus: bytes(&key.n)?,
            exponent: bytes(&key.e)?,
        }),
        ("EC", Some("P-256")) => {
            let (x, y) = (bytes(&key.x)?, bytes(&key.y)?);
            let point = [&[4][..], &x, &y].concat();
            (point.len() == 65).then_some(PublicKey::P256 { point })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_with_a_path_is_looked_up_before_and_after_the_path() {
        for issuer in ["https://id.example", "https://id.example/"] {
            assert_eq!(
                metadata_urls(issuer),
                [
                    "https://id.example/.well-known/oauth-authorization-server",
                    "https://id.example/.well-known/openid-configuration",
                ]
            );
        }
        assert_eq!(
            metadata_urls("https://id.example/realms/kb"),
            [
                "https://id.example/.well-known/oauth-authorization-server/realms/kb",
                "https://id.example/.well-known/openid-configuration/realms/kb",
                "https://id.example/realms/kb/.well-known/openid-configuration",
            ]
        );
    }
}
