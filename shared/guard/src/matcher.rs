//! Finds the patterns of the rules' data in a stream of tokens.
//!
//! Tokens are looked at in blocks of 128. For each concept a 128-bit word says which tokens of the
//! block belong to it, and a pattern is matched for all positions of the block at once with shifts
//! and conjunctions, in the manner of Shift-And (Baeza-Yates and Gonnet 1992). The work for a block
//! has a fixed bound, so the whole is linear in the number of tokens whatever they are.

use std::ops::Range;

use crate::Rule;
use crate::lexicon::{Lexeme, Spelling, concepts};
use crate::rules::{
    CLAUSE_START, CLOSED, COLON, CONCEPT_COUNT, Element, KEY, LEAD, LINE_START,
    MAX_PATTERN_ELEMENTS, MAX_PATTERN_TOKENS, NOT, NOT_NEGATED, OPENED, PATTERNS, Pattern,
    SENTENCE_START,
};

/// Tokens in a block.
const BLOCK_TOKENS: usize = 128;
/// Tokens by which one block is ahead of the one before. A match that begins in the first
/// `ADVANCE_TOKENS` of a block lies wholly inside it.
const ADVANCE_TOKENS: usize = BLOCK_TOKENS - MAX_PATTERN_TOKENS;
/// Words that stand between the start of a clause and its verb, at most.
const MAX_LEAD_WORDS: usize = 5;
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
    hits: Vec<Hit>,
}

impl Matcher {
    /// For a text of so many bytes.
    pub fn new(text_bytes: usize) -> Self {
        Self {
            // Most texts are labels of a few words.
            tokens: Vec::with_capacity(BLOCK_TOKENS.min(text_bytes / 4 + 1)),
            hits: Vec::new(),
        }
    }

    /// Takes the next token.
    pub fn push(&mut self, token: Token) {
        if self.tokens.len() == BLOCK_TOKENS {
            self.match_block(ADVANCE_TOKENS);
            self.tokens.drain(..ADVANCE_TOKENS);
        }
        self.tokens.push(token);
    }

    /// The token that was pushed last.
    pub fn last_mut(&mut self) -> Option<&mut Token> {
        self.tokens.last_mut()
    }

    /// Ends the stream.
    pub fn finish(mut self) -> Vec<Hit> {
        self.match_block(BLOCK_TOKENS);
        self.hits
    }

    /// Matches all patterns whose first token is among the first `accepted` ones of the block.
    fn match_block(&mut self, accepted: usize) {
        self.match_forwards(Spelling::Plain, accepted);
        let is_plain = |token: &Token| token.lexeme.spelling() == Spelling::Plain;
        if self.tokens.iter().all(is_plain) {
            return;
        }
        if self.is_worth_reading(Spelling::Rot13) {
            self.match_forwards(Spelling::Rot13, accepted);
        }
        if self.is_worth_reading(Spelling::Reversed) {
            let candidates = Candidates::of(&self.tokens, Spelling::Reversed);
            let block = Block::backwards(&self.tokens);
            let last = self.tokens.len() - 1;
            self.match_patterns(&candidates, &block, u128::MAX, |index| last - index);
        }
    }

    fn match_forwards(&mut self, spelling: Spelling, accepted: usize) {
        let candidates = Candidates::of(&self.tokens, spelling);
        if !candidates.is_empty() {
            let block = Block::forwards(&self.tokens, spelling);
            self.match_patterns(&candidates, &block, first_bits(accepted), |index| index);
        }
    }

    fn is_worth_reading(&self, spelling: Spelling) -> bool {
        let counts = |token: &&Token| {
            token.lexeme.spelling() == spelling && token.end - token.start >= LONG_WORD_BYTES
        };
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

    /// Turns each run of covered tokens into a hit, or more where one of `starts` lies inside; `original` maps a position of the block to the
    /// position of its token.
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

/// A set of patterns, as bits in the order of [`PATTERNS`].
type PatternSet = [u64; PATTERNS.len().div_ceil(64)];

/// For each concept, the patterns whose first element accepts it.
static BEGINNINGS: [PatternSet; CONCEPT_COUNT] = patterns_by_concept(false);
/// For each concept, the patterns whose last element accepts it.
static ENDINGS: [PatternSet; CONCEPT_COUNT] = patterns_by_concept(true);

const fn patterns_by_concept(of_last_element: bool) -> [PatternSet; CONCEPT_COUNT] {
    let mut sets = [[0; PATTERNS.len().div_ceil(64)]; CONCEPT_COUNT];
    let mut pattern = 0;
    while pattern < PATTERNS.len() {
        let elements = PATTERNS[pattern].elements;
        let element = if of_last_element {
            elements.len() - 1
        } else {
            0
        };
        let concepts = elements[element].concepts;
        let mut index = 0;
        while index < concepts.len() {
            sets[concepts[index] as usize][pattern / 64] |= 1 << (pattern % 64);
            index += 1;
        }
        pattern += 1;
    }
    sets
}

/// The patterns that a block can hold, because it has a word for each of their elements. Most blocks
/// have no such pattern and need not be laid out.
struct Candidates {
    patterns: PatternSet,
}

impl Candidates {
    fn of(tokens: &[Token], spelling: Spelling) -> Self {
        let mut present = [0_u64; CONCEPT_COUNT.div_ceil(64)];
        let mut begun = PatternSet::default();
        let mut ended = PatternSet::default();
        for token in tokens {
            if token.lexeme.is_unknown() || token.lexeme.spelling() != spelling {
                continue;
            }
            for concept in concepts(token.lexeme) {
                let concept = usize::from(*concept);
                let Some(word) = present.get_mut(concept / 64) else {
                    continue;
                };
                let bit = 1 << (concept % 64);
                if *word & bit == 0 {
                    *word |= bit;
                    add(&mut begun, BEGINNINGS.get(concept));
                    add(&mut ended, ENDINGS.get(concept));
                }
            }
        }
        let has = |concept: &u16| {
            let word = present.get(usize::from(concept / 64)).copied();
            word.unwrap_or(0) >> (concept % 64) & 1 != 0
        };
        let mut candidates = Self { patterns: begun };
        for (both, ended) in candidates.patterns.iter_mut().zip(ended) {
            *both &= ended;
        }
        let mut complete = PatternSet::default();
        for (index, pattern) in candidates.numbered() {
            let is_complete = |element: &Element| element.concepts.iter().any(has);
            if pattern.elements.iter().all(is_complete)
                && let Some(word) = complete.get_mut(index / 64)
            {
                *word |= 1 << (index % 64);
            }
        }
        Self { patterns: complete }
    }

    fn is_empty(&self) -> bool {
        self.patterns.iter().all(|word| *word == 0)
    }

    /// In the order of the data.
    fn patterns(&self) -> impl Iterator<Item = &'static Pattern> + use<> {
        self.numbered().map(|(_, pattern)| pattern)
    }

    fn numbered(&self) -> impl Iterator<Item = (usize, &'static Pattern)> + use<> {
        let words = self.patterns.into_iter().enumerate();
        words.flat_map(|(word, mut set)| {
            std::iter::from_fn(move || {
                let index = word * 64 + set.trailing_zeros() as usize;
                let pattern = PATTERNS.get(index).filter(|_| set != 0)?;
                set &= set.wrapping_sub(1);
                Some((index, pattern))
            })
        })
    }
}

fn add(patterns: &mut PatternSet, more: Option<&PatternSet>) {
    for (all, more) in patterns.iter_mut().zip(more.into_iter().flatten()) {
        *all |= more;
    }
}

/// The lowest `count` bits; all of them from 128 on.
fn low_bits(count: u32) -> u128 {
    1_u128.checked_shl(count).map_or(u128::MAX, |bit| bit - 1)
}

fn first_bits(count: usize) -> u128 {
    low_bits(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Which tokens of a block belong to which concept and carry which flag, as bit sets.
struct Block {
    concepts: [u128; CONCEPT_COUNT],
    flags: [u128; 8],
    sentence_starts: u128,
}

impl Block {
    /// The block from its first token on: only words of the given spelling count.
    fn forwards(tokens: &[Token], spelling: Spelling) -> Self {
        let mut block = Self {
            concepts: [0; CONCEPT_COUNT],
            flags: [0; 8],
            sentence_starts: 0,
        };
        for (index, token) in tokens.iter().enumerate() {
            block.add_flags(1 << index, token.flags);
            if token.lexeme.spelling() == spelling {
                block.add_concepts(1 << index, token.lexeme);
            }
        }
        let concept = |concept: u16| {
            block
                .concepts
                .get(usize::from(concept))
                .copied()
                .unwrap_or(0)
        };
        block.sentence_starts = block.flags_of(SENTENCE_START);
        let mut clauses = block.flags_of(CLAUSE_START) | 1;
        let leads = concept(LEAD);
        for _ in 0..MAX_LEAD_WORDS {
            clauses |= (clauses & leads) << 1 & !block.sentence_starts;
        }
        let negated = (concept(NOT) << 1) & !block.flags_of(CLAUSE_START);
        *block.flag_mut(CLAUSE_START) = clauses;
        *block.flag_mut(NOT_NEGATED) = !negated;
        block
    }

    /// The block from its last token on: only words that are spelled backwards count. Nothing is
    /// known about clauses and punctuation, so every flag is taken to be set.
    fn backwards(tokens: &[Token]) -> Self {
        let mut block = Self {
            concepts: [0; CONCEPT_COUNT],
            flags: [u128::MAX; 8],
            sentence_starts: 0,
        };
        for (index, token) in tokens.iter().rev().enumerate() {
            if token.lexeme.spelling() == Spelling::Reversed {
                block.add_concepts(1 << index, token.lexeme);
            }
        }
        block
    }

    fn add_concepts(&mut self, bit: u128, lexeme: Lexeme) {
        if lexeme.is_unknown() {
            return;
        }
        for concept in concepts(lexeme) {
            if let Some(bits) = self.concepts.get_mut(usize::from(*concept)) {
                *bits |= bit;
            }
        }
    }

    fn add_flags(&mut self, bit: u128, mut flags: u16) {
        while flags != 0 {
            if let Some(bits) = self.flags.get_mut(flags.trailing_zeros() as usize) {
                *bits |= bit;
            }
            flags &= flags - 1;
        }
    }

    fn flag_mut(&mut self, flag: u16) -> &mut u128 {
        &mut self.flags[flag.trailing_zeros() as usize & 7]
    }

    fn flags_of(&self, flag: u16) -> u128 {
        self.flags[flag.trailing_zeros() as usize & 7]
    }

    /// The tokens that `element` accepts.
    fn accepted(&self, element: &Element) -> u128 {
        let mut bits = element
            .concepts
            .iter()
            .filter_map(|concept| self.concepts.get(usize::from(*concept)))
            .fold(0, |all, bits| all | bits);
        if bits != 0 {
            for flag in [
                LINE_START,
                CLAUSE_START,
                OPENED,
                COLON,
                CLOSED,
                KEY,
                NOT_NEGATED,
            ] {
                if element.flags & flag != 0 {
                    bits &= self.flags_of(flag);
                }
            }
        }
        bits
    }

    /// The tokens of all matches of `pattern` that begin at one of `starts`, gaps included.
    fn cover(&self, pattern: &Pattern, starts: u128) -> u128 {
        let mut forwards = [0_u128; MAX_PATTERN_ELEMENTS];
        let mut reached = starts;
        for (index, (element, slot)) in pattern.elements.iter().zip(&mut forwards).enumerate() {
            if index > 0 {
                reached = self.after(reached, element);
            }
            reached &= self.accepted(element);
            if reached == 0 {
                return 0;
            }
            *slot = reached;
        }
        // Back again, to keep only the tokens from which the end can be reached.
        let mut cover = reached;
        let pairs = pattern
            .elements
            .iter()
            .zip(&forwards)
            .skip(1)
            .zip(&forwards)
            .rev();
        for ((element, _), before) in pairs {
            let needed = self.before(reached, element);
            let kept = before & needed;
            cover |= kept | (self.after(kept, element) & needed);
            reached = kept;
        }
        cover
    }

    /// The tokens that may be matched by `element` when the one before it is among `bits`.
    fn after(&self, bits: u128, element: &Element) -> u128 {
        let barrier = if element.crosses {
            0
        } else {
            self.sentence_starts
        };
        let mut current = bits;
        let mut all = 0;
        for _ in 0..=element.gap {
            current = (current << 1) & !barrier;
            all |= current;
        }
        all
    }

    /// The tokens that may come before `element` when it matches one of `bits`.
    fn before(&self, bits: u128, element: &Element) -> u128 {
        let barrier = if element.crosses {
            0
        } else {
            self.sentence_starts
        };
        let mut current = bits;
        let mut all = 0;
        for _ in 0..=element.gap {
            current = (current & !barrier) >> 1;
            all |= current;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lexicon;
    use crate::rules::EXAMPLES;

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
                let candidates: Vec<_> = Candidates::of(&tokens, spelling).numbered().collect();
                for (index, pattern) in PATTERNS.iter().enumerate() {
                    let is_candidate = candidates.iter().any(|(candidate, _)| *candidate == index);
                    prop_assert!(is_candidate || block.cover(pattern, u128::MAX) == 0, "{}", pattern.detail);
                }
            }
        }
    }
}
