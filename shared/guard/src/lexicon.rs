//! From a word to what it stands for.
//!
//! All words of all languages are in one hash table, in folded spelling; next to each English-looking
//! word stand its ROT13 and its reversed spelling, so that neither disguise needs a pass of its own.
//!
//! The build lays the table out (`build/lexicon.rs`), so that nothing is built when a function starts.

use crate::hash::{
    BEGINNING_BITS, Ends, STEM_BEGINNING_BYTES, bit, hash_step, letter_pair, triple,
};
use crate::lexeme::{Lexeme, ones};
use crate::rules::{
    BEGINNINGS, KEY_WORDS, KEYS_BY_END, KEYS_BY_LENGTH, KEYS_BY_START, MIDDLES, SLOTS, STEM_STARTS,
    STEMS, TRIPLES, WORDS,
};

/// Shortest word that is found inside a run of joined letters.
const MIN_JOINED_LETTERS: usize = 3;
/// Shortest word that is taken for a misspelled key word.
const MIN_MISSPELLED_LETTERS: usize = 5;
/// Longest word that has nothing between its ends, in bytes.
const WHOLE_BYTES: usize = 16;
/// Longest word, in bytes.
pub(crate) const MAX_WORD_BYTES: usize = 64;

/// A word of the table.
#[derive(Debug)]
pub(crate) struct Word {
    /// What tells it from others of its length: all of it up to 16 bytes.
    pub ends: Ends,
    /// Its length in bytes.
    pub length: u8,
    /// Where what lies between the ends begins in [`MIDDLES`].
    pub middle: u16,
    pub lexeme: u16,
}

/// The beginning of a word that any ending may follow.
#[derive(Debug)]
pub(crate) struct Stem {
    pub text: &'static [u8],
    pub lexeme: u16,
}

/// A word that is recognised with one edit.
#[derive(Debug)]
pub(crate) struct KeyWord {
    pub text: &'static [u8],
    pub lexeme: u16,
}

/// Looks up a folded word: as it stands, by its stem, read as leetspeak, with one edit.
pub(crate) fn find(word: &[u8]) -> Lexeme {
    if word.iter().all(u8::is_ascii_lowercase) {
        return find_letters(word, Ends::of(word));
    }
    let leet = || leet(word).filter(|_| word.is_ascii());
    plain(word).or_else(leet).unwrap_or_default()
}

/// Looks up a word of the letters from a to z, whose ends these are.
#[inline]
pub(crate) fn find_letters(word: &[u8], ends: Ends) -> Lexeme {
    search(word, ends).unwrap_or_else(|| unlisted(word))
}

/// A word of letters that is not in the table as it stands.
#[inline(never)]
fn unlisted(word: &[u8]) -> Lexeme {
    let lexeme = stem(word).or_else(|| misspelled(word));
    lexeme.unwrap_or_default()
}

fn plain(word: &[u8]) -> Option<Lexeme> {
    exact(word).or_else(|| stem(word))
}

fn exact(word: &[u8]) -> Option<Lexeme> {
    search(word, Ends::of(word))
}

/// The word of the table that is this one from the first to the last byte.
#[inline]
fn search(word: &[u8], ends: Ends) -> Option<Lexeme> {
    let mut position = ends.hash() as usize;
    loop {
        let slot = usize::from(SLOTS[position % SLOTS.len()]);
        let found = WORDS.get(slot.checked_sub(1)?)?;
        if found.ends == ends
            && usize::from(found.length) == word.len()
            && (word.len() <= WHOLE_BYTES || has_middle(found, word))
        {
            return Some(Lexeme(found.lexeme));
        }
        position += 1;
    }
}

/// Whether `word`, which has the same length and ends, is the same between the ends.
#[cold]
fn has_middle(found: &Word, word: &[u8]) -> bool {
    let middle = Ends::middle(word);
    let start = usize::from(found.middle);
    MIDDLES.get(start..start + middle.len()) == Some(middle)
}

/// The longest stem that the word begins with.
#[inline]
fn stem(word: &[u8]) -> Option<Lexeme> {
    let beginning = word.first_chunk::<STEM_BEGINNING_BYTES>()?;
    let bucket = Ends::of(beginning).stem_bucket() as usize;
    let (start, end) = (STEM_STARTS[bucket], STEM_STARTS[bucket + 1]);
    if start == end {
        return None;
    }
    stem_among(word, STEMS.get(start.into()..end.into())?)
}

fn stem_among(word: &[u8], stems: &[Stem]) -> Option<Lexeme> {
    let stem = stems.iter().find(|stem| word.starts_with(stem.text))?;
    Some(Lexeme(stem.lexeme))
}

/// The longest word at the start of `text`, if any, and its length in bytes.
#[inline]
pub(crate) fn longest(text: &str) -> Option<(Lexeme, usize)> {
    // Most texts begin like none.
    let triple = triple(*text.as_bytes().first_chunk::<MIN_JOINED_LETTERS>()?);
    if TRIPLES[triple / 64] >> (triple % 64) & 1 == 0 {
        return None;
    }
    longest_known(text)
}

fn longest_known(text: &str) -> Option<(Lexeme, usize)> {
    let mut hash = 0;
    let mut longest = None;
    for (index, c) in text.char_indices() {
        let end = index + c.len_utf8();
        hash = hash_step(hash, c);
        let (word, mask) = bit(hash, BEGINNING_BITS);
        if BEGINNINGS.get(word).is_none_or(|word| word & mask == 0) {
            break;
        }
        if end >= MIN_JOINED_LETTERS
            && let Some(lexeme) = exact(text.as_bytes().get(..end)?)
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
        let lexeme = find_letters(letters, Ends::of(letters));
        if !lexeme.is_unknown() {
            return Some(lexeme);
        }
    }
    None
}

/// A key word with one letter too many, too few, wrong, or swapped with its neighbour.
#[inline]
fn misspelled(word: &[u8]) -> Option<Lexeme> {
    if word.len() < MIN_MISSPELLED_LETTERS {
        return None;
    }
    let ([a, b, ..], [.., y, z]) = (word, word) else {
        return None;
    };
    // One edit leaves the first two letters or the last two as they are.
    let near = KEYS_BY_START[letter_pair(*a, *b)] | KEYS_BY_END[letter_pair(*y, *z)];
    let keys = near & KEYS_BY_LENGTH.get(word.len())?;
    if keys == 0 {
        return None;
    }
    misspelled_among(word, keys)
}

fn misspelled_among(word: &[u8], keys: u64) -> Option<Lexeme> {
    let mut keys = ones(keys).filter_map(|key| KEY_WORDS.get(key));
    let key = keys.find(|key| is_one_edit(key.text, word))?;
    Some(Lexeme(key.lexeme))
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
    use crate::lexeme::Spelling;

    fn same(a: &str, b: &str) -> bool {
        let (a, b) = (find(a.as_bytes()), find(b.as_bytes()));
        !a.is_unknown() && a.index() == b.index()
    }

    #[test]
    fn disguised_and_misspelled_words_are_found() {
        for spelling in [
            "vtaber", "1gn0r3", "!gnore", "ingore", "ignor", "ignnore", "ignxre", "$ignore",
        ] {
            assert!(same("ignore", spelling), "{spelling}");
        }
        assert!(same("all", "a11"));
        assert!(find(b"erongi").is_spelled(Spelling::Reversed));
        assert!(find(b"vtaber").is_spelled(Spelling::Rot13));
    }

    #[test]
    fn neighbours_of_key_words_are_not_taken_for_them() {
        for word in ["ignores", "forged", "revel"] {
            assert!(!find(word.as_bytes()).has_concept(), "{word}");
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
