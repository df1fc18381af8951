//! What stays English, and why.

/// A sentence, or all sentences of a file.
pub struct Exception {
    /// The file, from the repository's root; for [`FILES`] also the beginning of several.
    pub file: &'static str,
    /// The sentence.
    pub text: &'static str,
}

/// Files in which nothing is said to people or models. The reason stands above each.
pub const FILES: &[Exception] = &[];

/// Sentences that no person and no model reads. The reason stands above each.
pub const SENTENCES: &[Exception] = &[];
