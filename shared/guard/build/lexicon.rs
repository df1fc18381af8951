//! Lays out the table that leads from a word to its concepts.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

use crate::fold::{fold, is_unspaced};
use crate::hash::{BEGINNING_BITS, STEM_BITS, bit, hash_step};

/// Shortest word that is also looked for in another spelling, in letters.
const MIN_RESPELLED_LETTERS: usize = 2;
/// What `Lexeme` adds to the number of a word for each spelling.
const ROT13: u16 = 1 << 14;
const REVERSED: u16 = 1 << 15;
/// What a slot adds to the length of a word when it is a stem.
const STEM: u8 = 1 << 7;

/// A word as the table holds it.
struct Entry {
    word: Vec<u8>,
    is_stem: bool,
    lexeme: u16,
}

/// The table as Rust source.
pub fn generate(
    concepts: &[Vec<String>],
    known_words: &[String],
    key_words: &[String],
) -> Result<String, Box<dyn Error>> {
    let mut words: BTreeMap<(Vec<u8>, bool), Vec<usize>> = BTreeMap::new();
    for (index, spellings) in concepts.iter().enumerate() {
        for spelling in spellings {
            let indices = words.entry(folded(spelling)).or_default();
            if indices.last() != Some(&index) {
                indices.push(index);
            }
        }
    }
    for known in known_words {
        words.entry(folded(known)).or_default();
    }
    let mut entries: BTreeMap<(Vec<u8>, bool), u16> = BTreeMap::new();
    let mut respelled = Vec::new();
    let mut concept_lists: Vec<usize> = Vec::new();
    let mut starts = vec![0, 0];
    for ((word, is_stem), indices) in words {
        concept_lists.extend_from_slice(&indices);
        let lexeme = u16::try_from(starts.len() - 1)?;
        if lexeme >= ROT13 {
            return Err("too many words".into());
        }
        starts.push(concept_lists.len());
        if !is_stem && !indices.is_empty() {
            respelled.extend(respellings(&word, lexeme));
        }
        entries.insert((word, is_stem), lexeme);
    }
    for (word, lexeme) in respelled {
        entries.entry((word, false)).or_insert(lexeme);
    }
    let mut keys: Vec<(Vec<u8>, u16)> = Vec::new();
    for key in key_words {
        let (word, _) = folded(key);
        let lexeme = *entries
            .get(&(word.clone(), false))
            .ok_or_else(|| format!("key word {key} is in no concept"))?;
        keys.extend(respellings(&word, lexeme));
        keys.push((word, lexeme));
    }
    keys.sort_by_key(|(word, _)| word.len());
    let entries: Vec<Entry> = entries
        .into_iter()
        .map(|((word, is_stem), lexeme)| Entry {
            word,
            is_stem,
            lexeme,
        })
        .collect();

    let mut out = String::new();
    writeln!(
        out,
        "pub(crate) static CONCEPT_LISTS: [u16; {}] = {concept_lists:?};",
        concept_lists.len()
    )?;
    writeln!(
        out,
        "pub(crate) static CONCEPT_STARTS: [u16; {}] = {starts:?};",
        starts.len()
    )?;
    push_key_words(&mut out, &keys)?;
    push_slots(&mut out, &entries)?;
    push_bits(
        &mut out,
        "BEGINNINGS",
        BEGINNING_BITS,
        &entries,
        |entry, add| {
            let mut hash = 0;
            for byte in &entry.word {
                hash = hash_step(hash, *byte);
                add(hash);
            }
        },
    )?;
    push_bits(&mut out, "STEMS", STEM_BITS, &entries, |entry, add| {
        if entry.is_stem {
            add(hash_of(&entry.word));
        }
    })?;
    Ok(out)
}

/// The key words, and for the two letters that one begins or ends with, as bits, how long what is nearly
/// this word can be.
fn push_key_words(out: &mut String, keys: &[(Vec<u8>, u16)]) -> Result<(), Box<dyn Error>> {
    writeln!(out, "pub(crate) static KEY_WORDS: &[KeyWord] = &[")?;
    for (word, lexeme) in keys {
        let text = std::str::from_utf8(word)?;
        writeln!(out, "    KeyWord {{ text: b{text:?}, lexeme: {lexeme} }},")?;
    }
    writeln!(out, "];")?;
    let (mut key_starts, mut key_ends) = ([[0_u32; 26]; 26], [[0_u32; 26]; 26]);
    for (word, _) in keys {
        if let ([a, b, ..], [.., y, z]) = (word.as_slice(), word.as_slice()) {
            let index = |letter: &u8| usize::from(letter - b'a');
            // One edit makes the word longer or shorter by one letter at most.
            let lengths = 7_u32 << (word.len() - 1);
            key_starts[index(a)][index(b)] |= lengths;
            key_ends[index(y)][index(z)] |= lengths;
        }
    }
    writeln!(
        out,
        "pub(crate) static KEY_STARTS: [[u32; 26]; 26] = {key_starts:?};"
    )?;
    writeln!(
        out,
        "pub(crate) static KEY_ENDS: [[u32; 26]; 26] = {key_ends:?};"
    )?;
    Ok(())
}

/// Open addressing with linear probing, less than half full.
fn push_slots(out: &mut String, entries: &[Entry]) -> Result<(), Box<dyn Error>> {
    let size = (entries.len() * 2).next_power_of_two();
    let mut slots: Vec<Option<(u32, usize, u8, u16)>> = vec![None; size];
    let mut texts: Vec<u8> = Vec::new();
    for entry in entries {
        let hash = hash_of(&entry.word);
        let length = u8::try_from(entry.word.len())?;
        if length >= STEM {
            return Err("a word is too long".into());
        }
        let mut position = hash as usize & (size - 1);
        while slots[position].is_some() {
            position = (position + 1) & (size - 1);
        }
        let length = if entry.is_stem { length | STEM } else { length };
        slots[position] = Some((hash, texts.len(), length, entry.lexeme));
        texts.extend_from_slice(&entry.word);
    }
    writeln!(out, "pub(crate) static SLOTS: [Slot; {size}] = [")?;
    for slot in slots {
        let (hash, text, length, lexeme) = slot.unwrap_or_default();
        writeln!(
            out,
            "    Slot {{ hash: {hash}, text: {text}, length: {length}, lexeme: {lexeme} }},"
        )?;
    }
    writeln!(out, "];")?;
    writeln!(
        out,
        "pub(crate) static TEXTS: &[u8] = {:?}.as_bytes();",
        std::str::from_utf8(&texts)?
    )?;
    Ok(())
}

fn hash_of(word: &[u8]) -> u32 {
    word.iter().fold(0, |hash, byte| hash_step(hash, *byte))
}

/// A bit set of the hashes that `hashes` adds for each entry.
fn push_bits(
    out: &mut String,
    name: &str,
    bits: u32,
    entries: &[Entry],
    hashes: impl Fn(&Entry, &mut dyn FnMut(u32)),
) -> Result<(), std::fmt::Error> {
    let mut set = vec![0_u64; (bits / 64) as usize];
    for entry in entries {
        hashes(entry, &mut |hash| {
            let (index, mask) = bit(hash, bits);
            set[index] |= mask;
        });
    }
    writeln!(
        out,
        "pub(crate) static {name}: [u64; {}] = {set:?};",
        set.len()
    )
}

/// The other spellings of a word of Latin letters.
fn respellings(word: &[u8], lexeme: u16) -> Vec<(Vec<u8>, u16)> {
    if word.len() < MIN_RESPELLED_LETTERS || !word.iter().all(u8::is_ascii_lowercase) {
        return Vec::new();
    }
    let rot13 = word.iter().map(|b| (b - b'a' + 13) % 26 + b'a').collect();
    let reversed = word.iter().rev().copied().collect();
    vec![(rot13, lexeme | ROT13), (reversed, lexeme | REVERSED)]
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
