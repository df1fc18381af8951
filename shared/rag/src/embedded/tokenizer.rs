//! Turns text into index terms and query terms.
//!
//! Chinese, Japanese and Korean are indexed as single characters and as pairs of neighbours
//! (bigrams), which needs no dictionary, costs nothing at start-up and finds words that no
//! dictionary has. A query uses the pairs only, and the single character where it stands alone.

use std::collections::HashSet;

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

use crate::runs::{Run, runs};

/// Name and version: an index made with another one cannot be searched with this one.
pub const NAME: &str = "cjk-unigram-bigram/1";

/// Longer words are cut, in the index and in the query alike.
const WORD_MAX_CHARS: usize = 64;

/// No query needs more distinct terms; each of them costs time.
const QUERY_MAX_TERMS: usize = 256;

/// The part of a query that is looked at, in characters.
const QUERY_MAX_CHARS: usize = 20_000;

/// The terms under which `text` is found, repeated as often as they occur.
#[must_use]
pub fn index_terms(text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    for run in runs(text) {
        match run {
            Run::Word(word) => terms.push(bounded(word)),
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

/// The distinct terms that `query` asks for, in the order of their first occurrence, at most 256.
#[must_use]
pub fn query_terms(query: &str) -> Vec<String> {
    let end = query
        .char_indices()
        .nth(QUERY_MAX_CHARS)
        .map_or(query.len(), |(at, _)| at);
    let mut seen = HashSet::new();
    runs(&query[..end])
        .flat_map(|run| match run {
            Run::Word(word) => vec![bounded(word)],
            Run::Cjk(characters) if characters.len() == 1 => vec![characters[0].to_string()],
            Run::Cjk(characters) => characters
                .windows(2)
                .map(|pair| pair.iter().collect())
                .collect(),
        })
        .filter(|term| seen.insert(term.clone()))
        .take(QUERY_MAX_TERMS)
        .collect()
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
        assert_eq!(query_terms("报销单"), ["报销", "销单"]);
        assert_eq!(query_terms("税"), ["税"]);
        assert_eq!(query_terms("SQS队列 sqs"), ["sqs", "队列"]);
    }

    #[test]
    fn a_huge_query_is_bounded() {
        let words: String = (0..100_000).map(|n| format!("word{n} ")).collect();
        assert_eq!(query_terms(&words).len(), QUERY_MAX_TERMS);
        assert_eq!(
            query_terms(&"x".repeat(1 << 20)),
            ["x".repeat(WORD_MAX_CHARS)]
        );
    }

    proptest! {
        #[test]
        fn every_query_term_of_a_text_is_among_its_index_terms(text in "\\PC{0,200}") {
            let index = index_terms(&text);
            for term in query_terms(&text) {
                prop_assert!(index.contains(&term), "{term}");
            }
        }
    }
}
