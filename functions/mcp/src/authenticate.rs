//! Step 2 of a request: who is calling. The key alone decides; nothing else in the request can.

use std::collections::BTreeMap;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use raglan_core::access::Grant;
use raglan_core::audit::privacy::TextPolicy;
use raglan_core::clock::Timestamp;
use raglan_core::key::{KeyHash, MalformedKey, PlainKey, fingerprint_of_unknown};
use raglan_core::key_record::{KeyRecord, RateLimit, Standing};
use raglan_store::StoreError;

use crate::oauth::{
    IssuerKeysError, Oauth, OauthError, TokenBearer, TokenError, looks_like_a_token,
};

/// Longer headers are refused unread.
const HEADER_MAX_BYTES: usize = 8 * 1024;
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// How an `Authorization` header begins that signs the request for AWS and names nobody to us.
const AWS_SIGNATURE: &str = "AWS4-HMAC-SHA256 ";

/// Whoever holds a good key.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The key's id.
    pub key_id: String,
    /// The key's owner; `None` for a system key.
    pub owner: Option<String>,
    /// The key's hash: the state table's items of this key are found by it.
    pub key_hash: KeyHash,
    /// The key's own pace; `None` takes the deployment's.
    pub rate_limit: Option<RateLimit>,
    /// The key's own daily quotas, by the name of the tool.
    pub daily_quotas: BTreeMap<String, u64>,
    /// What the audit trail keeps of the caller's words; `None` takes the deployment's default.
    pub audit_text: Option<TextPolicy>,
    /// What the key may do.
    pub grant: Grant,
}

impl From<KeyRecord> for Caller {
    fn from(record: KeyRecord) -> Self {
        let grant = record.grant();
        Self {
            key_id: record.key_id,
            owner: record.owner,
            key_hash: record.key_hash,
            rate_limit: record.rate_limit,
            daily_quotas: record.daily_quotas,
            audit_text: record.audit_text,
            grant,
        }
    }
}

/// Why nobody is recognised. The caller is told one of two things only: not recognised, or cannot be
/// checked right now.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// There is neither an `Authorization` nor an `X-Api-Key` header.
    #[error("no authorization header")]
    Missing,
    /// There are several, or it is oversized, no text, not of the scheme `Bearer`, or the two headers
    /// differ.
    #[error("unusable authorization header")]
    UnusableHeader,
    /// What was presented cannot be a key.
    #[error("malformed key: {cause}")]
    Malformed {
        /// What is off.
        cause: MalformedKey,
        /// To recognise the same text again.
        fingerprint: String,
    },
    /// There is no such key.
    #[error("unknown key")]
    Unknown {
        /// To recognise the same key again.
        fingerprint: String,
    },
    /// The key is known, but does not work now.
    #[error("key {key_id} does not work: {standing}")]
    NotWorking {
        /// The key's id.
        key_id: String,
        /// The key's owner.
        owner: Option<String>,
        /// Why.
        standing: Standing,
    },
    /// The access token is no good.
    #[error("unusable access token: {cause}")]
    Token {
        /// Why.
        cause: TokenError,
        /// To recognise the same token again.
        fingerprint: String,
    },
    /// The access token is good, but lacks the scope.
    #[error("the access token lacks the scope")]
    InsufficientScope {
        /// To recognise the same token again.
        fingerprint: String,
    },
    /// The issuer of access tokens cannot be asked for its keys.
    #[error("the token issuer failed: {0}")]
    Issuer(IssuerKeysError),
    /// The address has failed too often; the store was not asked.
    #[error("too many failures from this address")]
    TooManyFailures {
        /// Seconds until it may try again.
        retry_after_seconds: u64,
    },
    /// The store cannot be asked, or its record cannot be read.
    #[error("the key store failed: {0}")]
    Store(#[from] StoreError),
}

impl AuthenticationError {
    /// One stable word for the log and the audit trail.
    #[must_use]
    pub fn class(&self) -> String {
        match self {
            Self::Missing => "key_missing".to_owned(),
            Self::UnusableHeader => "authorization_header_unusable".to_owned(),
            Self::Malformed { .. } => "key_malformed".to_owned(),
            Self::Unknown { .. } => "key_unknown".to_owned(),
            Self::NotWorking { standing, .. } => standing.to_string(),
            Self::Token { cause, .. } => cause.to_string(),
            Self::InsufficientScope { .. } => "token_insufficient_scope".to_owned(),
            Self::Issuer(_) => "token_issuer_unavailable".to_owned(),
            Self::TooManyFailures { .. } => "too_many_failures".to_owned(),
            Self::Store(_) => "key_store_unavailable".to_owned(),
        }
    }

    /// Whether the caller failed to present a good key, as opposed to us failing to check it.
    #[must_use]
    pub const fn is_the_callers(&self) -> bool {
        !matches!(
            self,
            Self::TooManyFailures { .. } | Self::Store(_) | Self::Issuer(_)
        )
    }
}

/// What a request presents.
pub enum Presented<'a> {
    /// An API key, by its hash.
    Key(KeyHash),
    /// An access token, not checked yet; only where those are accepted.
    Token(&'a str),
}

/// What the request presents. Nobody is asked.
///
/// # Errors
/// [`AuthenticationError`] when there is nothing that could be a key or a token.
pub fn presented(
    headers: &HeaderMap,
    tokens_accepted: bool,
) -> Result<Presented<'_>, AuthenticationError> {
    let text = credentials(headers)?;
    if tokens_accepted && looks_like_a_token(text) {
        return Ok(Presented::Token(text));
    }
    let key = PlainKey::parse(text).map_err(|cause| AuthenticationError::Malformed {
        cause,
        fingerprint: fingerprint_of_unknown(text),
    })?;
    Ok(Presented::Key(key.hash()))
}

/// Checks an access token; its subject's grant record still has to be looked up.
///
/// # Errors
/// [`AuthenticationError`]
pub async fn check_token(oauth: &Oauth, token: &str) -> Result<TokenBearer, AuthenticationError> {
    let fingerprint = || fingerprint_of_unknown(token);
    oauth.check(token).await.map_err(|error| match error {
        OauthError::Token(cause) => AuthenticationError::Token {
            cause,
            fingerprint: fingerprint(),
        },
        OauthError::InsufficientScope => AuthenticationError::InsufficientScope {
            fingerprint: fingerprint(),
        },
        OauthError::Issuer(error) => AuthenticationError::Issuer(error),
    })
}

/// Recognises the caller by what the store has under the hash of the presented key.
///
/// # Errors
/// [`AuthenticationError`]; the caller is told the same 401 in every case.
pub fn recognise(
    hash: &KeyHash,
    found: Option<KeyRecord>,
    now: Timestamp,
) -> Result<Caller, AuthenticationError> {
    let Some(record) = found else {
        return Err(AuthenticationError::Unknown {
            fingerprint: hash.fingerprint(),
        });
    };
    match record.check(now) {
        Ok(()) => Ok(record.into()),
        Err(standing) => Err(AuthenticationError::NotWorking {
            key_id: record.key_id,
            owner: record.owner,
            standing,
        }),
    }
}

/// The one credential of a request: `Authorization: Bearer` or, where a front needs that header for
/// itself, `X-Api-Key`. Both may be there only if they say the same.
fn credentials(headers: &HeaderMap) -> Result<&str, AuthenticationError> {
    let api_key = only_value(headers, &X_API_KEY)?.map(str::trim);
    let authorization = only_value(headers, &AUTHORIZATION)?;
    match (api_key, authorization) {
        (None, None) => Err(AuthenticationError::Missing),
        (None, Some(authorization)) => bearer_token(authorization),
        // CloudFront signs what it sends to a function URL, and the signature takes this header.
        (Some(api_key), Some(authorization)) if authorization.starts_with(AWS_SIGNATURE) => {
            Ok(api_key)
        }
        (Some(api_key), Some(authorization)) if bearer_token(authorization)? != api_key => {
            Err(AuthenticationError::UnusableHeader)
        }
        (Some(api_key), _) => Ok(api_key),
    }
}

/// The value of a header that may be there once.
fn only_value<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, AuthenticationError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() || value.len() > HEADER_MAX_BYTES {
        return Err(AuthenticationError::UnusableHeader);
    }
    let text = value.to_str();
    text.map(Some)
        .map_err(|_| AuthenticationError::UnusableHeader)
}

/// The credentials of the scheme `Bearer` (RFC 6750 §2.1; RFC 9110 §11.1: the scheme's case does not
/// matter).
fn bearer_token(authorization: &str) -> Result<&str, AuthenticationError> {
    match authorization.split_once(' ') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => Ok(rest.trim()),
        _ => Err(AuthenticationError::UnusableHeader),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn token(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        credentials(&headers).ok().map(ToOwned::to_owned)
    }

    #[test]
    fn the_scheme_may_be_written_in_any_case() {
        for header in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            assert_eq!(token(&[header]).as_deref(), Some("abc"), "{header}");
        }
    }

    #[test]
    fn several_foreign_or_oversized_headers_are_refused_unread() {
        let long = format!("Bearer {}", "a".repeat(HEADER_MAX_BYTES));
        let rows: [&[&str]; 6] = [
            &[],
            &["Bearer a", "Bearer b"],
            &["Basic abc"],
            &["abc"],
            &["Bearer"],
            &[&long],
        ];
        for values in rows {
            assert_eq!(token(values), None, "{values:?}");
        }
    }

    #[test]
    fn headers_that_a_front_joined_with_a_comma_are_no_key() {
        let presented = token(&["Bearer mk_test_0123456789, Bearer mk_test_0123456789"]).unwrap();
        assert!(PlainKey::parse(&presented).is_err());
    }

    #[test]
    fn the_key_may_come_in_x_api_key_but_never_beside_another_one() {
        let of = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_static(value));
            }
            credentials(&headers).ok().map(ToOwned::to_owned)
        };
        let signature = (
            "authorization",
            "AWS4-HMAC-SHA256 Credential=a, Signature=b",
        );
        for accepted in [
            &[("x-api-key", " abc ")][..],
            &[("x-api-key", "abc"), ("authorization", "Bearer abc")],
            &[("x-api-key", "abc"), signature],
        ] {
            assert_eq!(of(accepted).as_deref(), Some("abc"), "{accepted:?}");
        }
        for refused in [
            &[("x-api-key", "abc"), ("authorization", "Bearer abd")][..],
            &[("x-api-key", "abc"), ("authorization", "Basic abc")],
            &[("x-api-key", "abc"), ("x-api-key", "abc")],
            &[signature],
        ] {
            assert_eq!(of(refused), None, "{refused:?}");
        }
    }
}
