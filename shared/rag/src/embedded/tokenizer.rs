//! Turns text into index terms and query terms.
//!
//! Chinese, Japanese and Korean are indexed as single characters and as pairs of neighbours
//! (bigrams), which needs no dictionary, costs nothing at start-up and finds words that no
//! dictionary has. A passage is found by a pair, or by a character that stands alone in the query;
//! the other characters only help to order what was found.
//!
//! An English word is found by its stem, in any of its forms; the form that the query has adds a
//! little to the score.

use std::collections::HashSet;

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

use crate::runs::{Run, runs};
use crate::stem::english_stem;
use crate::stop_words::is_stop_word;

/// Name and version: an index made with another one cannot be searched with this one.
pub const NAME: &str = "cjk-unigram-bigram-english-stem/2";

/// Longer words are cut, in the index and in the query alike.
const WORD_MAX_CHARS: usize = 64;

/// No query needs more distinct terms of a kind; each of them costs time.
const QUERY_MAX_TERMS: usize = 256;

/// The part of a query that is looked at, in characters.
const QUERY_MAX_CHARS: usize = 20_000;

/// The terms under which `text` is found, repeated as often as they occur.
#[must_use]
pub fn index_terms(text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    for run in runs(text) {
        match run {
            Run::Word(word) => {
                let word = bounded(word);
                let stem = english_stem(&word);
                terms.push(word);
                terms.extend(stem);
            }
            Run::Cjk(characters) => {
                terms.extend(characters.iter().map(char::to_string));
                terms.extend(
                    characters
                        .windows(2)
                        .map(|pair| pair.iter().collect::<String>()),
                );
            }
        }
    }
    terms
}

/// What a query asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryTerms {
    /// A passage must hold one of these: words or their stems, pairs of characters, characters that
    /// stand alone.
    pub words: Vec<String>,
    /// The same for words that make up any question ("the", "what").
    pub small_words: Vec<String>,
    /// The words whose stems are asked for, as they were written: they add to the score of what was
    /// found.
    pub forms: Vec<String>,
    /// The characters of the pairs: they add to the score of what was found.
    pub characters: Vec<String>,
}

/// The distinct terms of `query`, in the order of their first occurrence, at most 256 of a kind.
#[must_use]
pub fn query_terms(query: &str) -> QueryTerms {
    let end = query
        .char_indices()
        .nth(QUERY_MAX_CHARS)
        .map_or(query.len(), |(at, _)| at);
    let [mut words, mut small_words, mut forms, mut characters] = <[Distinct; 4]>::default();
    for run in runs(&query[..end]) {
        match run {
            Run::Word(word) => {
                let word = bounded(word);
                let kind = if is_stop_word(&word) {
                    &mut small_words
                } else {
                    &mut words
                };
                match english_stem(&word) {
                    Some(stem) => {
                        kind.add(stem);
                        forms.add(word);
                    }
                    None => kind.add(word),
                }
            }
            Run::Cjk(run) if run.len() == 1 => words.add(run[0].to_string()),
            Run::Cjk(run) => {
                for pair in run.windows(2) {
                    words.add(pair.iter().collect());
                }
                for character in run {
                    characters.add(character.to_string());
                }
            }
        }
    }
    QueryTerms {
        words: words.terms,
        small_words: small_words.terms,
        forms: forms.terms,
        characters: characters.terms,
    }
}

/// The first distinct terms.
#[derive(Default)]
struct Distinct {
    terms: Vec<String>,
    seen: HashSet<String>,
}

impl Distinct {
    fn add(&mut self, term: String) {
        if self.terms.len() < QUERY_MAX_TERMS && self.seen.insert(term.clone()) {
            self.terms.push(term);
        }
    }
}

fn bounded(mut word: String) -> String {
    if let Some((end, _)) = word.char_indices().nth(WORD_MAX_CHARS) {
        word.truncate(end);
    }
    word
}

/// [`index_terms`] as tantivy asks for them. Offsets are not kept: nothing reads them.
#[derive(Debug, Clone, Copy, Default)]
pub struct CjkTokenizer;

impl Tokenizer for CjkTokenizer {
    type TokenStream<'a> = TermStream;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> TermStream {
        TermStream {
            terms: index_terms(text).into_iter(),
            token: Token::default(),
        }
    }
}

/// The tokens of one text.
#[derive(Debug)]
pub struct TermStream {
    terms: std::vec::IntoIter<String>,
    token: Token,
}

impl TokenStream for TermStream {
    fn advance(&mut self) -> bool {
        let Some(term) = self.terms.next() else {
            return false;
        };
        self.token.position = self.token.position.wrapping_add(1);
        self.token.text = term;
        true
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn chinese_is_indexed_as_characters_and_pairs_and_asked_for_as_pairs() {
        assert_eq!(index_terms("报销单"), ["报", "销", "单", "报销", "销单"]);
        assert_eq!(query_terms("税").words, ["税"]);
        let terms = query_terms("SQS报销单 sqs");
        assert_eq!(terms.words, ["sqs", "报销", "销单"]);
        assert_eq!(terms.characters, ["报", "销", "单"]);
    }

    #[test]
    fn english_words_are_found_by_their_stem_in_any_form() {
        assert_eq!(index_terms("Refunds v2s"), ["refunds", "refund", "v2s"]);
        let terms = query_terms("those were refunded");
        assert_eq!(terms.words, ["refund"]);
        assert_eq!(terms.small_words, ["those", "were"]);
        assert_eq!(terms.forms, ["refunded"]);
    }

    #[test]
    fn a_huge_query_is_bounded() {
        let words: String = (0..100_000)
            .flat_map(|n| ["w".to_owned(), n.to_string(), " ".to_owned()])
            .collect();
        assert_eq!(query_terms(&words).words.len(), QUERY_MAX_TERMS);
        assert_eq!(
            query_terms(&"x".repeat(1 << 20)).words,
            ["x".repeat(WORD_MAX_CHARS)]
        );
    }

    proptest! {
        #[test]
        fn every_query_term_of_a_text_is_among_its_index_terms(text in "\\PC{0,200}") {
            let index = index_terms(&text);
            let terms = query_terms(&text);
            let all = [terms.words, terms.small_words, terms.forms, terms.characters].concat();
            for term in &all {
                prop_assert!(index.contains(term), "{term}");
            }
        }
    }
}
