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
}

/// Keeps the issuer's keys.
pub struct IssuerKeys {
    issuer: String,
    client: OutboundClient,
    known: Mutex<Option<Known>>,
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
            known: Mutex::new(None),
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
        let mut known = self.known.lock().await;
        let age = known
            .as_ref()
            .map(|known| now.epoch_seconds() - known.fetched_at.epoch_seconds());
        if let Some(known) = known.as_ref()
            && age.is_some_and(|age| age < LIFETIME_SECONDS)
        {
            let found = choose(&known.by_id, key_id);
            if found.is_some() || age.is_some_and(|age| age < LOOK_AGAIN_SECONDS) {
                return Ok(found);
            }
        }
        let by_id = self.fetch().await?;
        let found = choose(&by_id, key_id);
        *known = Some(Known {
            fetched_at: now,
            by_id,
        });
        Ok(found)
    }

    async fn fetch(&self) -> Result<BTreeMap<String, PublicKey>, IssuerKeysError> {
        let mut first_error = None;
        for url in metadata_urls(&self.issuer) {
            match self.get::<Metadata>(&url).await {
                // RFC 8414 §3.3: metadata of another issuer must not be used.
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
