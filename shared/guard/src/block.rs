//! A block of tokens laid out as bit sets, so that a pattern is matched at all places at once.

use crate::lexeme::{Lexeme, LexemeSet, Spelling};
use crate::matcher::{BLOCK_TOKENS, Token};
use crate::rules::{
    CLAUSE_START, CLOSED, COLON, Element, KEY, LEAD, LEXEME_COUNT, LINE_START,
    MAX_PATTERN_ELEMENTS, NOT, NOT_NEGATED, OPENED, Pattern, SENTENCE_START,
};

/// Words that stand between the start of a clause and its verb, at most.
const MAX_LEAD_WORDS: usize = 5;

/// Which tokens of a block are which lexeme and carry which flag, as bit sets.
pub(crate) struct Block {
    /// The lexemes that the block has.
    present: LexemeSet,
    /// For each lexeme, where in `tokens` it is; 0 for one that the block does not have.
    places: [u8; LEXEME_COUNT],
    /// For each lexeme that the block has, which tokens it is; the first is of none.
    tokens: Vec<u128>,
    flags: [u128; 8],
    /// Where a sentence begins.
    pub sentence_starts: u128,
}

impl Block {
    fn new(flags: u128) -> Self {
        let mut tokens = Vec::with_capacity(BLOCK_TOKENS + 1);
        tokens.push(0);
        Self {
            present: LexemeSet::default(),
            places: [0; LEXEME_COUNT],
            tokens,
            flags: [flags; 8],
            sentence_starts: 0,
        }
    }

    /// The block from its first token on: only words of the given spelling count.
    pub fn forwards(tokens: &[Token], spelling: Spelling) -> Self {
        let mut block = Self::new(0);
        let mut bit = 1;
        for token in tokens {
            block.add_flags(bit, token.flags);
            if token.lexeme.is_spelled(spelling) {
                block.add_lexeme(bit, token.lexeme);
            }
            bit <<= 1;
        }
        block.sentence_starts = block.flags_of(SENTENCE_START);
        let mut clauses = block.flags_of(CLAUSE_START) | 1;
        let leads = block.tokens_of(&LEAD);
        for _ in 0..MAX_LEAD_WORDS {
            clauses |= (clauses & leads) << 1 & !block.sentence_starts;
        }
        let negated = (block.tokens_of(&NOT) << 1) & !block.flags_of(CLAUSE_START);
        *block.flag_mut(CLAUSE_START) = clauses;
        *block.flag_mut(NOT_NEGATED) = !negated;
        block
    }

    /// The block from its last token on: only words that are spelled backwards count. Nothing is
    /// known about clauses and punctuation, so every flag is taken to be set.
    pub fn backwards(tokens: &[Token]) -> Self {
        let mut block = Self::new(u128::MAX);
        let mut bit = 1;
        for token in tokens.iter().rev() {
            if token.lexeme.is_spelled(Spelling::Reversed) {
                block.add_lexeme(bit, token.lexeme);
            }
            bit <<= 1;
        }
        block
    }

    #[inline]
    fn add_lexeme(&mut self, bit: u128, lexeme: Lexeme) {
        if lexeme.is_unknown() {
            return;
        }
        let Some(place) = self.places.get_mut(lexeme.index()) else {
            return;
        };
        if *place == 0 {
            *place = u8::try_from(self.tokens.len()).unwrap_or(0);
            self.tokens.push(0);
            self.present.insert(lexeme);
        }
        if let Some(tokens) = self.tokens.get_mut(usize::from(*place)) {
            *tokens |= bit;
        }
    }

    /// The tokens that are one of the lexemes.
    fn tokens_of(&self, lexemes: &LexemeSet) -> u128 {
        let places = self.present.both(lexemes);
        let tokens =
            places.filter_map(|lexeme| self.tokens.get(usize::from(*self.places.get(lexeme)?)));
        tokens.fold(0, |all, tokens| all | tokens)
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

    pub fn flags_of(&self, flag: u16) -> u128 {
        self.flags[flag.trailing_zeros() as usize & 7]
    }

    /// The tokens that `element` accepts.
    fn accepted(&self, element: &Element) -> u128 {
        let mut bits = self.tokens_of(&element.lexemes);
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
    pub fn cover(&self, pattern: &Pattern, starts: u128) -> u128 {
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

    /// The tokens that begin a sentence, if `element` does not cross into another one.
    const fn barrier(&self, element: &Element) -> u128 {
        if element.crosses {
            0
        } else {
            self.sentence_starts
        }
    }

    /// The tokens that may be matched by `element` when the one before it is among `bits`.
    fn after(&self, bits: u128, element: &Element) -> u128 {
        let barrier = self.barrier(element);
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
        let barrier = self.barrier(element);
        let mut current = bits;
        let mut all = 0;
        for _ in 0..=element.gap {
            current = (current & !barrier) >> 1;
            all |= current;
        }
        all
    }
}
