//! Signature Version 4 in the header of a request.
//!
//! Source: AWS Identity and Access Management User Guide, "Create a signed AWS API request".

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use aws_credential_types::Credentials;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderName, HeaderValue, Request, header};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The one service that signs paths as they are sent.
const S3: &str = "s3";
/// The end of every scope.
const TERMINATION: &str = "aws4_request";
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

type HmacSha256 = Hmac<Sha256>;

/// Signs with one set of credentials for one service in one region.
pub struct Signer {
    credentials: Credentials,
    region: Arc<str>,
    service: &'static str,
    /// Derived from the secret key by four hashes; stays the same for a day.
    day: Mutex<Option<Day>>,
}

#[derive(Clone)]
struct Day {
    /// `20261130`
    date: String,
    key: HmacSha256,
}

/// A header could not be signed.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The credentials hold what no header can.
    #[error("the credentials cannot be sent in a header")]
    Unsendable,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Signer");
        let shown = shown.field("region", &self.region);
        shown
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

impl Signer {
    /// A signer.
    #[must_use]
    pub fn new(credentials: Credentials, region: Arc<str>, service: &'static str) -> Self {
        Self {
            credentials,
            region,
            service,
            day: Mutex::default(),
        }
    }

    /// The credentials that it signs with.
    #[must_use]
    pub const fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Adds the date, the session's token and the signature. Signed are all headers that the request
    /// has, and `host`, which it must have among them.
    ///
    /// # Errors
    /// [`SigningError`]
    pub fn sign<B: AsRef<[u8]>>(
        &self,
        request: &mut Request<B>,
        now: OffsetDateTime,
    ) -> Result<(), SigningError> {
        let unsendable = |_| SigningError::Unsendable;
        let time = timestamp(now);
        let date = &time[..8];
        let headers = request.headers_mut();
        headers.insert(DATE, HeaderValue::from_str(&time).map_err(unsendable)?);
        if let Some(token) = self.credentials.session_token() {
            let mut token = HeaderValue::from_str(token).map_err(unsendable)?;
            token.set_sensitive(true);
            headers.insert(SECURITY_TOKEN, token);
        }
        let (canonical, signed_headers) = canonical(request, self.service == S3);
        let scope = format!("{date}/{}/{}/{TERMINATION}", self.region, self.service);
        let hash = hex::encode(Sha256::digest(&canonical));
        let mut signature = self.key_of(date);
        signature.update(format!("{ALGORITHM}\n{time}\n{scope}\n{hash}").as_bytes());
        let signature = hex::encode(signature.finalize().into_bytes());
        let authorization = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={signed_headers}, Signature={signature}",
            self.credentials.access_key_id()
        );
        let mut authorization = HeaderValue::try_from(authorization).map_err(unsendable)?;
        authorization.set_sensitive(true);
        request
            .headers_mut()
            .insert(header::AUTHORIZATION, authorization);
        Ok(())
    }

    fn key_of(&self, date: &str) -> HmacSha256 {
        let mut day = self.day.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(day) = day.as_ref().filter(|day| day.date == date) {
            return day.key.clone();
        }
        let secret = format!("AWS4{}", self.credentials.secret_access_key());
        let parts = [date, &self.region, self.service, TERMINATION];
        let key = parts
            .iter()
            .fold(keyed(secret.as_bytes()), |mut mac, part| {
                mac.update(part.as_bytes());
                keyed(&mac.finalize().into_bytes())
            });
        let date = date.to_owned();
        *day = Some(Day {
            date,
            key: key.clone(),
        });
        key
    }
}

fn keyed(key: &[u8]) -> HmacSha256 {
    // Keys of any length are allowed: the error is the interface's, and never HMAC's.
    HmacSha256::new_from_slice(key)
        .unwrap_or_else(|_| HmacSha256::new(&hmac::digest::Key::<HmacSha256>::default()))
}

/// The request in the form that is hashed, and the names of its headers.
fn canonical<B: AsRef<[u8]>>(request: &Request<B>, path_as_sent: bool) -> (String, String) {
    let mut headers: Vec<_> = request.headers().iter().collect();
    headers.sort_unstable_by_key(|(name, _)| name.as_str());
    let mut canonical = String::with_capacity(2048);
    canonical.push_str(request.method().as_str());
    canonical.push('\n');
    if path_as_sent {
        canonical.push_str(request.uri().path());
    } else {
        push_encoded(&mut canonical, request.uri().path());
    }
    canonical.push('\n');
    let mut query: Vec<_> = request.uri().query().map_or_else(Vec::new, |query| {
        query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect()
    });
    query.sort_unstable();
    for (index, (name, value)) in query.into_iter().enumerate() {
        if index > 0 {
            canonical.push('&');
        }
        canonical.extend([name, "=", value]);
    }
    canonical.push('\n');
    let mut names = String::with_capacity(96);
    for (name, value) in headers {
        if !names.is_empty() {
            names.push(';');
        }
        names.push_str(name.as_str());
        canonical.push_str(name.as_str());
        canonical.push(':');
        canonical.push_str(value.to_str().unwrap_or_default().trim());
        canonical.push('\n');
    }
    canonical.push('\n');
    canonical.push_str(&names);
    canonical.push('\n');
    canonical.push_str(&hex::encode(Sha256::digest(request.body())));
    (canonical, names)
}

/// A path whose segments are encoded for HTTP is encoded once more to be signed.
fn push_encoded(canonical: &mut String, path: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            canonical.push(char::from(byte));
        } else {
            let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
            canonical.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

/// `20261130T081500Z`
fn timestamp(now: OffsetDateTime) -> String {
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        now.year(),
        u8::from(now.month()),
        now.day(),
        now.hour(),
        now.minute(),
        now.second()
    )
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use aws_sigv4::http_request::{
        PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
        UriPathNormalizationMode, sign,
    };
    use aws_sigv4::sign::v4;
    use proptest::prelude::*;

    use super::*;

    fn request(path: &str, headers: &[(&str, &str)], body: &[u8]) -> Request<Vec<u8>> {
        let mut request = Request::post(format!("https://dynamodb.eu-west-1.amazonaws.com{path}"));
        request = request.header("host", "dynamodb.eu-west-1.amazonaws.com");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(body.to_vec()).unwrap()
    }

    /// What the SDK's signer adds to the same request.
    fn reference(
        request: &Request<Vec<u8>>,
        credentials: &Credentials,
        service: &'static str,
        now: OffsetDateTime,
    ) -> Request<Vec<u8>> {
        let mut settings = SigningSettings::default();
        if service == S3 {
            // What the SDK sets for this service.
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        }
        let identity = credentials.clone().into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region("eu-west-1")
            .name(service)
            .time(SystemTime::from(now))
            .settings(settings)
            .build()
            .unwrap();
        let headers = request.headers().iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
        let signable = SignableRequest::new(
            request.method().as_str(),
            request.uri().to_string(),
            headers,
            SignableBody::Bytes(request.body()),
        );
        let (instructions, _) = sign(signable.unwrap(), &parameters.into())
            .unwrap()
            .into_parts();
        let mut request = request.clone();
        instructions.apply_to_request_http1x(&mut request);
        request
    }

    fn assert_same(
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        token: Option<&str>,
        at: i64,
    ) {
        let now = OffsetDateTime::from_unix_timestamp(at).unwrap();
        let token = token.map(ToOwned::to_owned);
        let credentials =
            Credentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG", token, None, "test");
        let signer = Signer::new(credentials.clone(), "eu-west-1".into(), "dynamodb");
        let unsigned = request(path, headers, body);
        let expected = reference(&unsigned, &credentials, "dynamodb", now);
        // The second time with the day's key from the first.
        for _ in 0..2 {
            let mut ours = unsigned.clone();
            signer.sign(&mut ours, now).unwrap();
            assert_eq!(ours.headers(), expected.headers());
        }
    }

    /// Segments and values as the SDK's serialisers write them.
    fn encoded(segments: &[String]) -> Vec<String> {
        let encode = |text: &String| {
            let bytes = text.bytes();
            bytes
                .map(|byte| {
                    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                        char::from(byte).to_string()
                    } else {
                        format!("%{byte:02X}")
                    }
                })
                .collect()
        };
        segments.iter().map(encode).collect()
    }

    proptest! {
        #[test]
        fn every_place_is_signed_as_the_sdk_signs_it(
            segments in proptest::collection::vec("[a-z:/ é%+]{1,12}", 0..4),
            query in proptest::collection::btree_map("[a-z-]{1,8}", "[a-z:/ é%+]{0,8}", 0..4),
            service in prop_oneof![Just(S3), Just("bedrock")],
            method in prop_oneof![Just("GET"), Just("POST")],
        ) {
            let mut path = format!("/{}", encoded(&segments).join("/"));
            for (index, (name, value)) in query.iter().enumerate() {
                let value = encoded(std::slice::from_ref(value)).concat();
                path.extend([if index == 0 { "?" } else { "&" }, name, "=", &value]);
            }
            let now = OffsetDateTime::from_unix_timestamp(1_796_025_600).unwrap();
            let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
            let mut signed = request(&path, &[], b"");
            *signed.method_mut() = method.parse().unwrap();
            let expected = reference(&signed, &credentials, service, now);
            Signer::new(credentials, "eu-west-1".into(), service).sign(&mut signed, now).unwrap();
            prop_assert_eq!(signed.headers(), expected.headers());
        }

        #[test]
        fn every_signature_is_the_one_that_the_sdk_makes(
            body in proptest::collection::vec(any::<u8>(), 0..300),
            operation in "[A-Za-z]{1,20}",
            token in proptest::option::of("[A-Za-z0-9+/=]{1,200}"),
            at in 1_500_000_000_i64..4_000_000_000,
        ) {
            let target = format!("DynamoDB_20120810.{operation}");
            let headers = [("x-amz-target", &*target), ("content-type", "application/x-amz-json-1.0")];
            assert_same("/", &headers, &body, token.as_deref(), at);
        }
    }

    #[test]
    fn a_new_day_is_signed_with_its_own_key() {
        let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
        let signer = Signer::new(credentials.clone(), "eu-west-1".into(), "dynamodb");
        for at in [1_796_083_199, 1_796_083_200, 1_796_083_199] {
            let now = OffsetDateTime::from_unix_timestamp(at).unwrap();
            let unsigned = request("/", &[], b"{}");
            let mut ours = unsigned.clone();
            signer.sign(&mut ours, now).unwrap();
            assert_eq!(
                ours.headers(),
                reference(&unsigned, &credentials, "dynamodb", now).headers()
            );
        }
    }

    #[test]
    fn neither_the_secret_nor_the_token_is_shown() {
        let token = Some("a-session-token".to_owned());
        let credentials = Credentials::new("AKIDEXAMPLE", "a-secret-key", token, None, "test");
        let signer = Signer::new(credentials, "eu-west-1".into(), "dynamodb");
        let mut ours = request("/", &[], b"{}");
        signer.sign(&mut ours, OffsetDateTime::UNIX_EPOCH).unwrap();
        let shown = format!("{signer:?} {ours:?}");
        assert!(
            !shown.contains("a-secret-key") && !shown.contains("a-session-token"),
            "{shown}"
        );
        assert!(!shown.contains("Signature="), "{shown}");
    }
}
