//! The small object that names the archive that answers.

use std::fmt;

use raglan_core::clock::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Version of [`Pointer`] and of the archive's format.
const FORMAT_VERSION: u32 = 1;

/// SHA-256 of an archive's bytes; shown as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ArchiveDigest([u8; 32]);

/// The text is no SHA-256 in lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 64 lower-case hexadecimal digits")]
pub struct InvalidDigest;

impl ArchiveDigest {
    pub(crate) fn of(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads what [`fmt::Display`] writes, and nothing else: it becomes part of a path.
    ///
    /// # Errors
    /// [`InvalidDigest`]
    pub fn parse(text: &str) -> Result<Self, InvalidDigest> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        if text.len() != 64 {
            return Err(InvalidDigest);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let high = digit(pair[0]).ok_or(InvalidDigest)?;
            let low = digit(pair[1]).ok_or(InvalidDigest)?;
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for ArchiveDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ArchiveDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for ArchiveDigest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        Self::parse(&text)
    }
}

impl From<ArchiveDigest> for String {
    fn from(digest: ArchiveDigest) -> Self {
        digest.to_string()
    }
}

/// Which archive answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    format_version: u32,
    /// The archive, and its name.
    pub archive_sha256: ArchiveDigest,
    /// Its size.
    pub archive_bytes: u64,
    /// The size of the files in it.
    pub unpacked_bytes: u64,
    /// When it was published.
    pub published_at: Timestamp,
}

/// The object is no pointer that this version of raglan reads.
#[derive(Debug, thiserror::Error)]
pub enum PointerError {
    /// Not the JSON that was expected.
    #[error("its pointer is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// Written by another version of raglan.
    #[error("its pointer has format {found}, this version of raglan reads format {FORMAT_VERSION}")]
    Format {
        /// The pointer's format.
        found: u32,
    },
}

/// The part of a pointer that every version has.
#[derive(Deserialize)]
struct Header {
    format_version: u32,
}

impl Pointer {
    /// A pointer to this archive.
    #[must_use]
    pub const fn new(
        archive_sha256: ArchiveDigest,
        archive_bytes: u64,
        unpacked_bytes: u64,
        published_at: Timestamp,
    ) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            archive_sha256,
            archive_bytes,
            unpacked_bytes,
            published_at,
        }
    }

    /// Reads the object.
    ///
    /// # Errors
    /// [`PointerError`]
    pub fn read(json: &[u8]) -> Result<Self, PointerError> {
        let Header { format_version } = serde_json::from_slice(json)?;
        if format_version != FORMAT_VERSION {
            return Err(PointerError::Format {
                found: format_version,
            });
        }
        Ok(serde_json::from_slice(json)?)
    }

    /// Writes the object.
    ///
    /// # Errors
    /// Never for what [`Pointer::new`] makes.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pointer_is_read_as_it_was_written_and_other_formats_are_refused_by_number() {
        let digest = ArchiveDigest::of(Sha256::new_with_prefix("an index"));
        let pointer = Pointer::new(digest, 7, 70, Timestamp::from_epoch_ms(1));
        let json = pointer.to_json().unwrap();
        assert_eq!(Pointer::read(&json).unwrap(), pointer);
        let other = br#"{"format_version":2,"anything":true}"#;
        assert!(matches!(
            Pointer::read(other),
            Err(PointerError::Format { found: 2 })
        ));
        assert!(matches!(
            Pointer::read(b"<html>"),
            Err(PointerError::Damaged(_))
        ));
    }

    proptest! {
        #[test]
        fn a_digest_is_its_text_and_no_other_text_is_a_digest(
            bytes: [u8; 32], text in "[./0-9a-fA-F]{60,66}",
        ) {
            let digest = ArchiveDigest(bytes);
            prop_assert_eq!(ArchiveDigest::parse(&digest.to_string()), Ok(digest));
            if let Ok(digest) = ArchiveDigest::parse(&text) {
                prop_assert_eq!(digest.to_string(), text);
            }
        }
    }
}
