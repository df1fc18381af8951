//! Which patterns a block of tokens can hold at all.

use crate::lexeme::{LexemeSet, ones};
use crate::rules::{
    CLOSED, COLON, Element, KEY, LEXEME_COUNT, LINE_START, OPENED, PATTERNS, Pattern,
};

/// A set of patterns, as bits in the order of [`PATTERNS`].
type PatternSet = [u64; PATTERNS.len().div_ceil(64)];

/// For each lexeme, the patterns whose first element accepts it.
static BEGINNINGS: [PatternSet; LEXEME_COUNT] = patterns_by_lexeme(false);
/// For each lexeme, the patterns whose last element accepts it.
static ENDINGS: [PatternSet; LEXEME_COUNT] = patterns_by_lexeme(true);

const fn patterns_by_lexeme(of_last_element: bool) -> [PatternSet; LEXEME_COUNT] {
    let mut sets = [[0; PATTERNS.len().div_ceil(64)]; LEXEME_COUNT];
    let mut pattern = 0;
    while pattern < PATTERNS.len() {
        let elements = PATTERNS[pattern].elements;
        let element = if of_last_element {
            elements.len() - 1
        } else {
            0
        };
        let mut lexeme = 0;
        while lexeme < LEXEME_COUNT {
            if elements[element].lexemes.contains(lexeme) {
                sets[lexeme][pattern / 64] |= 1 << (pattern % 64);
            }
            lexeme += 1;
        }
        pattern += 1;
    }
    sets
}

/// The flags that a token has only if it was given them.
const NOTED: u16 = LINE_START | OPENED | COLON | CLOSED | KEY;

/// The patterns that a block can hold, because it has a word for each of their elements. Most blocks
/// have no such pattern and need not be laid out.
pub(crate) struct Candidates {
    patterns: PatternSet,
}

impl Candidates {
    /// Those of a block that has these lexemes, and these flags on any of its tokens.
    pub fn of(present: &LexemeSet, flags: u16) -> Self {
        let mut begun = PatternSet::default();
        let mut ended = PatternSet::default();
        for lexeme in present.both(present) {
            add(&mut begun, BEGINNINGS.get(lexeme));
            add(&mut ended, ENDINGS.get(lexeme));
        }
        for (both, ended) in begun.iter_mut().zip(ended) {
            *both &= ended;
        }
        let mut complete = PatternSet::default();
        for (index, pattern) in (Self { patterns: begun }).numbered() {
            let has = |element: &Element| {
                element.flags & NOTED & !flags == 0 && element.lexemes.meets(present)
            };
            if pattern.elements.iter().all(has)
                && let Some(word) = complete.get_mut(index / 64)
            {
                *word |= 1 << (index % 64);
            }
        }
        Self { patterns: complete }
    }

    pub fn is_empty(&self) -> bool {
        self.patterns.iter().all(|word| *word == 0)
    }

    /// In the order of the data.
    pub fn patterns(&self) -> impl Iterator<Item = &'static Pattern> + use<> {
        self.numbered().map(|(_, pattern)| pattern)
    }

    /// The same, and which of [`PATTERNS`] each is.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &'static Pattern)> + use<> {
        let words = self.patterns.into_iter().enumerate();
        let indices = words.flat_map(|(word, set)| ones(set).map(move |bit| word * 64 + bit));
        indices.filter_map(|index| Some((index, PATTERNS.get(index)?)))
    }
}

fn add(patterns: &mut PatternSet, more: Option<&PatternSet>) {
    for (all, more) in patterns.iter_mut().zip(more.into_iter().flatten()) {
        *all |= more;
    }
}
