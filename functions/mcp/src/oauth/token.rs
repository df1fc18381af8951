//! Access tokens: JWTs in compact form (RFC 7519, RFC 7515 §7.1), signed with RS256 or ES256 (RFC 7518
//! §3.3, §3.4). No other algorithm is accepted, and the algorithm must be the one of the issuer's key.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use raglan_core::clock::Timestamp;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

use super::OauthConfig;

/// Clocks of issuer and function may differ by this much.
const LEEWAY_SECONDS: i64 = 30;

/// Why a token is no good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is no signed JWT with a usable header and usable claims.
    #[error("token_malformed")]
    Malformed,
    /// Its algorithm is not RS256 or ES256, or not the one of the key.
    #[error("token_algorithm")]
    Algorithm,
    /// The issuer has no such key.
    #[error("token_key_unknown")]
    UnknownKey,
    /// The signature is not the issuer's.
    #[error("token_signature")]
    Signature,
    /// Another issuer made it.
    #[error("token_issuer")]
    Issuer,
    /// It is meant for another server.
    #[error("token_audience")]
    Audience,
    /// Its time is over.
    #[error("token_expired")]
    Expired,
    /// Its time has not come.
    #[error("token_not_yet_valid")]
    NotYetValid,
}

/// Whether a bearer token is a JWT by its looks: three parts, and no key of ours has a dot.
#[must_use]
pub fn looks_like_a_token(text: &str) -> bool {
    text.split('.').count() == 3 && text.starts_with("ey")
}

/// A public key of the issuer, as far as we can use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublicKey {
    /// RS256: modulus and exponent, big-endian.
    Rsa {
        /// The modulus.
        modulus: Vec<u8>,
        /// The exponent.
        exponent: Vec<u8>,
    },
    /// ES256: an uncompressed point on P-256.
    P256 {
        /// 0x04, x, y.
        point: Vec<u8>,
    },
}

/// A token whose signature is not checked yet.
pub struct Parsed<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    header: Header,
    claims: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    /// Extensions that must be understood (RFC 7515 §4.1.11); we understand none.
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

impl<'a> Parsed<'a> {
    /// Takes a token apart.
    ///
    /// # Errors
    /// [`TokenError::Malformed`]
    pub fn parse(token: &'a str) -> Result<Self, TokenError> {
        let malformed = |_| TokenError::Malformed;
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let header = URL_SAFE_NO_PAD.decode(header).map_err(malformed)?;
        let header: Header = serde_json::from_slice(&header).map_err(|_| TokenError::Malformed)?;
        if header.crit.is_some() {
            return Err(TokenError::Malformed);
        }
        Ok(Self {
            signed,
            signature: URL_SAFE_NO_PAD.decode(signature).map_err(malformed)?,
            header,
            claims: URL_SAFE_NO_PAD.decode(claims).map_err(malformed)?,
        })
    }

    /// The key that the token names.
    pub fn key_id(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    /// Checks the signature, and only then reads the claims.
    ///
    /// # Errors
    /// [`TokenError`]
    pub fn verify(&self, key: &PublicKey) -> Result<Claims, TokenError> {
        let signed = self.signed.as_bytes();
        let checked = match (self.header.alg.as_str(), key) {
            ("RS256", PublicKey::Rsa { modulus, exponent }) => RsaPublicKeyComponents {
                n: modulus,
                e: exponent,
            }
            .verify(&RSA_PKCS1_2048_8192_SHA256, signed, &self.signature),
            ("ES256", PublicKey::P256 { point }) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                    .verify(signed, &self.signature)
            }
            _ => return Err(TokenError::Algorithm),
        };
        checked.map_err(|_| TokenError::Signature)?;
        serde_json::from_slice(&self.claims).map_err(|_| TokenError::Malformed)
    }
}

/// What a token claims (RFC 7519 §4.1, RFC 9068 §2.2).
#[derive(Debug, Clone, Deserialize)]
pub struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    exp: f64,
    #[serde(default)]
    nbf: Option<f64>,
    /// Some issuers send a list.
    #[serde(default)]
    scope: Option<Scopes>,
    /// What Okta and Microsoft Entra ID send instead of `scope`.
    #[serde(default)]
    scp: Option<Scopes>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Scopes {
    Joined(String),
    Listed(Vec<String>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Claims {
    /// Checks issuer, audience and time.
    ///
    /// # Errors
    /// [`TokenError`]
    pub fn check(&self, config: &OauthConfig, now: Timestamp) -> Result<(), TokenError> {
        if self.iss != config.issuer || self.sub.is_empty() {
            return Err(TokenError::Issuer);
        }
        let meant_for_us = match &self.aud {
            Audience::One(audience) => *audience == config.resource,
            Audience::Many(audiences) => audiences.contains(&config.resource),
        };
        if !meant_for_us {
            return Err(TokenError::Audience);
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds since 1970 are far below 2^53"
        )]
        let (now, leeway) = (now.epoch_seconds() as f64, LEEWAY_SECONDS as f64);
        // JSON has no NaN and no infinity: every claim that was read can be compared.
        if self.exp + leeway <= now {
            return Err(TokenError::Expired);
        }
        if self.nbf.is_some_and(|not_before| not_before - leeway > now) {
            return Err(TokenError::NotYetValid);
        }
        Ok(())
    }

    /// Who it stands for.
    pub fn subject(&self) -> &str {
        &self.sub
    }

    /// What it may be used for.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        let texts = match self.scope.as_ref().or(self.scp.as_ref()) {
            None => &[][..],
            Some(Scopes::Joined(text)) => std::slice::from_ref(text),
            Some(Scopes::Listed(texts)) => texts,
        };
        texts.iter().flat_map(|text| text.split_ascii_whitespace())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    use serde_json::{Value, json};

    use super::*;

    const NOW: Timestamp = Timestamp::from_epoch_seconds(1_800_000_000);

    struct Issuer {
        pair: EcdsaKeyPair,
    }

    impl Issuer {
        fn new() -> Self {
            let random = SystemRandom::new();
            let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
            let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
            Self { pair }
        }

        fn key(&self) -> PublicKey {
            PublicKey::P256 {
                point: self.pair.public_key().as_ref().to_vec(),
            }
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let signed = format!("{}.{}", part(header), part(claims));
            let signature = self
                .pair
                .sign(&SystemRandom::new(), signed.as_bytes())
                .unwrap();
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
        }
    }

    fn header() -> Value {
        json!({ "alg": "ES256", "kid": "k1", "typ": "at+jwt" })
    }

    fn claims() -> Value {
        json!({
            "iss": "https://id.example", "sub": "anna", "aud": "https://kb.example/mcp",
            "exp": 1_800_000_600, "scope": "openid raglan"
        })
    }

    fn config() -> OauthConfig {
        OauthConfig {
            issuer: "https://id.example".to_owned(),
            resource: "https://kb.example/mcp".to_owned(),
        }
    }

    fn check(issuer: &Issuer, header: &Value, claims: &Value) -> Result<Claims, TokenError> {
        let token = issuer.token(header, claims);
        let claims = Parsed::parse(&token)?.verify(&issuer.key())?;
        claims.check(&config(), NOW)?;
        Ok(claims)
    }

    #[test]
    fn a_token_of_the_issuer_for_this_server_is_accepted() {
        let issuer = Issuer::new();
        let accepted = check(&issuer, &header(), &claims()).unwrap();
        assert_eq!(accepted.subject(), "anna");
        assert_eq!(accepted.scopes().collect::<Vec<_>>(), ["openid", "raglan"]);
        let mut several = claims();
        several["aud"] = json!(["https://other.example", "https://kb.example/mcp"]);
        assert!(check(&issuer, &header(), &several).is_ok());
    }

    #[test]
    fn scopes_are_read_under_both_names_and_in_both_forms() {
        let issuer = Issuer::new();
        for (name, value) in [
            ("scope", json!("raglan openid")),
            ("scope", json!(["raglan", "openid"])),
            ("scp", json!("raglan openid")),
            ("scp", json!(["raglan", "openid"])),
        ] {
            let mut claims = claims();
            claims.as_object_mut().unwrap().remove("scope");
            claims[name] = value;
            let accepted = check(&issuer, &header(), &claims).unwrap();
            let scopes: Vec<_> = accepted.scopes().collect();
            assert_eq!(scopes, ["raglan", "openid"], "{claims}");
        }
    }

    #[test]
    fn each_wrong_claim_alone_is_refused() {
        let issuer = Issuer::new();
        for (name, value, reason) in [
            ("iss", json!("https://evil.example"), TokenError::Issuer),
            ("iss", json!("https://id.example/"), TokenError::Issuer),
            ("sub", json!(""), TokenError::Issuer),
            (
                "aud",
                json!("https://other.example/mcp"),
                TokenError::Audience,
            ),
            ("aud", json!("https://kb.example"), TokenError::Audience),
            ("aud", json!([]), TokenError::Audience),
            ("exp", json!(1_799_999_970), TokenError::Expired),
            ("exp", json!("1800000600"), TokenError::Malformed),
            ("exp", Value::Null, TokenError::Malformed),
            ("nbf", json!(1_800_000_031), TokenError::NotYetValid),
        ] {
            let mut wrong = claims();
            wrong[name] = value;
            assert_eq!(
                check(&issuer, &header(), &wrong).unwrap_err(),
                reason,
                "{wrong}"
            );
        }
    }

    #[test]
    fn no_algorithm_but_the_keys_own_is_accepted() {
        let issuer = Issuer::new();
        for algorithm in [
            "none", "None", "", "HS256", "RS256", "ES384", "PS256", "es256",
        ] {
            let header = json!({ "alg": algorithm, "kid": "k1" });
            assert_eq!(
                check(&issuer, &header, &claims()).unwrap_err(),
                TokenError::Algorithm,
                "{algorithm}"
            );
        }
    }

    #[test]
    fn a_header_with_extensions_that_must_be_understood_is_refused() {
        let header = json!({ "alg": "ES256", "crit": ["exp"] });
        assert_eq!(
            check(&Issuer::new(), &header, &claims()).unwrap_err(),
            TokenError::Malformed
        );
    }

    #[test]
    fn another_key_and_a_changed_claim_break_the_signature() {
        let (issuer, other) = (Issuer::new(), Issuer::new());
        let token = issuer.token(&header(), &claims());
        let verified = Parsed::parse(&token).unwrap().verify(&other.key());
        assert_eq!(verified.unwrap_err(), TokenError::Signature);
        let parts: Vec<&str> = token.split('.').collect();
        let mut changed = claims();
        changed["sub"] = json!("root");
        let forged = format!(
            "{}.{}.{}",
            parts[0],
            URL_SAFE_NO_PAD.encode(changed.to_string()),
            parts[2]
        );
        let verified = Parsed::parse(&forged).unwrap().verify(&issuer.key());
        assert_eq!(verified.unwrap_err(), TokenError::Signature);
    }

    #[test]
    fn no_key_of_ours_looks_like_a_token() {
        assert!(looks_like_a_token(
            &Issuer::new().token(&header(), &claims())
        ));
        for key in ["rgl_abc", "mk_test_0123456789abcdef", "ey.two", "a.b.c", ""] {
            assert!(!looks_like_a_token(key), "{key}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[A-Za-z0-9_.=-]{0,80}") {
            let key = PublicKey::Rsa { modulus: vec![0; 3], exponent: vec![] };
            if let Ok(parsed) = Parsed::parse(&text) {
                let _ = parsed.verify(&key);
            }
        }
    }
}
