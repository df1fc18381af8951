//! Tamper evidence: the events of one key and one day form a hash chain, and the ends of a day's chains
//! are sealed in a root that is kept apart from them.
//!
//! Each stored record says its place in the chain ([`SEQUENCE`]), the hash of the record before it
//! ([`PREVIOUS`]) and its own ([`HASH`]). The hash is SHA-256 over the canonical form of everything else
//! that is stored with it, so no attribute can change unnoticed, not even the one by which a record
//! expires. [`verify`] finds what was altered, removed, added or moved, as far as the chain's head and
//! the day's roots bear witness.

mod canonical;
mod day;
mod root;
mod verify;

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::ids::to_hex;

pub use self::day::{DayWitnesses, RootFault};
pub use self::root::{ChainEnd, DayRoot, ROOT_SCHEMA_VERSION};
pub use self::verify::{ChainRecord, Fault, Witness, verify};

/// Attribute: the record's place in its chain; the first one has 1.
pub const SEQUENCE: &str = "chain_sequence";
/// Attribute: the hash of the record before it; zeros for the first one.
pub const PREVIOUS: &str = "chain_previous";
/// Attribute: the record's own hash.
pub const HASH: &str = "chain_hash";

/// What is hashed begins with its kind, so that a record can never pass for a root.
const RECORD_DOMAIN: &[u8] = b"raglan audit record 1\n";

/// A SHA-256 value; written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// The text is not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 64 lower-case hexadecimal digits")]
pub struct InvalidDigest;

impl Digest {
    /// What comes before the first record.
    pub const ZERO: Self = Self([0; 32]);

    /// Reads the hexadecimal form.
    ///
    /// # Errors
    /// [`InvalidDigest`]
    pub fn parse(text: &str) -> Result<Self, InvalidDigest> {
        let mut bytes = [0_u8; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(InvalidDigest);
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Ok(Self(bytes))
    }

    fn of(domain: &[u8], fields: &Map<String, Value>, without: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(domain);
        hasher.update(canonical::object(fields, Some(without)));
        Self(hasher.finalize().into())
    }
}

const fn nibble(digit: u8) -> Result<u8, InvalidDigest> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(InvalidDigest),
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

/// How far a chain reaches: its last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The last record's place, which is also the number of records.
    pub sequence: u64,
    /// The last record's hash.
    pub hash: Digest,
}

impl Head {
    /// A chain without records.
    pub const START: Self = Self {
        sequence: 0,
        hash: Digest::ZERO,
    };
}

/// Makes `fields`, which are everything that will be stored, the next record of a chain. Returns the
/// chain's new head.
pub fn link(fields: &mut Map<String, Value>, head: Head) -> Head {
    let sequence = head.sequence + 1;
    fields.insert(SEQUENCE.to_owned(), sequence.into());
    fields.insert(PREVIOUS.to_owned(), head.hash.to_string().into());
    let hash = hash_of(fields);
    fields.insert(HASH.to_owned(), hash.to_string().into());
    Head { sequence, hash }
}

/// The hash of a record, whatever hash it claims.
#[must_use]
pub fn hash_of(fields: &Map<String, Value>) -> Digest {
    Digest::of(RECORD_DOMAIN, fields, HASH)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    pub(super) fn record(id: u64) -> Map<String, Value> {
        let fields = json!({"event_id": format!("event-{id}"), "n": id, "text": "日本"});
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn a_record_carries_its_place_and_the_hash_of_the_one_before() {
        let (mut first, mut second) = (record(1), record(2));
        let head = link(&mut first, Head::START);
        let next = link(&mut second, head);
        assert_eq!((head.sequence, next.sequence), (1, 2));
        assert_eq!(first[PREVIOUS], "0".repeat(64));
        assert_eq!(second[PREVIOUS], first[HASH]);
        assert_eq!(second[HASH], next.hash.to_string());
    }

    /// Whoever verifies with another program needs this value to stay.
    #[test]
    fn the_hash_is_the_documented_one() {
        let mut fields = Map::new();
        fields.insert("b".to_owned(), json!([1, 2.50, null, {"z": 1, "a": "é\n"}]));
        fields.insert("a".to_owned(), json!(true));
        let head = link(&mut fields, Head::START);
        let text = format!(
            "raglan audit record 1\n{{\"a\":true,\"b\":[1,2.5,null,{{\"a\":\"é\\n\",\"z\":1}}],\
             \"chain_previous\":\"{}\",\"chain_sequence\":1}}",
            Digest::ZERO
        );
        let expected: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        assert_eq!(head.hash, Digest(expected));
    }

    #[test]
    fn digests_are_read_as_they_are_written_and_nothing_else_is() {
        let digest = hash_of(&record(1));
        assert_eq!(Digest::parse(&digest.to_string()), Ok(digest));
        let upper = digest.to_string().to_uppercase();
        for bad in ["", "00", &upper, &"g".repeat(64), &"0".repeat(65)] {
            assert_eq!(Digest::parse(bad), Err(InvalidDigest), "{bad}");
        }
    }
}
