//! What stands between two tokens, and what it says about the one before and the one behind.

use crate::rules::{CLAUSE_START, CLOSED, COLON, KEY, LINE_START, OPENED, SENTENCE_START};

/// What was seen since the last token.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent observations about the same few characters"
)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Between {
    /// Flags of the next token.
    pub flags: u16,
    /// How many characters it was.
    pub separators: u8,
    colons: u8,
    quoted: bool,
    /// A full stop, which ends the sentence if white space follows.
    stop: bool,
    space: bool,
    closed: bool,
}

impl Between {
    /// Behind a token.
    pub const NOTHING: Self = Self {
        flags: 0,
        separators: 0,
        colons: 0,
        quoted: false,
        stop: false,
        space: false,
        closed: false,
    };

    /// In front of the first token.
    pub const START: Self = Self {
        flags: LINE_START | CLAUSE_START,
        ..Self::NOTHING
    };

    /// Takes a character that is no part of a word and ends no line.
    pub fn see(&mut self, c: char) {
        self.separators = self.separators.saturating_add(1);
        match c {
            '.' => self.stop = true,
            '!' | '?' | '。' | '！' | '？' | '।' | '؟' => {
                self.flags |= SENTENCE_START | CLAUSE_START;
            }
            ':' | '：' => {
                self.colons = self.colons.saturating_add(1);
                self.flags |= CLAUSE_START;
            }
            '"' | '\'' | '“' | '”' | '‘' | '’' => {
                self.quoted |= self.colons == 0;
                self.flags |= CLAUSE_START;
            }
            '(' | '[' | '{' | '<' | '（' | '【' | '「' | '«' => {
                if c == '(' {
                    self.closed = false;
                }
                self.flags |= OPENED | CLAUSE_START;
            }
            ')' | ']' | '}' | '>' | '）' | '】' | '」' | '»' => {
                self.closed |= self.flags & OPENED == 0;
                self.flags = (self.flags | CLAUSE_START) & !OPENED;
            }
            ',' | ';' | '，' | '；' | '、' | '#' | '|' | '¦' | '•' | '·' | '=' | '—' => {
                self.flags |= CLAUSE_START;
            }
            '-' | '–' if self.space || self.flags & LINE_START != 0 => {
                self.flags |= CLAUSE_START;
            }
            c if c.is_whitespace() => {
                self.see_white_space();
                return;
            }
            _ => {}
        }
        self.space = false;
    }

    /// Takes a space.
    #[inline]
    pub fn see_space(&mut self) {
        self.separators = self.separators.saturating_add(1);
        self.see_white_space();
    }

    #[inline]
    fn see_white_space(&mut self) {
        if self.stop {
            self.flags |= SENTENCE_START | CLAUSE_START;
            self.stop = false;
        }
        self.space = true;
    }

    /// Takes the end of a line; what it says about the token before must be taken in between this and
    /// [`Between::begin_line`].
    pub fn end_line(&mut self) {
        self.separators = self.separators.saturating_add(1);
        if self.stop {
            self.flags |= SENTENCE_START;
        }
    }

    /// What stands next stands at the start of a line.
    pub fn begin_line(&mut self) {
        self.flags |= LINE_START | CLAUSE_START;
        self.stop = false;
        self.space = true;
    }

    /// The flags that the token before gets from what was seen behind it.
    #[inline]
    pub fn take_after_flags(&mut self) -> u16 {
        let mut flags = 0;
        if self.colons == 1 {
            flags |= if self.quoted { KEY } else { COLON };
        }
        if self.closed {
            flags |= CLOSED;
        }
        self.colons = 0;
        self.quoted = false;
        self.closed = false;
        flags
    }
}
