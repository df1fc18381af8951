//! Lays out the table that leads from a word to its lexeme.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

use crate::fold::{fold, is_unspaced};
use crate::hash::{
    BEGINNING_BITS, BEGINNING_TRIPLES, Ends, LETTER_PAIRS, STEM_BEGINNING_BYTES, STEM_BUCKETS, bit,
    hash_step, letter_pair, triple,
};

/// Shortest word that is also looked for in another spelling, in letters.
const MIN_RESPELLED_LETTERS: usize = 2;
/// The lexeme of the words that are in no concept.
const NO_CONCEPT: u16 = 1;
/// What `Lexeme` adds to the number of a lexeme for each spelling.
const ROT13: u16 = 1 << 14;
const REVERSED: u16 = 1 << 15;
/// Longest key word, in letters.
const MAX_KEY_WORD_LETTERS: usize = 15;
/// Most key words, their other spellings included.
const MAX_KEY_WORDS: usize = 64;

/// What the words stand for. Words of the same concepts are the same to every rule and share a lexeme,
/// which is a number from 1 on.
pub struct Lexicon {
    words: Words,
    stems: Words,
    keys: Vec<(Vec<u8>, u16)>,
    /// For each concept, the lexemes of its words.
    by_concept: Vec<Vec<u16>>,
    count: u16,
}

/// Words and their lexemes, with the bits of their spelling.
type Words = BTreeMap<Vec<u8>, u16>;

impl Lexicon {
    /// Takes the words of each concept, by index, and the words that are in none.
    pub fn new(
        concepts: &[Vec<String>],
        known_words: &[String],
        key_words: &[String],
    ) -> Result<Self, Box<dyn Error>> {
        // Folded words, whether each is a stem, and its concepts.
        let mut all: BTreeMap<(Vec<u8>, bool), Vec<usize>> = BTreeMap::new();
        for (index, spellings) in concepts.iter().enumerate() {
            for spelling in spellings {
                let indices = all.entry(folded(spelling)).or_default();
                if indices.last() != Some(&index) {
                    indices.push(index);
                }
            }
        }
        for known in known_words {
            all.entry(folded(known)).or_default();
        }
        let mut lexicon = Self {
            words: Words::new(),
            stems: Words::new(),
            keys: Vec::new(),
            by_concept: vec![Vec::new(); concepts.len()],
            count: NO_CONCEPT + 1,
        };
        let mut lexemes = BTreeMap::from([(Vec::new(), NO_CONCEPT)]);
        let mut respelled = Vec::new();
        for ((word, is_stem), concepts) in all {
            let lexeme = *lexemes.entry(concepts).or_insert_with_key(|concepts| {
                let lexeme = lexicon.count;
                for concept in concepts {
                    lexicon.by_concept[*concept].push(lexeme);
                }
                lexicon.count += 1;
                lexeme
            });
            if is_stem {
                lexicon.stems.insert(word, lexeme);
            } else {
                if lexeme != NO_CONCEPT {
                    respelled.extend(respellings(&word, lexeme));
                }
                lexicon.words.insert(word, lexeme);
            }
        }
        if lexicon.count > ROT13 {
            return Err("too many lexemes".into());
        }
        for (word, lexeme) in respelled {
            lexicon.words.entry(word).or_insert(lexeme);
        }
        for key in key_words {
            let (word, _) = folded(key);
            let lexeme = *lexicon
                .words
                .get(&word)
                .ok_or_else(|| format!("key word {key} is in no concept"))?;
            lexicon.keys.extend(respellings(&word, lexeme));
            lexicon.keys.push((word, lexeme));
        }
        lexicon.keys.sort_by_key(|(word, _)| word.len());
        Ok(lexicon)
    }

    /// The set of the lexemes of some concepts, as the words of a bit set.
    pub fn set(&self, concepts: &[usize]) -> Vec<u64> {
        let mut set = vec![0; usize::from(self.count).div_ceil(64)];
        for lexeme in concepts
            .iter()
            .flat_map(|concept| &self.by_concept[*concept])
        {
            set[usize::from(lexeme / 64)] |= 1 << (lexeme % 64);
        }
        set
    }

    /// The table as Rust source.
    pub fn generate(&self) -> Result<String, Box<dyn Error>> {
        let mut out = String::new();
        writeln!(
            out,
            "pub(crate) const NO_CONCEPT: u16 = {NO_CONCEPT};\n\
            pub(crate) const LEXEME_COUNT: usize = {};",
            self.count
        )?;
        push_words(&mut out, &self.words)?;
        push_beginnings(&mut out, &self.words)?;
        push_stems(&mut out, &self.stems)?;
        push_keys(&mut out, &self.keys)?;
        Ok(out)
    }
}

/// Open addressing with linear probing, less than half full: a slot is 0 or one more than the index of
/// its word.
fn push_words(out: &mut String, words: &Words) -> Result<(), Box<dyn Error>> {
    let size = (words.len() * 2).next_power_of_two();
    let mut slots: Vec<u16> = vec![0; size];
    let mut middles: Vec<u8> = Vec::new();
    writeln!(out, "pub(crate) static WORDS: [Word; {}] = [", words.len())?;
    for (index, (word, lexeme)) in words.iter().enumerate() {
        let ends = Ends::of(word);
        let mut position = ends.hash() as usize & (size - 1);
        while slots[position] != 0 {
            position = (position + 1) & (size - 1);
        }
        slots[position] = u16::try_from(index + 1)?;
        writeln!(
            out,
            "    Word {{ ends: {ends:?}, length: {}, middle: {}, lexeme: {lexeme} }},",
            u8::try_from(word.len())?,
            u16::try_from(middles.len())?
        )?;
        middles.extend_from_slice(Ends::middle(word));
    }
    writeln!(
        out,
        "];\n\
        pub(crate) static MIDDLES: &[u8] = &{middles:?};\n\
        pub(crate) static SLOTS: [u16; {size}] = {slots:?};"
    )?;
    Ok(())
}

/// Bit sets of the first three bytes of words, and of the hashes of what a word can begin with, in
/// characters.
fn push_beginnings(out: &mut String, words: &Words) -> Result<(), Box<dyn Error>> {
    let mut set = vec![0_u64; (BEGINNING_BITS / 64) as usize];
    let mut triples = vec![0_u64; BEGINNING_TRIPLES / 64];
    for word in words.keys() {
        if let Some(beginning) = word.first_chunk() {
            let triple = triple(*beginning);
            triples[triple / 64] |= 1 << (triple % 64);
        }
        let mut hash = 0;
        for c in std::str::from_utf8(word)?.chars() {
            hash = hash_step(hash, c);
            let (index, mask) = bit(hash, BEGINNING_BITS);
            set[index] |= mask;
        }
    }
    writeln!(
        out,
        "pub(crate) static BEGINNINGS: [u64; {}] = {set:?};\n\
        pub(crate) static TRIPLES: [u64; BEGINNING_TRIPLES / 64] = {triples:?};",
        set.len()
    )?;
    Ok(())
}

/// The stems by the bucket of their beginnings, the longest first, and where each bucket begins.
fn push_stems(out: &mut String, stems: &Words) -> Result<(), Box<dyn Error>> {
    let mut sorted = Vec::new();
    for (word, lexeme) in stems {
        let beginning = word.first_chunk::<STEM_BEGINNING_BYTES>();
        let bucket = Ends::of(beginning.ok_or("a stem is too short")?).stem_bucket();
        sorted.push((bucket, std::cmp::Reverse(word.len()), word, lexeme));
    }
    sorted.sort();
    let starts: Vec<usize> = (0..=STEM_BUCKETS)
        .map(|bucket| sorted.partition_point(|stem| stem.0 < bucket))
        .collect();
    writeln!(
        out,
        "pub(crate) static STEM_STARTS: [u8; {}] = {starts:?};\n\
        pub(crate) static STEMS: &[Stem] = &[",
        starts.len()
    )?;
    for (_, _, word, lexeme) in sorted {
        writeln!(out, "    Stem {{ text: &{word:?}, lexeme: {lexeme} }},")?;
    }
    writeln!(out, "];")?;
    Ok(())
}

/// The key words in the order of their lengths, and as sets of them: those that begin or end with two
/// letters, and those that a word of some length can nearly be.
fn push_keys(out: &mut String, keys: &[(Vec<u8>, u16)]) -> Result<(), Box<dyn Error>> {
    if keys.len() > MAX_KEY_WORDS {
        return Err("too many key words".into());
    }
    let (mut starts, mut ends) = ([0_u64; LETTER_PAIRS], [0_u64; LETTER_PAIRS]);
    let mut lengths = [0_u64; MAX_KEY_WORD_LETTERS + 2];
    writeln!(out, "pub(crate) static KEY_WORDS: &[KeyWord] = &[")?;
    for (index, (word, lexeme)) in keys.iter().enumerate() {
        let ([a, b, ..], [.., y, z]) = (word.as_slice(), word.as_slice()) else {
            return Err("a key word is too short".into());
        };
        if word.len() > MAX_KEY_WORD_LETTERS {
            return Err("a key word is too long".into());
        }
        let key = 1 << index;
        starts[letter_pair(*a, *b)] |= key;
        ends[letter_pair(*y, *z)] |= key;
        // One edit makes the word longer or shorter by one letter at most.
        for keys in &mut lengths[word.len() - 1..=word.len() + 1] {
            *keys |= key;
        }
        writeln!(out, "    KeyWord {{ text: &{word:?}, lexeme: {lexeme} }},")?;
    }
    writeln!(
        out,
        "];\n\
        pub(crate) static KEYS_BY_START: [u64; LETTER_PAIRS] = {starts:?};\n\
        pub(crate) static KEYS_BY_END: [u64; LETTER_PAIRS] = {ends:?};\n\
        pub(crate) static KEYS_BY_LENGTH: [u64; {}] = {lengths:?};",
        lengths.len()
    )?;
    Ok(())
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
