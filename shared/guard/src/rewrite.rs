//! Writes the neutralised text.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::iter::Peekable;
use std::ops::Range;

use crate::OVERLONG_LINE_CHARS;
use crate::encoded::is_base64;
use crate::invisible::{Invisible, is_invisible};
use crate::unit::{CLOSE, ENCODED_CLOSE, ENCODED_OPEN, FOLD, FOLD_NOTE_END, OPEN, unit_at};

/// Length of the parts of a folded line, in characters; a part goes on to the next space if that is
/// within [`FOLD_SLACK_CHARS`].
const FOLD_CHARS: usize = 200;
const FOLD_SLACK_CHARS: usize = 40;
/// An encoded run is not parted before this many characters: those that are labelled are shorter.
const RUN_CHARS: usize = 100;

/// A change at one place: `range` of the original gives way to `text`.
#[derive(Debug, Clone)]
pub(crate) struct Edit {
    /// In bytes; empty for an insertion.
    pub range: Range<usize>,
    /// Among changes at the same place, the lower rank comes first.
    pub rank: Rank,
    pub text: Cow<'static, str>,
}

/// The order of changes at the same place: what ends there comes before what begins there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    CloseMark,
    CloseLabel,
    LinePrefix,
    OpenLabel,
    OpenMark,
    Bracket,
}

/// Applies `edits` to `text`, makes the `invisible` code points visible and escapes the guard's own
/// marks where they are not its own.
pub(crate) fn apply(text: &str, mut edits: Vec<Edit>, invisible: &[Invisible]) -> String {
    edits.sort_by_key(|edit| (edit.range.start, edit.rank));
    let mut out = String::with_capacity(
        text.len() + text.len() / 8 + edits.len() * 4 + invisible.len() * CODE_POINT_BYTES,
    );
    let mut invisible = invisible.iter().peekable();
    let mut marks = marks(text).peekable();
    let mut at = 0;
    let end = Edit {
        range: text.len()..text.len(),
        rank: Rank::Bracket,
        text: Cow::Borrowed(""),
    };
    for edit in edits.iter().chain(std::iter::once(&end)) {
        if edit.range.start < at {
            continue;
        }
        while let Some(next) = invisible.next_if(|next| next.start < edit.range.start) {
            if next.start >= at {
                push_visible(&mut out, text, at..next.start, &mut marks);
                at = next.start + next.c.len_utf8();
                push_code_point(&mut out, next.c, text.get(at..).unwrap_or_default());
            }
        }
        push_visible(&mut out, text, at..edit.range.start, &mut marks);
        out.push_str(&edit.text);
        at = edit.range.end;
    }
    out
}

/// Writes `part` of `text`, which is unchanged, with the guard's marks escaped; `marks` are those that
/// were not yet come by.
fn push_visible(
    out: &mut String,
    text: &str,
    part: Range<usize>,
    marks: &mut Peekable<impl Iterator<Item = (usize, char)>>,
) {
    let slice = |range: Range<usize>| text.get(range).unwrap_or_default();
    let mut at = part.start;
    while let Some((start, mark)) = marks.next_if(|(start, _)| *start < part.end) {
        // An edit may have replaced it.
        if start >= at {
            let end = start + mark.len_utf8();
            out.push_str(slice(at..start));
            push_code_point(out, mark, slice(end..part.end));
            at = end;
        }
    }
    out.push_str(slice(at..part.end));
}

/// The guard's marks in `text`, and where each is.
pub(crate) fn marks(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    // Both begin with this byte, which begins a character.
    memchr::memchr_iter(0xE2, text.as_bytes()).filter_map(|start| {
        let mark = text.get(start..)?.chars().next()?;
        matches!(mark, OPEN | CLOSE).then_some((start, mark))
    })
}

/// Longest form of a code point that is made visible, in bytes.
const CODE_POINT_BYTES: usize = "[U+10FFFF]".len();

/// Writes `c` as `[U+200B]`, escaped when `after` would make a link of it.
fn push_code_point(out: &mut String, c: char, after: &str) {
    if after.starts_with(['(', ':']) {
        out.push('\\');
    }
    out.push_str("[U+");
    // Without the formatter, which takes several times as long.
    let code = u32::from(c);
    let digits = (32 - code.leading_zeros()).div_ceil(4).max(4);
    for place in (0..digits).rev() {
        let digit = char::from_digit(code >> (4 * place) & 0xF, 16).unwrap_or('0');
        out.push(digit.to_ascii_uppercase());
    }
    out.push(']');
}

/// The beginning of `text`, without invisible code points, markup and line breaks, in marks.
pub(crate) fn excerpt(text: &str, chars: usize) -> String {
    let mut out = String::from(OPEN);
    for (count, c) in text.chars().enumerate() {
        if count >= chars {
            out.push('…');
            break;
        }
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => out.push(' '),
            OPEN | CLOSE => push_code_point(&mut out, c, ""),
            c if is_invisible(c) => push_code_point(&mut out, c, ""),
            c => out.push(c),
        }
    }
    out.push(CLOSE);
    out
}

/// Folds each line that is too long, and gives the first such line's range and the number of them.
pub(crate) fn fold_overlong_lines(text: &str) -> Option<(String, Range<usize>, u32)> {
    // A character takes a byte at least.
    if text.len() <= OVERLONG_LINE_CHARS {
        return None;
    }
    let mut out = String::new();
    let mut first = None;
    let mut count = 0;
    let mut written = 0;
    for line in lines(text) {
        let chars = text
            .get(line.clone())
            .map_or(0, |line| line.chars().count());
        if chars <= OVERLONG_LINE_CHARS {
            continue;
        }
        out.push_str(text.get(written..line.start).unwrap_or_default());
        written = line.end;
        first = first.or(Some(line.clone()));
        count += 1;
        let _ = write!(out, "[{chars}{FOLD_NOTE_END}{FOLD}");
        push_folded(&mut out, text, line);
    }
    out.push_str(text.get(written..).unwrap_or_default());
    first.map(|first| (out, first, count))
}

/// The lines that could be too long; shorter ones may be left out.
fn lines(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    let ends = memchr::memchr_iter(b'\n', text.as_bytes()).chain(std::iter::once(text.len()));
    ends.filter_map(move |end| {
        let line = start..end;
        start = end + 1;
        (line.len() > OVERLONG_LINE_CHARS).then_some(line)
    })
}

/// Writes one line in parts. A part ends with a unit of the probe view, so that folding changes
/// nothing in what the guard reads.
fn push_folded(out: &mut String, text: &str, line: Range<usize>) {
    let mut part_start = line.start;
    let mut chars = 0;
    let mut run = 0_usize;
    let mut backslashes = 0_usize;
    let mut at = line.start;
    while at < line.end {
        let start = at;
        match text.as_bytes().get(at) {
            // Always a unit by itself.
            Some(byte) if is_encoded(*byte) => {
                at += 1;
                chars += 1;
                run += 1;
                backslashes = 0;
            }
            _ => {
                at = unit_at(text, at).end.min(line.end);
                let unit = text.get(start..at).unwrap_or_default();
                chars += unit.chars().count();
                run = 0;
                backslashes = if unit == "\\" { backslashes + 1 } else { 0 };
            }
        }
        if chars < FOLD_CHARS {
            continue;
        }
        let unit = text.get(start..at).unwrap_or_default();
        let enough = chars >= FOLD_CHARS + FOLD_SLACK_CHARS || unit == " ";
        if !enough || at == line.end {
            continue;
        }
        let rest = text.get(at..line.end).unwrap_or_default();
        let in_run = (1..RUN_CHARS).contains(&run) && rest.bytes().next().is_some_and(is_encoded);
        // An odd number of backslashes escapes what follows.
        if !in_run && backslashes.is_multiple_of(2) && may_part(unit, rest) {
            out.push_str(text.get(part_start..at).unwrap_or_default());
            out.push_str(FOLD);
            part_start = at;
            chars = 0;
        }
    }
    out.push_str(text.get(part_start..line.end).unwrap_or_default());
}

/// Whether the byte can be part of an encoded run, its padding included.
fn is_encoded(byte: u8) -> bool {
    is_base64(byte) || byte == b'='
}

/// Whether nothing is lost when `unit` and `rest` are parted: an invisible code point is spelling or
/// not by its neighbours, and a mark or label is the guard's own only next to what it marks.
fn may_part(unit: &str, rest: &str) -> bool {
    let last = unit.chars().last().unwrap_or(' ');
    let next = rest.chars().next().unwrap_or(' ');
    !is_invisible(last)
        && !is_invisible(next)
        && last != OPEN
        && next != CLOSE
        && unit != ENCODED_OPEN
        && !rest.starts_with(ENCODED_CLOSE)
}
