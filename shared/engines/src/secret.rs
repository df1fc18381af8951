//! A text that is never shown.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The credential of an engine. It cannot be printed, and it is compared by its SHA-256.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Takes a secret; white space around it (the line break at the end of a file) is not part of it.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Whether nothing is left of it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The secret itself, for the one header that needs it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// `text` with the secret blackened, for engines that repeat it in their messages.
    pub(crate) fn blacken(&self, text: &str) -> String {
        if self.is_empty() {
            return text.to_owned();
        }
        text.replace(&self.0, "(secret)")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        Sha256::digest(&self.0) == Sha256::digest(&other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_cannot_be_printed() {
        let secret = Secret::new("sk-very-secret\n");
        assert_eq!(format!("{secret:?}"), "Secret(not shown)");
        assert_eq!(
            secret.blacken("Incorrect API key provided: sk-very-secret."),
            "Incorrect API key provided: (secret)."
        );
        assert_eq!(secret, Secret::new("sk-very-secret"));
    }
}
