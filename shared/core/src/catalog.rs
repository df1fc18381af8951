//! The catalogue: which knowledge bases there are and which backend answers for each.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// The identifier of a knowledge base: 1 to 64 of `a-z 0-9 _ -`, the first one a letter or a digit.
///
/// The narrow alphabet keeps identifiers usable as folder names, URI parts and table keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KnowledgeBaseId(String);

/// The text cannot be the identifier of a knowledge base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a knowledge base id is 1 to 64 characters of a-z, 0-9, '_' and '-', starting with a letter or a digit"
)]
pub struct InvalidKnowledgeBaseId;

impl KnowledgeBaseId {
    /// Longest identifier, in characters.
    pub const MAX_CHARS: usize = 64;

    /// Checks the alphabet and the length.
    ///
    /// # Errors
    /// [`InvalidKnowledgeBaseId`] when either is off.
    pub fn parse(text: &str) -> Result<Self, InvalidKnowledgeBaseId> {
        let inner = |c: &u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        let first = text
            .as_bytes()
            .first()
            .is_some_and(u8::is_ascii_alphanumeric);
        if first && text.len() <= Self::MAX_CHARS && text.as_bytes().iter().all(inner) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidKnowledgeBaseId)
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for KnowledgeBaseId {
    type Error = InvalidKnowledgeBaseId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<KnowledgeBaseId> for String {
    fn from(id: KnowledgeBaseId) -> Self {
        id.0
    }
}

impl fmt::Display for KnowledgeBaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which engine answers for a knowledge base, and under which name that engine knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendReference {
    /// The engine: `embedded`, or the name of another configured engine.
    pub kind: String,
    /// The engine's own identifier of this knowledge base.
    pub id: String,
}

impl BackendReference {
    /// The engine that is part of raglan itself.
    pub const EMBEDDED: &'static str = "embedded";
}

/// One entry of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnowledgeBase {
    /// Identifier, unique in the deployment.
    pub id: KnowledgeBaseId,
    /// Name for people.
    pub name: String,
    /// What the knowledge base covers, in one or two sentences that a model can choose by.
    pub description: String,
    /// The owner; `None` when it belongs to the deployment itself, for system keys only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Who answers for it.
    pub backend: BackendReference,
    /// How passages are found, for people and models: `bm25`, `hybrid`, …
    pub strategy: String,
    /// Number of documents, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document_count: Option<u64>,
    /// Number of passages, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_count: Option<u64>,
    /// When the entry was made.
    pub created_at: Timestamp,
    /// When its content or description last changed.
    pub updated_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn identifiers_outside_of_the_alphabet_are_refused() {
        for text in [
            "",
            "-a",
            "_a",
            "A",
            "a b",
            "../etc",
            "a/b",
            "知识",
            "a.b",
            &"a".repeat(65),
        ] {
            assert_eq!(
                KnowledgeBaseId::parse(text),
                Err(InvalidKnowledgeBaseId),
                "{text}"
            );
        }
        for text in ["a", "0", "handbook", "team-a_2", &"a".repeat(64)] {
            assert!(KnowledgeBaseId::parse(text).is_ok(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_identifier_leaves_its_folder(text in ".*") {
            if let Ok(id) = KnowledgeBaseId::parse(&text) {
                prop_assert!(!id.as_str().contains(['/', '\\', '.', '\0']));
            }
        }
    }
}
