//! Finds the patterns of the rules' data in a stream of tokens.
//!
//! Tokens are looked at in blocks of 128. For each lexeme a 128-bit word says which tokens of the block
//! it is, and a pattern is matched for all positions of the block at once with shifts and conjunctions, in the manner of Shift-And (Baeza-Yates and Gonnet 1992). The work for a block
//! has a fixed bound, so the whole is linear in the number of tokens whatever they are.

use std::ops::Range;

use crate::Rule;
use crate::block::Block;
use crate::candidates::Candidates;
use crate::lexeme::{Lexeme, LexemeSet, Spelling};
use crate::rules::{LINE_START, MAX_PATTERN_TOKENS, Pattern};

/// Tokens in a block.
pub(crate) const BLOCK_TOKENS: usize = 128;
/// Tokens by which one block is ahead of the one before. A match that begins in the first
/// `ADVANCE_TOKENS` of a block lies wholly inside it.
const ADVANCE_TOKENS: usize = BLOCK_TOKENS - MAX_PATTERN_TOKENS;
/// Long words in another spelling that make it worth while to read a block in that spelling.
const MIN_RESPELLED_WORDS: usize = 2;
/// What counts as long, in bytes: shorter ones happen to be words of other languages.
const LONG_WORD_BYTES: usize = 5;

/// One word of the probe view.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    /// Where it is in the original, in bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// What it stands for.
    pub lexeme: Lexeme,
    /// The flags of [`crate::rules`].
    pub flags: u16,
}

/// One place where a pattern matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hit {
    pub rule: Rule,
    pub detail: &'static str,
    /// In the original, in bytes; begins and ends with a token.
    pub span: Range<usize>,
}

/// Takes tokens, gives hits.
pub(crate) struct Matcher {
    tokens: Vec<Token>,
    /// The lexemes of the tokens that are spelled plainly.
    plain: LexemeSet,
    /// The flags that one of the tokens has.
    flags: u16,
    /// Whether a long word was spelled otherwise.
    has_respelled: bool,
    hits: Vec<Hit>,
}

impl Matcher {
    /// For a text of so many bytes.
    pub fn new(text_bytes: usize) -> Self {
        Self {
            // Most texts are labels of a few words.
            tokens: Vec::with_capacity(BLOCK_TOKENS.min(text_bytes / 4 + 1)),
            plain: LexemeSet::default(),
            flags: 0,
            has_respelled: false,
            hits: Vec::new(),
        }
    }

    /// Takes the next token.
    #[inline]
    pub fn push(&mut self, token: Token) {
        if self.tokens.len() == BLOCK_TOKENS {
            self.advance();
        }
        if token.lexeme.is_spelled(Spelling::Plain) {
            self.plain.insert(token.lexeme);
        } else {
            self.has_respelled |= is_long(&token);
        }
        self.flags |= token.flags;
        self.tokens.push(token);
    }

    /// Makes room for more tokens.
    #[cold]
    fn advance(&mut self) {
        self.match_block(ADVANCE_TOKENS);
        self.tokens.drain(..ADVANCE_TOKENS);
        self.plain = lexemes(&self.tokens, Spelling::Plain);
        self.flags = flags(&self.tokens);
    }

    /// Gives more flags to the token that was pushed last.
    pub fn flag_last(&mut self, flags: u16) {
        if let Some(token) = self.tokens.last_mut() {
            token.flags |= flags;
            self.flags |= flags;
        }
    }

    /// Ends the stream.
    pub fn finish(mut self) -> Vec<Hit> {
        self.match_block(BLOCK_TOKENS);
        self.hits
    }

    /// Matches all patterns whose first token is among the first `accepted` ones of the block.
    fn match_block(&mut self, accepted: usize) {
        self.match_forwards(Spelling::Plain, self.plain, accepted);
        if !self.has_respelled {
            return;
        }
        if self.is_worth_reading(Spelling::Rot13) {
            let present = lexemes(&self.tokens, Spelling::Rot13);
            self.match_forwards(Spelling::Rot13, present, accepted);
        }
        if self.is_worth_reading(Spelling::Reversed) {
            let candidates = Candidates::of(&lexemes(&self.tokens, Spelling::Reversed), u16::MAX);
            let block = Block::backwards(&self.tokens);
            let last = self.tokens.len() - 1;
            self.match_patterns(&candidates, &block, u128::MAX, |index| last - index);
        }
    }

    fn match_forwards(&mut self, spelling: Spelling, present: LexemeSet, accepted: usize) {
        let candidates = Candidates::of(&present, self.flags);
        if !candidates.is_empty() {
            let block = Block::forwards(&self.tokens, spelling);
            self.match_patterns(&candidates, &block, first_bits(accepted), |index| index);
        }
    }

    fn is_worth_reading(&self, spelling: Spelling) -> bool {
        let counts = |token: &&Token| token.lexeme.is_spelled(spelling) && is_long(token);
        self.tokens.iter().filter(counts).count() >= MIN_RESPELLED_WORDS
    }

    fn match_patterns(
        &mut self,
        candidates: &Candidates,
        block: &Block,
        starts: u128,
        original: impl Fn(usize) -> usize,
    ) {
        for pattern in candidates.patterns() {
            let cover = block.cover(pattern, starts);
            if cover != 0 {
                let mut starts = block.sentence_starts;
                if pattern.rule == Rule::FakeRoleLine {
                    starts |= block.flags_of(LINE_START);
                }
                self.push_hits(pattern, cover, starts, &original);
            }
        }
    }

    /// Turns each run of covered tokens into a hit, or more where one of `starts` lies inside; `original`
    /// maps a position of the block to the position of its token.
    fn push_hits(
        &mut self,
        pattern: &Pattern,
        mut cover: u128,
        starts: u128,
        original: impl Fn(usize) -> usize,
    ) {
        while cover != 0 {
            let first = cover.trailing_zeros();
            // The run ends where the cover does or where another sentence begins in it.
            let ends = !cover | (starts & !(1 << first));
            let after = (ends & !low_bits(first)).trailing_zeros();
            cover &= !low_bits(after);
            let (a, b) = (original(first as usize), original(after as usize - 1));
            if let (Some(a), Some(b)) = (self.tokens.get(a.min(b)), self.tokens.get(a.max(b))) {
                self.hits.push(Hit {
                    rule: pattern.rule,
                    detail: pattern.detail,
                    span: a.start..b.end,
                });
            }
        }
    }
}

/// The lexemes of the tokens that are spelled so.
fn lexemes(tokens: &[Token], spelling: Spelling) -> LexemeSet {
    let mut lexemes = LexemeSet::default();
    for token in tokens {
        if token.lexeme.is_spelled(spelling) {
            lexemes.insert(token.lexeme);
        }
    }
    lexemes
}

/// The flags that one of the tokens has.
fn flags(tokens: &[Token]) -> u16 {
    tokens.iter().fold(0, |flags, token| flags | token.flags)
}

fn is_long(token: &Token) -> bool {
    token.end - token.start >= LONG_WORD_BYTES
}

/// The lowest `count` bits; all of them from 128 on.
fn low_bits(count: u32) -> u128 {
    1_u128.checked_shl(count).map_or(u128::MAX, |bit| bit - 1)
}

fn first_bits(count: usize) -> u128 {
    low_bits(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lexicon;
    use crate::rules::{EXAMPLES, PATTERNS};

    proptest! {
        #[test]
        fn a_pattern_that_a_block_holds_is_a_candidate(
            words in prop::collection::vec(any::<prop::sample::Index>(), 1..BLOCK_TOKENS),
            backwards: bool,
        ) {
            let known: Vec<&str> = EXAMPLES.iter().flat_map(|(_, _, text, _)| text.split(' ')).collect();
            let lexeme = |index: &prop::sample::Index| {
                let word: &str = known[index.index(known.len())];
                let mut letters = word.to_ascii_lowercase().into_bytes();
                if backwards {
                    letters.reverse();
                }
                lexicon::find(&letters)
            };
            let tokens: Vec<Token> = words
                .iter()
                .map(|word| Token { start: 0, end: 0, lexeme: lexeme(word), flags: u16::MAX })
                .collect();
            for spelling in [Spelling::Plain, Spelling::Reversed] {
                let block = match spelling {
                    Spelling::Reversed => Block::backwards(&tokens),
                    _ => Block::forwards(&tokens, spelling),
                };
                let candidates: Vec<_> = Candidates::of(&lexemes(&tokens, spelling), u16::MAX).numbered().collect();
                for (index, pattern) in PATTERNS.iter().enumerate() {
                    let is_candidate = candidates.iter().any(|(candidate, _)| *candidate == index);
                    prop_assert!(is_candidate || block.cover(pattern, u128::MAX) == 0, "{}", pattern.detail);
                }
            }
        }
    }
}
