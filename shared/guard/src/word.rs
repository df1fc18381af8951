//! The word that a tokenizer is reading, in folded form.

use crate::ascii::WordPart;
use crate::lexicon::MAX_WORD_BYTES;

/// The word that is being read.
pub(crate) struct Word {
    /// In folded form; what does not fit is left out, and a part is written with eight bytes.
    bytes: [u8; MAX_WORD_BYTES + 8],
    length: usize,
    /// Whether it is made of the letters from a to z alone.
    pub has_only_letters: bool,
    /// In the original, in bytes.
    pub start: usize,
    pub end: usize,
}

impl Word {
    /// No letter yet.
    pub const fn new() -> Self {
        Self {
            bytes: [0; MAX_WORD_BYTES + 8],
            length: 0,
            has_only_letters: true,
            start: 0,
            end: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Adds letters and digits that begin at `start` of the original.
    #[inline]
    pub fn push_part(&mut self, part: &WordPart, start: usize) {
        if self.length == 0 {
            self.start = start;
        }
        self.end = start + part.length;
        let rest = self.bytes.get_mut(self.length..);
        if let Some(slot) = rest.and_then(<[u8]>::first_chunk_mut) {
            *slot = part.lower.to_le_bytes();
        }
        self.length = (self.length + part.length).min(MAX_WORD_BYTES);
        self.has_only_letters &= !part.has_digit;
    }

    /// Adds a folded character that lies at `start..end` of the original.
    pub fn push_char(&mut self, c: char, start: usize, end: usize) {
        let mut buffer = [0; 4];
        for byte in c.encode_utf8(&mut buffer).bytes() {
            self.push(byte, start, end);
        }
    }

    /// Adds a byte of a character that lies at `start..end` of the original.
    pub fn push(&mut self, byte: u8, start: usize, end: usize) {
        if self.length == 0 {
            self.start = start;
        }
        self.end = end;
        if self.length < MAX_WORD_BYTES
            && let Some(slot) = self.bytes.get_mut(self.length)
        {
            *slot = byte;
            self.length += 1;
            self.has_only_letters &= byte.is_ascii_lowercase();
        }
    }
}
