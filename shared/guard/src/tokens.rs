//! Cuts the probe view of a text into tokens.

use crate::fold::{fold, is_unspaced, is_word_char};
use crate::lexicon::{self, Lexeme, MAX_WORD_BYTES, leet_letter};
use crate::matcher::{Hit, Matcher, Token};
use crate::rules::{CLAUSE_START, CLOSED, COLON, FOLDED, KEY, LINE_START, OPENED, SENTENCE_START};
use crate::unit::{Kind, unit_at};

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

struct Tokenizer<'a> {
    text: &'a str,
    reading: Reading,
    matcher: Matcher,
    word: Word,
    letters: Vec<Letter>,
    /// A run of characters of a script without spaces: its text, and where each character is.
    run: String,
    run_places: Vec<(usize, usize)>,
    between: Between,
    invisible_in_word: bool,
}

/// The word that is being read.
struct Word {
    bytes: [u8; MAX_WORD_BYTES],
    length: usize,
    /// In the original, in bytes.
    start: usize,
    end: usize,
}

/// What was seen since the last token.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent observations about the same few characters"
)]
#[derive(Debug, Clone, Copy)]
struct Between {
    /// Flags of the next token.
    flags: u16,
    colons: u8,
    quoted: bool,
    /// A full stop, which ends the sentence if white space follows.
    stop: bool,
    space: bool,
    closed: bool,
    /// How many characters it was.
    separators: u8,
}

impl Between {
    const NOTHING: Self = Self {
        flags: 0,
        colons: 0,
        quoted: false,
        stop: false,
        space: false,
        closed: false,
        separators: 0,
    };
}

impl<'a> Tokenizer<'a> {
    fn new(text: &'a str, reading: Reading) -> Self {
        Self {
            text,
            reading,
            matcher: Matcher::new(text.len()),
            word: Word {
                bytes: [0; MAX_WORD_BYTES],
                length: 0,
                start: 0,
                end: 0,
            },
            letters: Vec::new(),
            run: String::new(),
            run_places: Vec::new(),
            between: Between {
                flags: LINE_START | CLAUSE_START,
                ..Between::NOTHING
            },
            invisible_in_word: false,
        }
    }

    fn run(mut self, borders: &[usize]) -> Tokenized {
        let bytes = self.text.as_bytes();
        let mut borders = borders.iter().copied();
        let mut border = borders.next();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            while border.is_some_and(|border| border <= at) {
                self.end_word();
                border = borders.next();
            }
            if lower(byte) != 0 {
                at = self.take_ascii(at);
                continue;
            }
            if is_plain_separator(byte) {
                self.end_word();
                self.separate(char::from(byte));
                at += 1;
                continue;
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
    fn take_ascii(&mut self, at: usize) -> usize {
        self.end_run();
        let rest = self.text.as_bytes().get(at..).unwrap_or_default();
        let word = &mut self.word;
        if word.length == 0 {
            word.start = at;
        }
        let mut length = word.length;
        let mut end = at;
        for byte in rest {
            let lower = lower(*byte);
            if lower == 0 {
                break;
            }
            if let Some(slot) = word.bytes.get_mut(length) {
                *slot = lower;
                length += 1;
            }
            end += 1;
        }
        word.length = length;
        word.end = end;
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
            self.end_spelled_word();
            self.run.push(c);
            self.run_places.push((at, end));
        } else {
            return None;
        }
        Some(end)
    }

    fn take(&mut self, kind: Kind, start: usize, end: usize) {
        match kind {
            Kind::Silent => {}
            Kind::Neutral => self.end_word(),
            Kind::Invisible => {
                if self.word.length > 0 || !self.run.is_empty() {
                    self.invisible_in_word = true;
                    if self.reading == Reading::Split {
                        self.end_word();
                    }
                }
            }
            Kind::Char(c) if is_unspaced(c) => {
                self.end_spelled_word();
                self.run.push(c);
                self.run_places.push((start, end));
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
        self.word.length > 0
            && next(0).eq_ignore_ascii_case(&b't')
            && !next(1).is_ascii_alphanumeric()
    }

    /// Notes a character that is no part of a word.
    fn separate(&mut self, c: char) {
        let between = &mut self.between;
        between.separators = between.separators.saturating_add(1);
        match c {
            '\n' | '\u{2028}' | '\u{2029}' => {
                if between.stop {
                    between.flags |= SENTENCE_START;
                }
                self.apply_after();
                self.between.flags |= LINE_START | CLAUSE_START;
                self.between.stop = false;
                self.between.space = true;
                return;
            }
            '.' => between.stop = true,
            '!' | '?' | '。' | '！' | '？' | '।' | '؟' => {
                between.flags |= SENTENCE_START | CLAUSE_START;
            }
            ':' | '：' => {
                between.colons = between.colons.saturating_add(1);
                between.flags |= CLAUSE_START;
            }
            '"' | '\'' | '“' | '”' | '‘' | '’' => {
                between.quoted |= between.colons == 0;
                between.flags |= CLAUSE_START;
            }
            '(' | '[' | '{' | '<' | '（' | '【' | '「' | '«' => {
                if c == '(' {
                    between.closed = false;
                }
                between.flags |= OPENED | CLAUSE_START;
            }
            ')' | ']' | '}' | '>' | '）' | '】' | '」' | '»' => {
                between.closed |= between.flags & OPENED == 0;
                between.flags = (between.flags | CLAUSE_START) & !OPENED;
            }
            ',' | ';' | '，' | '；' | '、' | '#' | '|' | '¦' | '•' | '·' | '=' | '—' => {
                between.flags |= CLAUSE_START;
            }
            '-' | '–' if between.space || between.flags & LINE_START != 0 => {
                between.flags |= CLAUSE_START;
            }
            c if c.is_whitespace() => {
                if between.stop {
                    between.flags |= SENTENCE_START | CLAUSE_START;
                    between.stop = false;
                }
                between.space = true;
                return;
            }
            _ => {}
        }
        self.between.space = false;
    }

    /// Gives the last token the flags that depend on what follows it.
    fn apply_after(&mut self) {
        let between = self.between;
        if between.colons == 0 && !between.closed {
            self.between.quoted = false;
            return;
        }
        let last = match self.letters.last_mut() {
            Some(letter) => Some(&mut letter.token),
            None => self.matcher.last_mut(),
        };
        if let Some(token) = last {
            if between.colons == 1 {
                token.flags |= if between.quoted { KEY } else { COLON };
            }
            if between.closed {
                token.flags |= CLOSED;
            }
        }
        self.between.colons = 0;
        self.between.quoted = false;
        self.between.closed = false;
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

    fn end_spelled_word(&mut self) {
        if self.word.length > 0 {
            self.push_word();
        }
    }

    /// Looks up the word that was read.
    fn push_word(&mut self) {
        let length = self.word.length;
        let (start, end) = (self.word.start, self.word.end);
        let separators = self.between.separators;
        let flags = self.before_flags();
        self.word.length = 0;
        let bytes = self.word.bytes;
        let word = bytes.get(..length).unwrap_or_default();
        if let [byte] = word {
            let token = Token {
                start,
                end,
                lexeme: Lexeme::default(),
                flags,
            };
            self.letters.push(Letter {
                byte: *byte,
                begins_word: separators > 1,
                token,
            });
            return;
        }
        self.end_letters();
        if length > MAX_SENTENCE_WORD_BYTES && word.is_ascii() {
            let flags = flags | SENTENCE_START;
            self.matcher.push(Token {
                start,
                end,
                lexeme: Lexeme::default(),
                flags,
            });
            self.between.flags |= SENTENCE_START;
            return;
        }
        let lexeme = lexicon::find(word);
        let joined = lexeme.is_unknown()
            && length >= MIN_JOINED_WORDS_LETTERS
            && word.iter().all(u8::is_ascii_lowercase)
            && self.push_joined(
                word,
                Token {
                    start,
                    end,
                    lexeme,
                    flags,
                },
                0,
                2,
            );
        if !joined {
            self.matcher.push(Token {
                start,
                end,
                lexeme,
                flags,
            });
        }
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
        let known = parts
            .iter()
            .filter(|lexeme| !lexicon::concepts(**lexeme).is_empty())
            .count();
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
        let places = std::mem::take(&mut self.run_places);
        let (mut at, mut index) = (0, 0);
        while let (Some(rest), Some(&(start, end))) = (run.get(at..), places.get(index)) {
            let Some(c) = rest.chars().next() else { break };
            let (lexeme, length) =
                lexicon::longest(rest).unwrap_or((Lexeme::default(), c.len_utf8()));
            let count = rest.get(..length).map_or(1, |word| word.chars().count());
            let end = places.get(index + count - 1).map_or(end, |place| place.1);
            self.matcher.push(Token {
                start,
                end,
                lexeme,
                flags,
            });
            flags = 0;
            at += length;
            index += count;
        }
        (self.run, self.run_places) = (run, places);
        self.run.clear();
        self.run_places.clear();
    }
}

/// Whether the byte is always a unit by itself and never part of a word.
fn is_plain_separator(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'"' | b'#' | b'('..=b')' | b'+'..=b'/' | b':'..=b';' | b'='..=b'?' | b']'..=b'_'
            | b'{'..=b'}'
    )
}

/// An ASCII letter or digit in lower case; 0 for every other byte.
fn lower(byte: u8) -> u8 {
    static LOWER: [u8; 256] = {
        let mut table = [0; 256];
        let mut byte = 0_u8;
        while byte.is_ascii() {
            if byte.is_ascii_alphanumeric() {
                table[byte as usize] = byte.to_ascii_lowercase();
            }
            byte += 1;
        }
        table
    };
    LOWER[usize::from(byte)]
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

impl Word {
    fn push_char(&mut self, c: char, start: usize, end: usize) {
        let mut buffer = [0; 4];
        for byte in c.encode_utf8(&mut buffer).bytes() {
            self.push(byte, start, end);
        }
    }

    /// Adds a byte of a character that lies at `start..end` of the original.
    fn push(&mut self, byte: u8, start: usize, end: usize) {
        if self.length == 0 {
            self.start = start;
        }
        self.end = end;
        if let Some(slot) = self.bytes.get_mut(self.length) {
            *slot = byte;
            self.length += 1;
        }
    }
}
