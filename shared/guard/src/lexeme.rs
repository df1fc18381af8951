//! What a word stands for, as a number, and sets of such numbers.

use crate::rules::{LEXEME_COUNT, NO_CONCEPT};

/// How a word is spelled; the numbers are the bits that [`Lexeme`] has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Spelling {
    /// As it should be, or nearly so.
    Plain = 0,
    /// Each letter moved by 13 places.
    Rot13 = 1 << 14,
    /// From the last letter to the first.
    Reversed = 1 << 15,
}

/// What a word stands for and how it is spelled: words of the same concepts stand for the same. 0 is a
/// word that is not in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lexeme(pub u16);

impl Lexeme {
    const SPELLING: u16 = Spelling::Rot13 as u16 | Spelling::Reversed as u16;

    /// Whether the word was spelled so.
    #[inline]
    pub fn is_spelled(self, spelling: Spelling) -> bool {
        self.0 & Self::SPELLING == spelling as u16
    }

    /// Whether the word is not in the table.
    #[inline]
    pub fn is_unknown(self) -> bool {
        self.0 == 0
    }

    /// Whether the word belongs to a concept.
    pub fn has_concept(self) -> bool {
        self.0 > NO_CONCEPT
    }

    /// What the word stands for, however it is spelled: below [`LEXEME_COUNT`].
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0 & !Self::SPELLING)
    }
}

/// A set of lexemes, as bits by [`Lexeme::index`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LexemeSet(pub [u64; LEXEME_COUNT.div_ceil(64)]);

impl LexemeSet {
    /// Takes in a lexeme.
    #[inline]
    pub fn insert(&mut self, lexeme: Lexeme) {
        let index = lexeme.index();
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// Whether a lexeme is in both sets.
    #[inline]
    pub fn meets(&self, other: &Self) -> bool {
        let both = self.0.iter().zip(&other.0);
        both.fold(0, |all, (one, other)| all | one & other) != 0
    }

    /// The indices of the lexemes that are in both sets.
    #[inline]
    pub fn both<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = usize> + 'a {
        let words = self.0.iter().zip(&other.0).enumerate();
        words.flat_map(|(at, (one, other))| ones(one & other).map(move |bit| at * 64 + bit))
    }

    /// Whether the lexeme with this index is in the set.
    pub const fn contains(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 != 0
    }
}

/// The places of the bits that are set, from the lowest on.
#[inline]
pub(crate) fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (bits != 0).then_some(bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        place
    })
}
