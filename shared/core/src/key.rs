//! API keys: format, checksum, hash.
//!
//! A key of ours is `rgl_`, 43 random base62 characters (256 bits) and 6 base62 characters of
//! CRC-32 over everything before them. The checksum lets a mistyped or invented key be refused
//! without asking the store. A key that was issued elsewhere is known by its SHA-256 alone; it only
//! has to look like a bearer token (RFC 6750 §2.1).

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ids::to_hex;
use crate::random::{Random, RandomUnavailable};

/// How our keys begin.
pub const PREFIX: &str = "rgl_";
pub(crate) const SECRET_CHARS: usize = 43;
const CHECKSUM_CHARS: usize = 6;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Bounds of a key that was issued elsewhere, in bytes: shorter is guessable, longer is no key.
const FOREIGN_LENGTH_BYTES: std::ops::RangeInclusive<usize> = 16..=256;

/// A whole API key, the secret itself. It cannot be printed, logged or serialised; see
/// [`PlainKey::reveal`].
#[derive(Clone, PartialEq, Eq)]
pub struct PlainKey(String);

/// What was presented cannot be a key. The text is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedKey {
    /// Begins like a key of ours, but its length or alphabet is off.
    #[error("the key's shape is wrong")]
    Shape,
    /// Has the shape of a key of ours, but the checksum does not fit.
    #[error("the key's checksum is wrong")]
    Checksum,
    /// Neither a key of ours nor a bearer token of 16 to 256 characters.
    #[error("not a bearer token")]
    NotAToken,
}

impl PlainKey {
    /// A new key.
    ///
    /// # Errors
    /// [`RandomUnavailable`] when there are no random bytes.
    pub fn generate(random: &dyn Random) -> Result<Self, RandomUnavailable> {
        let mut text = String::from(PREFIX);
        let mut bytes = [0_u8; 64];
        while text.len() < PREFIX.len() + SECRET_CHARS {
            random.fill(&mut bytes)?;
            // 248 is the largest multiple of 62 in a byte: what lies above would favour some letters.
            let letters = bytes.iter().filter(|byte| **byte < 248);
            let missing = PREFIX.len() + SECRET_CHARS - text.len();
            text.extend(
                letters
                    .take(missing)
                    .map(|b| char::from(BASE62[usize::from(b % 62)])),
            );
        }
        text.push_str(&checksum(&text));
        Ok(Self(text))
    }

    /// Takes what a caller presented.
    ///
    /// # Errors
    /// [`MalformedKey`] when it cannot be a key; the store need not be asked then.
    pub fn parse(presented: &str) -> Result<Self, MalformedKey> {
        if let Some(rest) = presented.strip_prefix(PREFIX) {
            if rest.len() != SECRET_CHARS + CHECKSUM_CHARS
                || !rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
            {
                return Err(MalformedKey::Shape);
            }
            let (body, sum) = presented.split_at(PREFIX.len() + SECRET_CHARS);
            if checksum(body) != sum {
                return Err(MalformedKey::Checksum);
            }
        } else if !FOREIGN_LENGTH_BYTES.contains(&presented.len())
            || !presented.bytes().all(is_token_character)
        {
            return Err(MalformedKey::NotAToken);
        }
        Ok(Self(presented.to_owned()))
    }

    /// The secret text. Call it only to show a new key to its owner, once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The hash under which the key's record is stored.
    #[must_use]
    pub fn hash(&self) -> KeyHash {
        KeyHash(to_hex(&Sha256::digest(self.0.as_bytes())))
    }

    /// What people recognise the key by, `rgl_abc…xyz`: 6 of 49 secret characters.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        match self.0.strip_prefix(PREFIX) {
            Some(rest) if rest.len() == SECRET_CHARS + CHECKSUM_CHARS => {
                format!("{PREFIX}{}…{}", &rest[..3], &rest[rest.len() - 3..])
            }
            _ => self.hash().fingerprint(),
        }
    }
}

impl fmt::Debug for PlainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlainKey(secret)")
    }
}

/// Begins the fingerprints of records that belong to an OAuth subject and to no key.
pub(crate) const SUBJECT_FINGERPRINT_PREFIX: &str = "oauth:";

/// SHA-256 of a whole key, 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyHash(String);

/// The text is not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected the SHA-256 of a key: 64 lower-case hexadecimal digits")]
pub struct InvalidKeyHash;

impl KeyHash {
    /// Where the grant record of an OAuth subject is stored: no key has this hash.
    #[must_use]
    pub fn of_subject(issuer: &str, subject: &str) -> Self {
        // The line break keeps "a" + "bc" and "ab" + "c" apart; no issuer has one.
        Self(to_hex(&Sha256::digest(format!(
            "oauth:{issuer}\n{subject}"
        ))))
    }

    /// The hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What people recognise the grant record of an OAuth subject by: no key has such a fingerprint.
    #[must_use]
    pub fn subject_fingerprint(&self) -> String {
        format!("{SUBJECT_FINGERPRINT_PREFIX}{}", &self.0[..12])
    }

    /// The first twelve digits: enough to see that two refused requests used the same key.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        format!("sha256:{}", &self.0[..12])
    }
}

impl TryFrom<String> for KeyHash {
    type Error = InvalidKeyHash;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 64 && text.bytes().all(digit) {
            Ok(Self(text))
        } else {
            Err(InvalidKeyHash)
        }
    }
}

impl From<KeyHash> for String {
    fn from(hash: KeyHash) -> Self {
        hash.0
    }
}

/// The fingerprint of something that was presented as a key and is none.
#[must_use]
pub fn fingerprint_of_unknown(presented: &str) -> String {
    KeyHash(to_hex(&Sha256::digest(presented.as_bytes()))).fingerprint()
}

/// `b64token` of RFC 6750 §2.1.
pub(crate) const fn is_token_character(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
}

fn checksum(text: &str) -> String {
    let mut rest = crc32fast::hash(text.as_bytes()) as usize;
    let mut letters = [b'0'; CHECKSUM_CHARS];
    for letter in letters.iter_mut().rev() {
        *letter = BASE62[rest % 62];
        rest /= 62;
    }
    letters.map(char::from).iter().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::SequenceRandom;

    fn key(seed: u64) -> PlainKey {
        PlainKey::generate(&SequenceRandom::seeded(seed)).unwrap()
    }

    #[test]
    fn a_new_key_has_the_documented_shape_and_is_accepted() {
        let text = key(7).reveal().to_owned();
        assert_eq!(text.len(), 4 + 43 + 6);
        assert!(text.starts_with("rgl_"));
        assert_eq!(PlainKey::parse(&text), Ok(key(7)));
        assert_ne!(key(7), key(8));
    }

    #[test]
    fn a_key_cannot_be_printed() {
        let key = key(7);
        assert_eq!(format!("{key:?}"), "PlainKey(secret)");
        assert_eq!(
            format!("{:#?}", Some(&key)),
            "Some(\n    PlainKey(secret),\n)"
        );
    }

    #[test]
    fn a_fingerprint_shows_six_characters_of_the_secret() {
        let key = key(7);
        let (text, fingerprint) = (key.reveal(), key.fingerprint());
        assert_eq!(fingerprint, format!("rgl_{}…{}", &text[4..7], &text[50..]));
    }

    #[test]
    fn a_foreign_key_is_taken_when_it_is_a_bearer_token_of_sane_length() {
        assert!(PlainKey::parse("mk_test_0123456789abcdef").is_ok());
        let long = "x".repeat(257);
        for bad in [
            "",
            "short",
            "with a space in the middle",
            "ключ-ключ-ключ-ключ",
            &long,
        ] {
            assert_eq!(PlainKey::parse(bad), Err(MalformedKey::NotAToken), "{bad}");
        }
    }

    #[test]
    fn a_hash_is_sixty_four_lower_case_digits() {
        let hash = key(7).hash();
        assert_eq!(
            KeyHash::try_from(hash.as_str().to_owned()),
            Ok(hash.clone())
        );
        for bad in [
            hash.as_str().to_uppercase(),
            hash.as_str()[1..].to_owned(),
            String::new(),
        ] {
            assert_eq!(KeyHash::try_from(bad), Err(InvalidKeyHash));
        }
        assert!(
            hash.as_str()
                .starts_with(&hash.fingerprint()["sha256:".len()..])
        );
    }

    proptest! {
        #[test]
        fn one_changed_character_is_refused_without_asking_the_store(
            seed in any::<u64>(), position in 4_usize..53, letter in 0_usize..62,
        ) {
            let good = key(seed).reveal().to_owned();
            let mut bad = good.clone().into_bytes();
            bad[position] = BASE62[letter];
            let bad = String::from_utf8(bad).unwrap();
            prop_assume!(bad != good);
            prop_assert_eq!(PlainKey::parse(&bad), Err(MalformedKey::Checksum));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".*") {
            let _ = PlainKey::parse(&text);
            let _ = PlainKey::parse(&format!("rgl_{text}"));
        }
    }
}
