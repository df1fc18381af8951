//! Step 2 of a request: who is calling. The key alone decides; nothing else in the request can.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use raglan_core::access::Grant;
use raglan_core::clock::Timestamp;
use raglan_core::key::{MalformedKey, PlainKey, fingerprint_of_unknown};
use raglan_core::key_record::{KeyRecord, Standing};
use raglan_store::{KeyStore, StoreError};

/// Longer `Authorization` headers are refused unread.
const HEADER_MAX_BYTES: usize = 512;

/// Whoever holds a good key.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The key's id.
    pub key_id: String,
    /// The key's owner; `None` for a system key.
    pub owner: Option<String>,
    /// What the key may do.
    pub grant: Grant,
}

impl From<KeyRecord> for Caller {
    fn from(record: KeyRecord) -> Self {
        let grant = record.grant();
        Self {
            key_id: record.key_id,
            owner: record.owner,
            grant,
        }
    }
}

/// Why nobody is recognised. The caller is told one of two things only: not recognised, or cannot be
/// checked right now.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// There is no `Authorization` header.
    #[error("no authorization header")]
    Missing,
    /// There are several, or it is oversized, no text, or not of the scheme `Bearer`.
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
            Self::Store(_) => "key_store_unavailable".to_owned(),
        }
    }
}

/// Recognises the caller.
///
/// # Errors
/// [`AuthenticationError`]; everything but [`AuthenticationError::Store`] is the same 401.
pub async fn authenticate(
    keys: &KeyStore,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<Caller, AuthenticationError> {
    let presented = bearer_token(headers)?;
    let key = PlainKey::parse(presented).map_err(|cause| AuthenticationError::Malformed {
        cause,
        fingerprint: fingerprint_of_unknown(presented),
    })?;
    let hash = key.hash();
    let Some(record) = keys.find(&hash).await? else {
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

/// The credentials of the scheme `Bearer` (RFC 6750 §2.1; RFC 9110 §11.1: the scheme's case does not
/// matter).
fn bearer_token(headers: &HeaderMap) -> Result<&str, AuthenticationError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(AuthenticationError::Missing)?;
    if values.next().is_some() || value.len() > HEADER_MAX_BYTES {
        return Err(AuthenticationError::UnusableHeader);
    }
    let text = value
        .to_str()
        .map_err(|_| AuthenticationError::UnusableHeader)?;
    let (scheme, rest) = text
        .split_once(' ')
        .ok_or(AuthenticationError::UnusableHeader)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        Ok(rest.trim())
    } else {
        Err(AuthenticationError::UnusableHeader)
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
        bearer_token(&headers).ok().map(ToOwned::to_owned)
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
}
