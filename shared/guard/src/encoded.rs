//! Text that is hidden in base64, hexadecimal or binary digits.
//!
//! One level is decoded, up to a fixed number of bytes for a text, and only to look at it: the
//! decoded form never leaves this crate.

use std::ops::Range;

use crate::Rule;
use crate::markup;
use crate::tokens;
use crate::unit::{ENCODED_CLOSE, ENCODED_OPEN, FOLD};

/// Shortest run that is decoded, in characters.
const MIN_ENCODED_CHARS: usize = 20;
/// Shortest row of digit groups, in bytes: its digits, and the spaces between and behind three groups.
const MIN_GROUPS_BYTES: usize = MIN_ENCODED_CHARS + 3;
/// A run of this many payload characters is worth mentioning by itself.
const BLOB_CHARS: usize = 200;
/// A run goes on in the next line when its first line has this many characters.
const MIN_FIRST_LINE_CHARS: usize = 60;
/// Most bytes that are decoded for one text.
const MAX_DECODED_BYTES: usize = 256 * 1024;

/// An encoded run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub rule: Rule,
    pub detail: &'static str,
    /// In the original, in bytes.
    pub span: Range<usize>,
}

/// How a run is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Base64,
    /// Pairs of hexadecimal digits.
    Hex,
    /// Groups of eight binary digits.
    Binary,
}

/// Finds encoded runs that hide something, and long ones that may.
pub(crate) fn find(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    let mut budget = MAX_DECODED_BYTES;
    let bytes = text.as_bytes();
    let (mut run_start, mut groups_start) = (next_run(bytes, 0), next_groups(bytes, 0));
    while let Some(start) = [run_start, groups_start].into_iter().flatten().min() {
        let run = Run::at(bytes, start);
        // At least one byte further on, whatever the run is.
        let at = run.end.max(start + 1);
        run_start = if run_start.is_some_and(|start| start < at) {
            next_run(bytes, at)
        } else {
            run_start
        };
        groups_start = if groups_start.is_some_and(|start| start < at) {
            next_groups(bytes, at)
        } else {
            groups_start
        };
        if run.payload < MIN_ENCODED_CHARS {
            continue;
        }
        let trips = run.encodings().iter().find(|encoding| {
            let Some(decoded) = decode(run.digits(bytes), run.payload, **encoding, &mut budget)
            else {
                return false;
            };
            says_something(&decoded)
        });
        match trips {
            Some(Encoding::Base64) => found.push(Found {
                rule: Rule::Base64EncodedInstruction,
                detail: "base64 that decodes to an instruction",
                span: start..run.end,
            }),
            Some(encoding) => found.push(Found {
                rule: Rule::InstructionOverride,
                detail: if *encoding == Encoding::Hex {
                    "hexadecimal digits that decode to an instruction"
                } else {
                    "binary digits that decode to an instruction"
                },
                span: start..run.end,
            }),
            None if run.is_blob() => found.push(Found {
                rule: Rule::Base64Blob,
                detail: "a long base64 run",
                span: start..run.end,
            }),
            None => {}
        }
    }
    found
}

/// A maximal run of encoded characters.
struct Run {
    start: usize,
    end: usize,
    /// Characters without the line breaks and spaces between groups.
    payload: usize,
    /// The kinds that all of these characters are, and those that one of them is.
    all: u8,
    any: u8,
    has_lines: bool,
}

/// Kinds of bytes: part of an encoded run.
const BASE64: u8 = 1;
/// A hexadecimal digit.
const HEX: u8 = 1 << 1;
/// A binary digit.
const BINARY: u8 = 1 << 2;
/// An upper-case letter, a lower-case letter, a digit.
const UPPER: u8 = 1 << 3;
const LOWER: u8 = 1 << 4;
const DIGIT: u8 = 1 << 5;
/// Part of a row of digit groups, the mark of a folded line in it included.
const GROUPED: u8 = 1 << 6;

static KINDS: [u8; 256] = {
    let mut kinds = [0; 256];
    let mut byte: u8 = 0;
    while byte.is_ascii() {
        let mut kind = 0;
        if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_') {
            kind |= BASE64;
        }
        if byte.is_ascii_hexdigit() {
            kind |= HEX | GROUPED;
        }
        kind |= match byte {
            b'0' | b'1' => BINARY | DIGIT,
            b'2'..=b'9' => DIGIT,
            b'A'..=b'Z' => UPPER,
            b'a'..=b'z' => LOWER,
            b' ' => GROUPED,
            _ => 0,
        };
        kinds[byte as usize] = kind;
        byte += 1;
    }
    let fold = FOLD.as_bytes();
    let mut at = 0;
    while at < fold.len() {
        kinds[fold[at] as usize] |= GROUPED;
        at += 1;
    }
    kinds
};

/// Whether the byte is of one of these kinds.
#[inline]
fn is(byte: u8, kinds: u8) -> bool {
    KINDS[usize::from(byte)] & kinds != 0
}

/// Whether the byte can be part of an encoded run.
#[inline]
pub(crate) fn is_base64(byte: u8) -> bool {
    is(byte, BASE64)
}

/// Start of the next run that is long enough, from `at` on, which is not inside a run.
fn next_run(bytes: &[u8], at: usize) -> Option<usize> {
    let mut start = at;
    loop {
        // From the far end: most words end before it, and all up to the last gap can be skipped.
        let window = bytes.get(start..start + MIN_ENCODED_CHARS)?;
        match window.iter().rposition(|b| !is_base64(*b)) {
            None => return Some(start),
            Some(gap) => start += gap + 1,
        }
    }
}

/// Start of the next stretch that is long enough for a row of digit groups, from `at` on. What is in
/// front of it is part of none: a row is made of such bytes alone.
fn next_stretch(bytes: &[u8], at: usize) -> Option<usize> {
    let mut start = at;
    loop {
        let window = bytes.get(start..start + MIN_GROUPS_BYTES)?;
        match window.iter().rposition(|b| !is(*b, GROUPED)) {
            None => return Some(start),
            Some(gap) => start += gap + 1,
        }
    }
}

/// Start of the next row of digit groups, `69 67 6e …` or `01101001 01100111 …`, from `at` on.
fn next_groups(bytes: &[u8], at: usize) -> Option<usize> {
    let at = next_stretch(bytes, at)?;
    let mut first = 0;
    let mut size = 0;
    let mut count = 0;
    let mut previous: Option<usize> = None;
    for space in memchr::memchr_iter(b' ', bytes.get(at..)?).map(|index| at + index) {
        let start = previous.map_or(at, |previous| previous + 1);
        let group = bytes.get(start..space)?;
        let before = previous.replace(space);
        if !is_digit_group(group) {
            // The mark of a folded line is not there.
            let is_fold = group.len() + 1 == FOLD.len() && FOLD.as_bytes().starts_with(group);
            if !is_fold && before.is_some() {
                count = 0;
            }
            continue;
        }
        if before.is_none() {
            continue;
        }
        if count == 0 || group.len() != size {
            (first, size, count) = (start, group.len(), 0);
        }
        count += 1;
        if count * size >= MIN_ENCODED_CHARS {
            // The group in front of the first space may belong to it.
            let before = first.checked_sub(size + 1).filter(|start| {
                *start >= at
                    && bytes.get(*start..first - 1).is_some_and(is_digit_group)
                    && (*start == 0 || !bytes.get(start - 1).is_some_and(|b| is_base64(*b)))
            });
            return Some(before.unwrap_or(first));
        }
    }
    None
}

/// The place behind the space at `at`, and behind the mark of a folded line if one follows.
fn behind_space(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at + 1..) {
        Some(rest) if rest.starts_with(FOLD.as_bytes()) => at + 1 + FOLD.len(),
        _ => at + 1,
    }
}

/// Whether these are two hexadecimal digits or eight binary ones.
fn is_digit_group(group: &[u8]) -> bool {
    match group.len() {
        2 => group.iter().all(u8::is_ascii_hexdigit),
        8 => group.iter().all(|b| matches!(b, b'0' | b'1')),
        _ => false,
    }
}

impl Run {
    fn at(bytes: &[u8], start: usize) -> Self {
        let mut run = Self {
            start,
            end: start,
            payload: 0,
            all: HEX | BINARY,
            any: 0,
            has_lines: false,
        };
        let mut first_line = 0;
        let mut at = start;
        while let Some(&byte) = bytes.get(at) {
            let kinds = KINDS[usize::from(byte)];
            if kinds & BASE64 != 0 {
                run.payload += 1;
                first_line += usize::from(!run.has_lines);
                run.all &= kinds;
                run.any |= kinds;
                at += 1;
                run.end = at;
                continue;
            }
            let next = |offset: usize| bytes.get(at + offset).copied().is_some_and(is_base64);
            if bytes
                .get(at..)
                .is_some_and(|rest| rest.starts_with(FOLD.as_bytes()))
                && next(FOLD.len())
            {
                at += FOLD.len();
            } else if byte == b' '
                && run.all & HEX != 0
                && run.goes_on_behind_space(bytes, behind_space(bytes, at))
            {
                at = behind_space(bytes, at);
            } else if byte == b'\n' && first_line >= MIN_FIRST_LINE_CHARS && next(1) {
                at += 1;
                run.has_lines = true;
            } else if byte == b'\r'
                && first_line >= MIN_FIRST_LINE_CHARS
                && bytes.get(at + 1) == Some(&b'\n')
                && next(2)
            {
                at += 2;
                run.has_lines = true;
            } else {
                break;
            }
        }
        let padding = bytes
            .get(run.end..)
            .unwrap_or_default()
            .iter()
            .take(2)
            .take_while(|b| **b == b'=')
            .count();
        run.end += padding;
        run
    }

    /// Whether a group of digits like the ones so far follows at `at`.
    fn goes_on_behind_space(&self, bytes: &[u8], at: usize) -> bool {
        let size = if self.all & BINARY != 0 && self.payload.is_multiple_of(8) {
            8
        } else {
            2
        };
        let Some(group) = bytes.get(at..at + size) else {
            return false;
        };
        let fits = |b: &u8| {
            if size == 8 {
                matches!(b, b'0' | b'1')
            } else {
                b.is_ascii_hexdigit()
            }
        };
        group.iter().all(fits) && !bytes.get(at + size).is_some_and(|b| is_base64(*b))
    }

    /// The encodings that it can be written in.
    fn encodings(&self) -> &'static [Encoding] {
        if self.all & BINARY != 0 {
            &[Encoding::Binary]
        } else if self.all & HEX != 0 {
            &[Encoding::Hex, Encoding::Base64]
        } else {
            &[Encoding::Base64]
        }
    }

    /// The run without line breaks and spaces.
    fn digits<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = u8> + use<'a> {
        let run = bytes.get(self.start..self.end).unwrap_or_default();
        run.iter().copied().filter(|b| is_base64(*b))
    }

    /// Long, and not a word or a path: mixed case, or digits among the letters.
    fn is_blob(&self) -> bool {
        let has = |kinds: u8| self.any & kinds != 0;
        self.payload >= BLOB_CHARS
            && ((has(UPPER) && has(LOWER)) || has(DIGIT))
            && has(UPPER | LOWER)
    }
}

/// Whether a rule about what is said finds something in decoded text.
fn says_something(decoded: &str) -> bool {
    let mut has_tag = false;
    markup::find(decoded, |found| has_tag |= found.rule == Rule::FakeRoleTag);
    has_tag || !tokens::find(decoded, &[]).is_empty()
}

/// Decodes what is text, within the budget: so many digits.
fn decode(
    digits: impl Iterator<Item = u8>,
    count: usize,
    encoding: Encoding,
    budget: &mut usize,
) -> Option<String> {
    let bits = match encoding {
        Encoding::Base64 => 6,
        Encoding::Hex => 4,
        Encoding::Binary => 1,
    };
    let length = (count * bits / 8).min(*budget);
    let mut out = Vec::with_capacity(length);
    let (mut buffer, mut filled) = (0_u32, 0);
    for digit in digits {
        let value = match digit {
            b'0'..=b'9' if bits < 6 => digit - b'0',
            b'a'..=b'f' if bits == 4 => digit - b'a' + 10,
            b'A'..=b'F' if bits == 4 => digit - b'A' + 10,
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            _ => 63,
        };
        buffer = buffer << bits | u32::from(value);
        filled += bits;
        if filled >= 8 {
            if out.len() >= length {
                break;
            }
            filled -= 8;
            out.push(u8::try_from(buffer >> filled & 0xFF).unwrap_or(0));
            // What is not text shows early: most runs are keys, hashes and images.
            if out.len() == 12 && !is_text(&out) {
                return None;
            }
        }
    }
    *budget -= out.len().min(*budget);
    is_text(&out).then(|| String::from_utf8_lossy(&out).into_owned())
}

/// Whether the bytes can be written text, a character cut at the end allowed.
fn is_text(bytes: &[u8]) -> bool {
    let valid = match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    let control = bytes
        .iter()
        .filter(|b| b.is_ascii_control() && !b.is_ascii_whitespace())
        .count();
    valid && control == 0
}

/// Whether the run at `span` already stands between the labels.
pub(crate) fn is_labelled(text: &str, span: &Range<usize>) -> bool {
    let (before, after) = (
        text.get(..span.start).unwrap_or_default(),
        text.get(span.end..).unwrap_or_default(),
    );
    let line_break = |text: &str| usize::from(text.starts_with('\n'));
    before.trim_end_matches('\n').len() + 1 >= before.len()
        && before
            .strip_suffix('\n')
            .unwrap_or(before)
            .ends_with(ENCODED_OPEN)
        && after
            .get(line_break(after)..)
            .is_some_and(|rest| rest.starts_with(ENCODED_CLOSE))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_row_of_digit_groups_is_found_where_it_begins(
            before in "([g-z]{1,9}[ (]){0,9}",
            row in "([0-9a-f]{2} ){11,20}|([01]{8} ){4,9}",
            behind in "[g-z(][a-z0-9 ]{0,60}",
        ) {
            let text = format!("{before}(){row}{behind}");
            prop_assert_eq!(next_groups(text.as_bytes(), 0), Some(before.len() + 2));
        }
    }
}
