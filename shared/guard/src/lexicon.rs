//! From a word to what it stands for.
//!
//! All words of all languages are in one hash table, in folded spelling; next to each English-looking
//! word stand its ROT13 and its reversed spelling, so that neither disguise needs a pass of its own.
//!
//! The build lays the table out (`build/lexicon.rs`), so that nothing is built when a function starts.

use crate::hash::{BEGINNING_BITS, STEM_BITS, bit, hash_step};
use crate::rules::{
    BEGINNINGS, CONCEPT_LISTS, CONCEPT_STARTS, KEY_ENDS, KEY_STARTS, KEY_WORDS, SLOTS, STEMS, TEXTS,
};

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

/// One place of the hash table: free when `lexeme` is 0.
#[derive(Debug)]
pub(crate) struct Slot {
    pub hash: u32,
    /// Where the word begins in [`TEXTS`].
    pub text: u16,
    /// Its length in bytes, and [`Slot::STEM`].
    pub length: u8,
    pub lexeme: u16,
}

impl Slot {
    /// Set in `length` when any ending may follow the word.
    const STEM: u8 = 1 << 7;
}

/// A word that is recognised with one edit.
#[derive(Debug)]
pub(crate) struct KeyWord {
    pub text: &'static [u8],
    pub lexeme: u16,
}

#[inline]
fn is_in<const WORDS: usize>(set: &[u64; WORDS], hash: u32, bits: u32) -> bool {
    let (index, mask) = bit(hash, bits);
    // Both are powers of two, so that this is the same number and known to be one of the set.
    set[index & (WORDS - 1)] & mask != 0
}

fn search(word: &[u8], hash: u32, is_stem: bool) -> Option<Lexeme> {
    let mut position = hash as usize & (SLOTS.len() - 1);
    loop {
        let slot = SLOTS.get(position)?;
        if slot.lexeme == 0 {
            return None;
        }
        if slot.hash == hash && (slot.length & Slot::STEM != 0) == is_stem {
            let start = usize::from(slot.text);
            let end = start + usize::from(slot.length & !Slot::STEM);
            if TEXTS.get(start..end) == Some(word) {
                return Some(Lexeme(slot.lexeme));
            }
        }
        position = (position + 1) & (SLOTS.len() - 1);
    }
}

/// The concepts of a lexeme, whichever way it was spelled.
pub(crate) fn concepts(lexeme: Lexeme) -> &'static [u16] {
    let index = usize::from(lexeme.0 & !(Lexeme::ROT13 | Lexeme::REVERSED));
    match (CONCEPT_STARTS.get(index), CONCEPT_STARTS.get(index + 1)) {
        (Some(start), Some(end)) => CONCEPT_LISTS
            .get(usize::from(*start)..usize::from(*end))
            .unwrap_or_default(),
        _ => &[],
    }
}

/// Looks up a folded word: as it stands, by its stem, read as leetspeak, with one edit.
pub(crate) fn find(word: &[u8]) -> Lexeme {
    if let Some(lexeme) = plain(word) {
        return lexeme;
    }
    if word.iter().all(u8::is_ascii_lowercase) {
        return misspelled(word).unwrap_or_default();
    }
    if word.is_ascii() {
        leet(word).unwrap_or_default()
    } else {
        Lexeme::default()
    }
}

fn plain(word: &[u8]) -> Option<Lexeme> {
    let mut hash = 0;
    let mut stem = None;
    // No word and no stem is longer.
    for (index, byte) in word.iter().take(MAX_WORD_BYTES).enumerate() {
        hash = hash_step(hash, *byte);
        if index < 2 {
            continue;
        }
        // Most words part from all that are known after a few letters.
        if !is_in(&BEGINNINGS, hash, BEGINNING_BITS) {
            return stem;
        }
        if is_in(&STEMS, hash, STEM_BITS) {
            stem = search(word.get(..=index)?, hash, true).or(stem);
        }
    }
    if word.len() <= MAX_WORD_BYTES
        && is_in(&BEGINNINGS, hash, BEGINNING_BITS)
        && let Some(lexeme) = search(word, hash, false)
    {
        return Some(lexeme);
    }
    stem
}

/// The longest word at the start of `text`, if any, and its length in bytes.
pub(crate) fn longest(text: &str) -> Option<(Lexeme, usize)> {
    let mut hash = 0;
    let mut longest = None;
    for (index, c) in text.char_indices() {
        let end = index + c.len_utf8();
        let bytes = text.as_bytes();
        hash = bytes
            .get(index..end)?
            .iter()
            .fold(hash, |hash, byte| hash_step(hash, *byte));
        if !is_in(&BEGINNINGS, hash, BEGINNING_BITS) {
            break;
        }
        if end >= MIN_JOINED_LETTERS
            && let Some(lexeme) = search(bytes.get(..end)?, hash, false)
        {
            longest = Some((lexeme, end));
        }
    }
    longest
}

/// Reads digits and signs as the letters they resemble.
fn leet(word: &[u8]) -> Option<Lexeme> {
    if !word.iter().any(u8::is_ascii_alphabetic) {
        return None;
    }
    let unmarked = word
        .iter()
        .position(|b| !matches!(b, b'@' | b'$' | b'!'))
        .unwrap_or(0);
    if let Some(lexeme) = word
        .get(unmarked..)
        .filter(|_| unmarked > 0)
        .and_then(plain)
    {
        return Some(lexeme);
    }
    let mut letters = [0; MAX_WORD_BYTES];
    let letters = letters.get_mut(..word.len())?;
    for one in [b'i', b'l'] {
        for (letter, byte) in letters.iter_mut().zip(word) {
            *letter = leet_letter(*byte, one);
        }
        if let Some(lexeme) = plain(letters).or_else(|| misspelled(letters)) {
            return Some(lexeme);
        }
    }
    None
}

/// A key word with one letter too many, too few, wrong, or swapped with its neighbour.
fn misspelled(word: &[u8]) -> Option<Lexeme> {
    if !(5..=16).contains(&word.len()) {
        return None;
    }
    // One edit leaves the first two letters or the last two as they are.
    let lengths = |table: &[[u32; 26]; 26], first: u8, second: u8| {
        let index = |letter: u8| usize::from(letter.wrapping_sub(b'a'));
        let row = table.get(index(first));
        row.and_then(|row| row.get(index(second)).copied())
            .unwrap_or(0)
    };
    let ([a, b, ..], [.., y, z]) = (word, word) else {
        return None;
    };
    if (lengths(&KEY_STARTS, *a, *b) | lengths(&KEY_ENDS, *y, *z)) >> word.len() & 1 == 0 {
        return None;
    }
    // The key words stand in the order of their lengths.
    let first = KEY_WORDS.partition_point(|key| key.text.len() + 1 < word.len());
    KEY_WORDS
        .iter()
        .skip(first)
        .take_while(|key| key.text.len() <= word.len() + 1)
        .filter(|key| key.text.starts_with(&[*a, *b]) || key.text.ends_with(&[*y, *z]))
        .find(|key| is_one_edit(key.text, word))
        .map(|key| Lexeme(key.lexeme))
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

/// Whether one insertion, deletion, substitution or swap of neighbours lies between the two.
fn is_one_edit(a: &[u8], b: &[u8]) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let same = short.iter().zip(long).take_while(|(x, y)| x == y).count();
    let (short, long) = (
        short.get(same..).unwrap_or_default(),
        long.get(same..).unwrap_or_default(),
    );
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
        let (a, b) = (find(a.as_bytes()), find(b.as_bytes()));
        !a.is_unknown() && concepts(a) == concepts(b)
    }

    #[test]
    fn disguised_and_misspelled_words_are_found() {
        for spelling in [
            "vtaber", "1gn0r3", "!gnore", "ingore", "ignor", "ignnore", "ignxre", "$ignore",
        ] {
            assert!(same("ignore", spelling), "{spelling}");
        }
        assert!(same("all", "a11"));
        assert_eq!(find(b"erongi").spelling(), Spelling::Reversed);
        assert_eq!(find(b"vtaber").spelling(), Spelling::Rot13);
    }

    #[test]
    fn neighbours_of_key_words_are_not_taken_for_them() {
        for word in ["ignores", "forged", "revel"] {
            assert!(concepts(find(word.as_bytes())).is_empty(), "{word}");
        }
    }

    #[test]
    fn every_key_word_is_found_with_any_one_edit() {
        let mut tried = 0;
        for key in KEY_WORDS {
            for at in 0..key.text.len() {
                let mut swapped = key.text.to_vec();
                swapped.swap(at, (at + 1).min(key.text.len() - 1));
                let mut changed = key.text.to_vec();
                changed[at] = b'x';
                let mut longer = key.text.to_vec();
                longer.insert(at, b'x');
                let mut shorter = key.text.to_vec();
                shorter.remove(at);
                for word in [swapped, changed, longer, shorter] {
                    let shown = String::from_utf8_lossy(&word).into_owned();
                    let has_length = (5..=16).contains(&word.len());
                    assert!(!has_length || !find(&word).is_unknown(), "{shown}");
                    tried += usize::from(has_length);
                }
            }
        }
        assert!(tried > 500);
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
