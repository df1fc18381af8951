//! The rules' data: the tables that the build makes of `rules.toml`.

use crate::Rule;
use crate::lexeme::LexemeSet;

/// Longest pattern in tokens, gaps included.
pub(crate) const MAX_PATTERN_TOKENS: usize = 48;
/// Most elements of one pattern.
pub(crate) const MAX_PATTERN_ELEMENTS: usize = 8;

/// The token is the first one of its line.
pub(crate) const LINE_START: u16 = 1;
/// The token begins a clause, but for words like "please" and "you must".
pub(crate) const CLAUSE_START: u16 = 1 << 1;
/// The token stands behind an opening bracket.
pub(crate) const OPENED: u16 = 1 << 2;
/// A colon follows.
pub(crate) const COLON: u16 = 1 << 3;
/// A closing bracket follows, which is not the end of a Markdown link's text.
pub(crate) const CLOSED: u16 = 1 << 4;
/// A quote and a colon follow: a key of a JSON object.
pub(crate) const KEY: u16 = 1 << 5;
/// No negation stands directly in front.
pub(crate) const NOT_NEGATED: u16 = 1 << 6;
/// A sentence ends between the token before and this one.
pub(crate) const SENTENCE_START: u16 = 1 << 7;

/// A sequence of concepts that makes a finding.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// The rule that the finding is reported under.
    pub rule: Rule,
    /// What it is, for the report.
    pub detail: &'static str,
    /// The sequence.
    pub elements: &'static [Element],
}

/// One place of a [`Pattern`].
#[derive(Debug)]
pub(crate) struct Element {
    /// The token must be one of these.
    pub lexemes: LexemeSet,
    /// How many tokens may stand between the element before and this one.
    pub gap: u8,
    /// Whether a sentence may end in between.
    pub crosses: bool,
    /// What else must hold: the flags above, joined by "or".
    pub flags: u16,
}

/// What the build makes of `rules.toml`: `PATTERNS` in the order of the data; `LEAD` and `NOT`, the
/// lexemes of two concepts; `ROLE_TAGS` (sorted), `HIDING_STYLES`; `FOLDED`, what each letter from U+0080
/// on folds to, 0 if not to one character; the word table (`LEXEME_COUNT`, `NO_CONCEPT`, `WORDS`, `SLOTS`,
/// `MIDDLES`, `BEGINNINGS`, `TRIPLES`, `STEMS`, `STEM_STARTS`, `KEY_WORDS`, and as sets of these `KEYS_BY_START`,
/// `KEYS_BY_END` and `KEYS_BY_LENGTH`); `EXAMPLES` for the tests: entry, rule, text, whether it is found.
#[expect(clippy::unreadable_literal, reason = "generated")]
mod tables {
    use super::{
        CLAUSE_START, CLOSED, COLON, Element, KEY, LINE_START, NOT_NEGATED, OPENED, Pattern,
    };
    use crate::Rule;
    use crate::hash::{BEGINNING_TRIPLES, Ends, LETTER_PAIRS};
    use crate::lexeme::LexemeSet;
    use crate::lexicon::{KeyWord, Stem, Word};

    include!(concat!(env!("OUT_DIR"), "/rules.rs"));
}

pub(crate) use tables::*;

#[cfg(test)]
mod tests {
    use raglan_texts::Language;

    use super::*;
    use crate::scan::guard;

    #[test]
    fn every_example_is_found_by_its_rule_and_no_counter_example_is() {
        let mut wrong = Vec::new();
        for (id, rule, text, expected) in EXAMPLES {
            let (_, findings) = guard(text, Language::English);
            if findings.iter().any(|finding| finding.rule == *rule) != *expected {
                let found: Vec<_> = findings
                    .iter()
                    .map(|f| (f.rule.id(), f.matched.as_str()))
                    .collect();
                wrong.push(format!(
                    "{id}: {text:?} expected {expected}, found {found:?}"
                ));
            }
        }
        assert!(
            wrong.is_empty(),
            "{} wrong:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    }

    #[test]
    fn every_detail_is_reported_for_an_example() {
        for pattern in PATTERNS {
            let reported = |text| {
                crate::tokens::find(text, &[])
                    .iter()
                    .any(|hit| hit.detail == pattern.detail)
            };
            assert!(
                EXAMPLES.iter().any(|(_, _, text, _)| reported(text)),
                "{}",
                pattern.detail
            );
        }
    }
}
