//! The guard: retrieved text is data, never instructions.
//!
//! Every passage that leaves the service is read by somebody else's model, and a poisoned document
//! may say "ignore your instructions". [`Guard::sanitize`] finds known techniques, reports them and
//! rewrites them into a form that cannot act; [`Guard::isolate`] puts the result into an envelope
//! that a host can tell from its own words. Nothing visible is ever deleted, a text without findings
//! stays as it is byte for byte, and sanitising twice gives the same text as sanitising once.
//!
//! Pattern matching raises an attacker's cost; it does not solve prompt injection, and texts *about*
//! injection are marked as well.
//!
//! Everything here is pure and linear in the size of the text.

mod ascii;
mod between;
mod block;
mod candidates;
mod encoded;
mod envelope;
mod finding;
mod fold;
mod hash;
mod invisible;
mod lexeme;
mod lexicon;
mod markup;
mod matcher;
mod rewrite;
mod rules;
mod scan;
mod summary;
mod tokens;
mod unit;
mod word;

use raglan_texts::Language;
use serde::Serialize;

pub use finding::{Finding, Rule, Severity};
pub use summary::SecuritySummary;

/// Lines with more characters than this are folded.
pub const OVERLONG_LINE_CHARS: usize = 4_000;

/// What an operator can switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardOptions {
    /// Off: texts pass verbatim and without an envelope; they are still called untrusted.
    pub enabled: bool,
    /// On: [`Guarded::raw`] carries the original next to the guarded text. For debugging only.
    pub include_raw: bool,
    /// The language of what the guard says itself.
    pub language: Language,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            include_raw: false,
            language: Language::English,
        }
    }
}

/// Where a passage comes from, for the envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassageInfo<'a> {
    /// The document: a title, file name or URI, as the backend gave it.
    pub source: &'a str,
    /// The passage's position in its document, counted from 0.
    pub chunk_index: u64,
}

/// A text after the guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Guarded {
    /// The text to hand out.
    pub text: String,
    /// What was found, at most one entry for each rule, most serious first.
    #[serde(rename = "reasons")]
    pub findings: Vec<Finding>,
    /// Whether anything was found.
    pub suspicious: bool,
    /// The original text, when [`GuardOptions::include_raw`] is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
}

impl Guarded {
    /// The most serious severity among the findings.
    #[must_use]
    pub fn severity(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// Finds and neutralises instructions in texts that come from documents.
#[derive(Debug, Clone, Copy, Default)]
pub struct Guard {
    options: GuardOptions,
}

impl Guard {
    /// A guard with the given switches.
    #[must_use]
    pub const fn new(options: GuardOptions) -> Self {
        Self { options }
    }

    /// Neutralises `text`, without an envelope: for titles, file names, URIs, metadata, headings and
    /// error texts.
    #[must_use]
    pub fn sanitize(&self, text: &str) -> Guarded {
        let (rewritten, findings) = if self.options.enabled {
            scan::guard(text, self.options.language)
        } else {
            (None, Vec::new())
        };
        self.guarded(text, rewritten.unwrap_or_else(|| text.to_owned()), findings)
    }

    fn guarded(self, original: &str, text: String, findings: Vec<Finding>) -> Guarded {
        Guarded {
            text,
            suspicious: !findings.is_empty(),
            findings,
            raw: self.options.include_raw.then(|| original.to_owned()),
        }
    }

    /// Neutralises `text` and wraps it in the envelope.
    ///
    /// `nonce` must be random and new for every call of a tool: whoever wrote the passage must not
    /// be able to know it. Only its ASCII letters and digits are used.
    #[must_use]
    pub fn isolate(&self, passage: &PassageInfo<'_>, text: &str, nonce: &str) -> Guarded {
        let source = self.sanitize(passage.source);
        self.isolate_from(&source, passage.chunk_index, text, nonce)
    }

    /// The same where the source, which passages of one document share, was neutralised already.
    #[must_use]
    pub fn isolate_from(
        &self,
        source: &Guarded,
        chunk_index: u64,
        text: &str,
        nonce: &str,
    ) -> Guarded {
        if !self.options.enabled {
            return self.sanitize(text);
        }
        let language = self.options.language;
        let (rewritten, findings) = scan::guard(text, language);
        let neutral = rewritten.as_deref().unwrap_or(text);
        let wrapped = envelope::wrap(
            neutral,
            &findings,
            &source.text,
            chunk_index,
            nonce,
            language,
        );
        self.guarded(text, wrapped, findings)
    }
}
