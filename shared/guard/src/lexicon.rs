//! From a word to what it stands for.
//!
//! All words of all languages are in one hash table, in folded spelling; next to each English-looking
//! word stand its ROT13 and its reversed spelling, so that neither disguise needs a pass of its own.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::fold::{fold, is_unspaced};
use crate::rules::{CONCEPTS, KEY_WORDS, KNOWN_WORDS};

/// Shortest word that is also looked for in another [`Spelling`], in letters.
const MIN_RESPELLED_LETTERS: usize = 2;
/// Shortest word that is found inside a run of joined letters.
const MIN_JOINED_LETTERS: usize = 3;
/// Longest word, in bytes.
pub(crate) const MAX_WORD_BYTES: usize = 64;

/// How a word is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// As it should be, or nearly so.
    Plain,
    /// Each letter moved by 13 places.
    Rot13,
    /// From the last letter to the first.
    Reversed,
}

/// A word of the table and its spelling: 0 is a word that is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lexeme(u16);

impl Lexeme {
    const ROT13: u16 = 1 << 14;
    const REVERSED: u16 = 1 << 15;

    /// How the word was spelled.
    pub fn spelling(self) -> Spelling {
        match self.0 & (Self::ROT13 | Self::REVERSED) {
            0 => Spelling::Plain,
            Self::ROT13 => Spelling::Rot13,
            _ => Spelling::Reversed,
        }
    }

    /// Whether the word is not in the table.
    pub fn is_unknown(self) -> bool {
        self.0 == 0
    }
}

#[derive(Clone, Copy, Default)]
struct Slot {
    hash: u32,
    text_start: u32,
    text_length: u8,
    is_stem: bool,
    lexeme: Lexeme,
}

/// A word that is recognised with one edit.
struct KeyWord {
    text: Vec<u8>,
    letters: u32,
    lexeme: Lexeme,
}

/// The table.
pub(crate) struct Lexicon {
    slots: Box<[Slot]>,
    texts: Vec<u8>,
    /// Concepts of all lexemes, one after the other, and where each lexeme's begin.
    concepts: Vec<u16>,
    concept_starts: Vec<u32>,
    /// One bit for the hash of each beginning of each word: ends a search early.
    beginnings: Box<[u64]>,
    /// One bit for the hash of each stem.
    stems: Box<[u64]>,
    key_words: Vec<KeyWord>,
}

/// The table, built at the first use.
pub(crate) static LEXICON: LazyLock<Lexicon> = LazyLock::new(Lexicon::build);

const BEGINNING_BITS: u32 = 1 << 16;
const STEM_BITS: u32 = 1 << 13;

fn hash_step(hash: u32, byte: u8) -> u32 {
    (hash.rotate_left(5) ^ u32::from(byte)).wrapping_mul(0x9E37_79B1)
}

fn hash_of(word: &[u8]) -> u32 {
    word.iter().fold(0, |hash, byte| hash_step(hash, *byte))
}

/// Position in a bit set of `bits` bits (a power of two): word and mask.
fn bit(hash: u32, bits: u32) -> (usize, u64) {
    let position = (hash ^ (hash >> 16)) & (bits - 1);
    ((position / 64) as usize, 1 << (position % 64))
}

impl Lexicon {
    fn build() -> Self {
        let mut words: BTreeMap<(Vec<u8>, bool), Vec<u16>> = BTreeMap::new();
        for (concept, spellings) in (0_u16..).zip(CONCEPTS) {
            for spelling in spellings {
                let concepts = words.entry(folded(spelling)).or_default();
                if concepts.last() != Some(&concept) {
                    concepts.push(concept);
                }
            }
        }
        for known in KNOWN_WORDS {
            words.entry(folded(known)).or_default();
        }
        let mut lexicon = Self {
            slots: vec![Slot::default(); (words.len() * 6).next_power_of_two()].into(),
            texts: Vec::with_capacity(words.len() * 24),
            concepts: Vec::with_capacity(words.len() * 2),
            concept_starts: vec![0, 0],
            beginnings: vec![0; (BEGINNING_BITS / 64) as usize].into(),
            stems: vec![0; (STEM_BITS / 64) as usize].into(),
            key_words: Vec::new(),
        };
        let mut respelled: Vec<(Vec<u8>, Lexeme)> = Vec::new();
        for ((word, is_stem), concepts) in &words {
            lexicon.concepts.extend_from_slice(concepts);
            let lexeme = Lexeme(u16::try_from(lexicon.concept_starts.len() - 1).unwrap_or(0));
            lexicon.concept_starts.push(u32::try_from(lexicon.concepts.len()).unwrap_or(0));
            lexicon.insert(word, *is_stem, lexeme);
            if !is_stem && !concepts.is_empty() {
                respelled.extend(respellings(word, lexeme));
            }
        }
        for (word, lexeme) in respelled {
            if lexicon.exact(&word).is_none() {
                lexicon.insert(&word, false, lexeme);
            }
        }
        for word in KEY_WORDS {
            let (text, _) = folded(word);
            let lexeme = lexicon.exact(&text).unwrap_or_default();
            let respelled = respellings(&text, lexeme);
            for (text, lexeme) in respelled.into_iter().chain(std::iter::once((text, lexeme))) {
                lexicon.key_words.push(KeyWord { letters: letters_of(&text), text, lexeme });
            }
        }
        lexicon
    }

    fn insert(&mut self, word: &[u8], is_stem: bool, lexeme: Lexeme) {
        let mut hash = 0;
        for byte in word {
            hash = hash_step(hash, *byte);
            let (index, mask) = bit(hash, BEGINNING_BITS);
            self.beginnings[index] |= mask;
        }
        if is_stem {
            let (index, mask) = bit(hash, STEM_BITS);
            self.stems[index] |= mask;
        }
        let slot = Slot {
            hash,
            text_start: u32::try_from(self.texts.len()).unwrap_or(0),
            text_length: u8::try_from(word.len()).unwrap_or(0),
            is_stem,
            lexeme,
        };
        self.texts.extend_from_slice(word);
        let last = self.slots.len() - 1;
        let mut position = hash as usize & last;
        while !self.slots[position].lexeme.is_unknown() {
            position = (position + 1) & last;
        }
        self.slots[position] = slot;
    }

    fn search(&self, word: &[u8], hash: u32, is_stem: bool) -> Option<Lexeme> {
        let last = self.slots.len() - 1;
        let mut position = hash as usize & last;
        loop {
            let slot = self.slots.get(position)?;
            if slot.lexeme.is_unknown() {
                return None;
            }
            let start = slot.text_start as usize;
            if slot.hash == hash
                && slot.is_stem == is_stem
                && self.texts.get(start..start + usize::from(slot.text_length)) == Some(word)
            {
                return Some(slot.lexeme);
            }
            position = (position + 1) & last;
        }
    }

    fn exact(&self, word: &[u8]) -> Option<Lexeme> {
        self.search(word, hash_of(word), false)
    }

    /// The concepts of a lexeme, whichever way it was spelled.
    pub fn concepts(&self, lexeme: Lexeme) -> &[u16] {
        let index = usize::from(lexeme.0 & !(Lexeme::ROT13 | Lexeme::REVERSED));
        match (self.concept_starts.get(index), self.concept_starts.get(index + 1)) {
            (Some(start), Some(end)) => {
                self.concepts.get(*start as usize..*end as usize).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// Looks up a folded word: as it stands, by its stem, read as leetspeak, with one edit.
    pub fn find(&self, word: &[u8]) -> Lexeme {
        if let Some(lexeme) = self.plain(word) {
            return lexeme;
        }
        if word.iter().all(u8::is_ascii_lowercase) {
            return self.misspelled(word).unwrap_or_default();
        }
        if word.is_ascii() { self.leet(word).unwrap_or_default() } else { Lexeme::default() }
    }

    fn plain(&self, word: &[u8]) -> Option<Lexeme> {
        let mut hash = 0;
        let mut stem = None;
        for (index, byte) in word.iter().enumerate() {
            hash = hash_step(hash, *byte);
            let (position, mask) = bit(hash, STEM_BITS);
            if index >= 2 && self.stems.get(position).is_some_and(|bits| bits & mask != 0) {
                stem = self.search(word.get(..=index)?, hash, true).or(stem);
            }
        }
        let (position, mask) = bit(hash, BEGINNING_BITS);
        if self.beginnings.get(position).is_some_and(|bits| bits & mask != 0)
            && let Some(lexeme) = self.search(word, hash, false)
        {
            return Some(lexeme);
        }
        stem
    }

    /// The longest word at the start of `text`, if any, and its length in bytes.
    pub fn longest(&self, text: &str) -> Option<(Lexeme, usize)> {
        let mut hash = 0;
        let mut longest = None;
        for (index, c) in text.char_indices() {
            let end = index + c.len_utf8();
            let bytes = text.as_bytes();
            hash = bytes.get(index..end)?.iter().fold(hash, |hash, byte| hash_step(hash, *byte));
            let (position, mask) = bit(hash, BEGINNING_BITS);
            if self.beginnings.get(position).is_none_or(|bits| bits & mask == 0) {
                break;
            }
            if end >= MIN_JOINED_LETTERS
                && let Some(lexeme) = self.search(bytes.get(..end)?, hash, false)
            {
                longest = Some((lexeme, end));
            }
        }
        longest
    }

    /// Reads digits and signs as the letters they resemble.
    fn leet(&self, word: &[u8]) -> Option<Lexeme> {
        if !word.iter().any(u8::is_ascii_alphabetic) {
            return None;
        }
        let unmarked = word.iter().position(|b| !matches!(b, b'@' | b'$' | b'!')).unwrap_or(0);
        if let Some(lexeme) = word.get(unmarked..).filter(|_| unmarked > 0).and_then(|w| self.plain(w)) {
            return Some(lexeme);
        }
        let mut letters = [0; MAX_WORD_BYTES];
        let letters = letters.get_mut(..word.len())?;
        for one in [b'i', b'l'] {
            for (letter, byte) in letters.iter_mut().zip(word) {
                *letter = leet_letter(*byte, one);
            }
            if let Some(lexeme) = self.plain(letters).or_else(|| self.misspelled(letters)) {
                return Some(lexeme);
            }
        }
        None
    }

    /// A key word with one letter too many, too few, wrong, or swapped with its neighbour.
    fn misspelled(&self, word: &[u8]) -> Option<Lexeme> {
        if !(5..=16).contains(&word.len()) {
            return None;
        }
        let letters = letters_of(word);
        self.key_words
            .iter()
            .filter(|key| {
                (key.letters ^ letters).count_ones() <= 2 && key.text.len().abs_diff(word.len()) <= 1
            })
            .find(|key| is_one_edit(&key.text, word))
            .map(|key| key.lexeme)
    }
}

/// The other spellings of a word of Latin letters.
fn respellings(word: &[u8], lexeme: Lexeme) -> Vec<(Vec<u8>, Lexeme)> {
    if word.len() < MIN_RESPELLED_LETTERS || !word.iter().all(u8::is_ascii_lowercase) {
        return Vec::new();
    }
    let rot13 = word.iter().map(|b| (b - b'a' + 13) % 26 + b'a').collect();
    let reversed = word.iter().rev().copied().collect();
    vec![(rot13, Lexeme(lexeme.0 | Lexeme::ROT13)), (reversed, Lexeme(lexeme.0 | Lexeme::REVERSED))]
}

/// Folds a spelling of the data; whether it is a stem.
fn folded(spelling: &str) -> (Vec<u8>, bool) {
    let (word, is_stem) = match spelling.strip_suffix('*') {
        Some(stem) => (stem, true),
        None => (spelling, false),
    };
    let mut out = String::with_capacity(word.len());
    for c in word.chars() {
        if is_unspaced(c) {
            out.push(c);
        } else {
            fold(c, |c| out.push(c));
        }
    }
    (out.into_bytes(), is_stem)
}

/// The letter that a digit or sign stands for in leetspeak; `one` is what `1` stands for.
pub(crate) fn leet_letter(byte: u8, one: u8) -> u8 {
    match byte {
        b'0' => b'o',
        b'1' | b'!' => one,
        b'2' => b'z',
        b'3' => b'e',
        b'4' | b'@' => b'a',
        b'5' | b'$' => b's',
        b'6' | b'9' => b'g',
        b'7' => b't',
        b'8' => b'b',
        other => other,
    }
}

/// One bit for each letter of the word.
fn letters_of(word: &[u8]) -> u32 {
    word.iter().filter(|b| b.is_ascii_lowercase()).fold(0, |set, b| set | 1 << (b - b'a'))
}

/// Whether one insertion, deletion, substitution or swap of neighbours lies between the two.
fn is_one_edit(a: &[u8], b: &[u8]) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let same = short.iter().zip(long).take_while(|(x, y)| x == y).count();
    let (short, long) = (short.get(same..).unwrap_or_default(), long.get(same..).unwrap_or_default());
    match (short, long) {
        (_, [_, rest @ ..]) if long.len() == short.len() + 1 => short == rest,
        ([x1, x2, xs @ ..], [y1, y2, ys @ ..]) if x1 == y2 && x2 == y1 => xs == ys,
        ([_, xs @ ..], [_, ys @ ..]) => xs == ys,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &str, b: &str) -> bool {
        let (a, b) = (LEXICON.find(a.as_bytes()), LEXICON.find(b.as_bytes()));
        !a.is_unknown() && LEXICON.concepts(a) == LEXICON.concepts(b)
    }

    #[test]
    fn disguised_and_misspelled_words_are_found() {
        for spelling in ["vtaber", "1gn0r3", "!gnore", "ingore", "ignor", "ignnore", "ignxre", "$ignore"] {
            assert!(same("ignore", spelling), "{spelling}");
        }
        assert!(same("all", "a11"));
        assert_eq!(LEXICON.find(b"erongi").spelling(), Spelling::Reversed);
        assert_eq!(LEXICON.find(b"vtaber").spelling(), Spelling::Rot13);
    }

    #[test]
    fn neighbours_of_key_words_are_not_taken_for_them() {
        for word in ["ignores", "forged", "revel"] {
            assert!(LEXICON.concepts(LEXICON.find(word.as_bytes())).is_empty(), "{word}");
        }
    }

    #[test]
    fn one_edit_is_told_from_two() {
        assert!(is_one_edit(b"abcd", b"abdc"));
        assert!(is_one_edit(b"abcd", b"abd"));
        assert!(!is_one_edit(b"abcd", b"abcd"));
        assert!(!is_one_edit(b"abcd", b"badc"));
        assert!(!is_one_edit(b"abcd", b"ab"));
    }
}
