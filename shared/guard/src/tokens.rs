//! Cuts the probe view of a text into tokens.

use crate::ascii::WordPart;
use crate::between::Between;
use crate::fold::{fold, is_unspaced, is_word_char};
use crate::hash::Ends;
use crate::lexeme::Lexeme;
use crate::lexicon::{self, leet_letter};
use crate::matcher::{Hit, Matcher, Token};
use crate::rules::{CLOSED, COLON, FOLDED, KEY, SENTENCE_START};
use crate::unit::{Kind, unit_at};
use crate::word::Word;

/// Single letters in a row that are read as a spaced-out word.
const MIN_SPACED_LETTERS: usize = 4;
/// Words without a space between them are looked for in words of this many letters and more.
const MIN_JOINED_WORDS_LETTERS: usize = 12;
/// A word of more bytes than this ends whatever came before it: it is no word of a sentence.
const MAX_SENTENCE_WORD_BYTES: usize = 40;

/// How an invisible code point inside a word is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As nothing: `ig\u{200B}nore` is `ignore`.
    Joined,
    /// As a space: `ignore\u{200B}all` is `ignore all`.
    Split,
}

/// Finds the patterns of the rules' data in `text`. No word goes over one of the `borders`, which are
/// byte positions in ascending order.
pub(crate) fn find(text: &str, borders: &[usize]) -> Vec<Hit> {
    let joined = Tokenizer::new(text, Reading::Joined).run(borders);
    let mut hits = joined.hits;
    if joined.invisible_in_word {
        hits.extend(Tokenizer::new(text, Reading::Split).run(borders).hits);
    }
    hits
}

/// What [`Tokenizer::run`] gives.
struct Tokenized {
    hits: Vec<Hit>,
    /// Whether the other reading would give other tokens.
    invisible_in_word: bool,
}

/// A token of which it is not yet known whether it stands for itself or is a letter of a spaced-out
/// word.
struct Letter {
    byte: u8,
    /// Whether it stands further from the letter before it than letters of one word do.
    begins_word: bool,
    token: Token,
}

/// Where a character of a run is.
struct Place {
    /// Its end in the run.
    run_end: usize,
    /// In the original, in bytes.
    start: usize,
    end: usize,
}

struct Tokenizer<'a> {
    text: &'a str,
    reading: Reading,
    matcher: Matcher,
    word: Word,
    letters: Vec<Letter>,
    /// A run of characters of a script without spaces: its text, and where each character is.
    run: String,
    run_places: Vec<Place>,
    between: Between,
    invisible_in_word: bool,
}

impl<'a> Tokenizer<'a> {
    fn new(text: &'a str, reading: Reading) -> Self {
        Self {
            text,
            reading,
            matcher: Matcher::new(text.len()),
            word: Word::new(),
            letters: Vec::new(),
            run: String::new(),
            run_places: Vec::new(),
            between: Between::START,
            invisible_in_word: false,
        }
    }

    fn run(mut self, borders: &[usize]) -> Tokenized {
        let bytes = self.text.as_bytes();
        let mut borders = borders.iter().copied();
        let mut next_border = || borders.next().unwrap_or(usize::MAX);
        let mut border = next_border();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            while border <= at {
                self.end_word();
                border = next_border();
            }
            match class(byte) {
                Class::Word => {
                    at = self.take_ascii(at);
                    continue;
                }
                Class::Space => {
                    self.end_word();
                    self.between.see_space();
                    at += 1;
                    continue;
                }
                Class::Separator => {
                    self.end_word();
                    self.between.see(char::from(byte));
                    at += 1;
                    continue;
                }
                Class::Other => {}
            }
            if byte >= 0x80
                && let Some(end) = self.take_letter(at)
            {
                at = end;
                continue;
            }
            let unit = unit_at(self.text, at);
            self.take(unit.kind, at, unit.end);
            at = unit.end;
        }
        self.end_word();
        self.end_letters();
        self.apply_after();
        Tokenized {
            hits: self.matcher.finish(),
            invisible_in_word: self.invisible_in_word,
        }
    }

    /// Takes the ASCII letters and digits from `at` on; gives their end.
    #[inline]
    fn take_ascii(&mut self, at: usize) -> usize {
        self.end_run();
        let bytes = self.text.as_bytes();
        let mut part = WordPart::of(bytes.get(at..).unwrap_or_default());
        let mut end = at + part.length;
        if self.word.is_empty() && part.length < WordPart::MAX_LENGTH {
            let next = bytes.get(end).map_or(Class::Separator, |byte| class(*byte));
            if matches!(next, Class::Space | Class::Separator) {
                self.push_short_word(&part, at);
                if next == Class::Space {
                    self.between.see_space();
                    end += 1;
                }
                return end;
            }
        }
        self.word.push_part(&part, at);
        while part.length == WordPart::MAX_LENGTH {
            part = WordPart::of(bytes.get(end..).unwrap_or_default());
            self.word.push_part(&part, end);
            end += part.length;
        }
        end
    }

    /// Takes a letter that folds by table or belongs to a script without spaces; gives its end.
    fn take_letter(&mut self, at: usize) -> Option<usize> {
        let c = self.text.get(at..)?.chars().next()?;
        let end = at + c.len_utf8();
        if let Some(folded) = folded_letter(c) {
            self.end_run();
            self.word.push_char(folded, at, end);
        } else if is_unspaced(c) {
            self.push_unspaced(c, at, end);
        } else {
            return None;
        }
        Some(end)
    }

    /// Takes a character of a script without spaces.
    fn push_unspaced(&mut self, c: char, start: usize, end: usize) {
        self.end_spelled_word();
        self.run.push(c);
        self.run_places.push(Place {
            run_end: self.run.len(),
            start,
            end,
        });
    }

    fn take(&mut self, kind: Kind, start: usize, end: usize) {
        match kind {
            Kind::Silent => {}
            Kind::Neutral => self.end_word(),
            Kind::Invisible => {
                if !self.word.is_empty() || !self.run.is_empty() {
                    self.invisible_in_word = true;
                    if self.reading == Reading::Split {
                        self.end_word();
                    }
                }
            }
            Kind::Char(c) if is_unspaced(c) => {
                self.push_unspaced(c, start, end);
            }
            Kind::Char(c) if is_word_char(c) => {
                self.end_run();
                let word = &mut self.word;
                match folded_letter(c) {
                    Some(folded) => word.push_char(folded, start, end),
                    None => fold(c, |c| word.push_char(c, start, end)),
                }
            }
            Kind::Char(c) if self.is_letter_sign(c, end) => {
                self.end_run();
                self.word.push(u8::try_from(c).unwrap_or(b'!'), start, end);
            }
            Kind::Char('\'' | '’') if self.is_negation_ending(end) => {}
            Kind::Char(c) => {
                self.end_word();
                self.separate(c);
            }
        }
    }

    /// Whether `c`, which ends at `end`, stands for a letter, as in `p@ssword`.
    fn is_letter_sign(&self, c: char, end: usize) -> bool {
        let next = self.text.as_bytes().get(end).copied().unwrap_or(b' ');
        match c {
            '@' | '$' => next.is_ascii_alphanumeric(),
            // "Stop!Go" are two words, "!gnore" and "h!de" are one.
            '!' => next.is_ascii_lowercase() || next.is_ascii_digit(),
            _ => false,
        }
    }

    /// Whether a `t` follows that ends the word, as in `don't`.
    fn is_negation_ending(&self, end: usize) -> bool {
        let next = |offset: usize| {
            self.text
                .as_bytes()
                .get(end + offset)
                .copied()
                .unwrap_or(b' ')
        };
        !self.word.is_empty()
            && next(0).eq_ignore_ascii_case(&b't')
            && !next(1).is_ascii_alphanumeric()
    }

    /// Notes a character that is no part of a word.
    fn separate(&mut self, c: char) {
        if matches!(c, '\n' | '\u{2028}' | '\u{2029}') {
            self.between.end_line();
            self.apply_after();
            self.between.begin_line();
        } else {
            self.between.see(c);
        }
    }

    /// Gives the last token the flags that depend on what follows it.
    #[inline]
    fn apply_after(&mut self) {
        let flags = self.between.take_after_flags();
        if flags != 0 {
            match self.letters.last_mut() {
                Some(letter) => letter.token.flags |= flags,
                None => self.matcher.flag_last(flags),
            }
        }
    }

    /// The flags of the token that begins now.
    fn before_flags(&mut self) -> u16 {
        self.apply_after();
        std::mem::replace(&mut self.between, Between::NOTHING).flags
    }

    fn end_word(&mut self) {
        self.end_spelled_word();
        self.end_run();
    }

    #[inline]
    fn end_spelled_word(&mut self) {
        if !self.word.is_empty() {
            self.push_word();
        }
    }

    /// Looks up a word that is one part and nothing else, which most words are: what
    /// [`Tokenizer::push_word`] does with less copying.
    #[inline]
    fn push_short_word(&mut self, part: &WordPart, start: usize) {
        let lower = part.lower.to_le_bytes();
        let word = lower.get(..part.length).unwrap_or_default();
        let separators = self.between.separators;
        let mut token = self.token(start, start + part.length);
        if let [byte] = *word {
            self.push_letter(byte, separators, token);
            return;
        }
        token.lexeme = if part.has_digit {
            lexicon::find(word)
        } else {
            lexicon::find_letters(word, Ends::of_short(part.lower))
        };
        self.end_letters();
        self.matcher.push(token);
    }

    /// Looks up the word that was read.
    #[inline(never)]
    fn push_word(&mut self) {
        let separators = self.between.separators;
        let mut token = self.token(self.word.start, self.word.end);
        let word = std::mem::replace(&mut self.word, Word::new());
        let bytes = word.bytes();
        if let [byte] = *bytes {
            self.push_letter(byte, separators, token);
            return;
        }
        self.end_letters();
        if bytes.len() > MAX_SENTENCE_WORD_BYTES && bytes.is_ascii() {
            token.flags |= SENTENCE_START;
            self.between.flags |= SENTENCE_START;
        } else if word.has_only_letters {
            token.lexeme = lexicon::find_letters(bytes, Ends::of(bytes));
            if token.lexeme.is_unknown()
                && bytes.len() >= MIN_JOINED_WORDS_LETTERS
                && self.push_joined(bytes, token, 0, 2)
            {
                return;
            }
        } else {
            token.lexeme = lexicon::find(bytes);
        }
        self.matcher.push(token);
    }

    /// A token that begins now, of a word that is not known yet.
    #[inline]
    fn token(&mut self, start: usize, end: usize) -> Token {
        Token {
            start,
            end,
            lexeme: Lexeme::default(),
            flags: self.before_flags(),
        }
    }

    fn push_letter(&mut self, byte: u8, separators: u8, token: Token) {
        self.letters.push(Letter {
            byte,
            begins_word: separators > 1,
            token,
        });
    }

    /// Looks up the letters that stood alone one after the other.
    #[inline]
    fn end_letters(&mut self) {
        if !self.letters.is_empty() {
            let mut letters = std::mem::take(&mut self.letters);
            self.push_letters(&letters);
            letters.clear();
            self.letters = letters;
        }
    }

    #[inline(never)]
    fn push_letters(&mut self, letters: &[Letter]) {
        if letters.len() < MIN_SPACED_LETTERS {
            for letter in letters {
                let lexeme = lexicon::find(&[letter.byte]);
                self.matcher.push(Token {
                    lexeme,
                    ..letter.token
                });
            }
            return;
        }
        for word in letters.chunk_by(|_, letter| !letter.begins_word) {
            if let [first, .., last] = word {
                let text: Vec<u8> = word
                    .iter()
                    .map(|letter| leet_letter(letter.byte, b'i'))
                    .collect();
                let lexeme = lexicon::find(&text);
                let after_flags = last.token.flags & (COLON | CLOSED | KEY);
                let whole = Token {
                    end: last.token.end,
                    lexeme,
                    ..first.token
                };
                if !lexeme.is_unknown() || !self.push_joined(&text, whole, after_flags, 1) {
                    self.matcher.push(Token {
                        flags: whole.flags | after_flags,
                        ..whole
                    });
                }
            } else if let [letter] = word {
                let lexeme = lexicon::find(&[letter.byte]);
                self.matcher.push(Token {
                    lexeme,
                    ..letter.token
                });
            }
        }
    }

    /// Pushes one token for each word that the run of letters is made of, all with the span of the
    /// run, if at least `min_known` of them belong to a concept.
    fn push_joined(
        &mut self,
        word: &[u8],
        whole: Token,
        after_flags: u16,
        min_known: usize,
    ) -> bool {
        let Ok(text) = std::str::from_utf8(word) else {
            return false;
        };
        let mut parts: Vec<Lexeme> = Vec::new();
        let mut at = 0;
        let mut in_gap = false;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            if let Some((lexeme, length)) = lexicon::longest(rest) {
                parts.push(lexeme);
                at += length;
                in_gap = false;
            } else {
                if !in_gap {
                    parts.push(Lexeme::default());
                }
                in_gap = true;
                at += 1;
            }
        }
        let known = parts.iter().filter(|lexeme| lexeme.has_concept()).count();
        if known < min_known {
            return false;
        }
        let last = parts.len() - 1;
        for (index, lexeme) in parts.into_iter().enumerate() {
            let mut flags = if index == 0 { whole.flags } else { 0 };
            if index == last {
                flags |= after_flags;
            }
            self.matcher.push(Token {
                lexeme,
                flags,
                ..whole
            });
        }
        true
    }

    #[inline]
    fn end_run(&mut self) {
        if !self.run_places.is_empty() {
            self.push_run();
        }
    }

    /// Looks up a run of characters of a script without spaces, at every position.
    #[inline(never)]
    fn push_run(&mut self) {
        self.end_letters();
        let mut flags = self.before_flags();
        let run = std::mem::take(&mut self.run);
        let mut places = std::mem::take(&mut self.run_places);
        let mut characters = places.iter();
        let mut at = 0;
        while let Some(first) = characters.next() {
            let found = run.get(at..).and_then(lexicon::longest);
            let (lexeme, length) = found.unwrap_or((Lexeme::default(), first.run_end - at));
            at += length;
            let mut last = first;
            while last.run_end < at
                && let Some(next) = characters.next()
            {
                last = next;
            }
            self.matcher.push(Token {
                start: first.start,
                end: last.end,
                lexeme,
                flags,
            });
            flags = 0;
        }
        places.clear();
        (self.run, self.run_places) = (run, places);
        self.run.clear();
    }
}

/// What a byte is wherever it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// An ASCII letter or digit.
    Word,
    Space,
    /// Always a unit by itself and never part of a word.
    Separator,
    /// That depends on what stands around it.
    Other,
}

#[inline]
fn class(byte: u8) -> Class {
    static CLASSES: [Class; 256] = {
        let mut classes = [Class::Other; 256];
        let mut byte: u8 = 0;
        while byte.is_ascii() {
            classes[byte as usize] = match byte {
                b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => Class::Word,
                b' ' => Class::Space,
                b'"'
                | b'#'
                | b'('..=b')'
                | b'+'..=b'/'
                | b':'..=b';'
                | b'='..=b'?'
                | b']'..=b'_'
                | b'{'..=b'}' => Class::Separator,
                _ => Class::Other,
            };
            byte += 1;
        }
        classes
    };
    CLASSES[usize::from(byte)]
}

/// What a letter folds to, if the table has it.
fn folded_letter(c: char) -> Option<char> {
    let index = (u32::from(c) as usize).wrapping_sub(0x80);
    char::from_u32(
        FOLDED
            .get(index)
            .copied()
            .filter(|folded| *folded != 0)?
            .into(),
    )
}
