//! Writes the neutralised text.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use crate::OVERLONG_LINE_CHARS;
use crate::encoded::is_base64;
use crate::invisible::{is_invisible, unexpected};
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

/// Applies `edits` to `text`, makes unexpected invisible code points visible and escapes the guard's
/// own marks where they are not its own.
pub(crate) fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.range.start, edit.rank));
    let mut out = String::with_capacity(text.len() + text.len() / 8 + edits.len() * 4);
    let mut invisible = unexpected(text).peekable();
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
                push_visible(&mut out, text.get(at..next.start).unwrap_or_default());
                at = next.start + next.c.len_utf8();
                push_code_point(&mut out, next.c, text.get(at..).unwrap_or_default());
            }
        }
        push_visible(&mut out, text.get(at..edit.range.start).unwrap_or_default());
        out.push_str(&edit.text);
        at = edit.range.end;
    }
    out
}

/// Writes `text` with the guard's marks escaped.
fn push_visible(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some((before, mark, after)) = split_at_mark(rest) {
        out.push_str(before);
        push_code_point(out, mark, after);
        rest = after;
    }
    out.push_str(rest);
}

fn split_at_mark(text: &str) -> Option<(&str, char, &str)> {
    // Both marks begin with this byte, which is rare in other text.
    let mut from = 0;
    loop {
        let at = from + memchr::memchr(0xE2, text.as_bytes().get(from..)?)?;
        let mark = text
            .get(at..)
            .and_then(|rest| rest.chars().next())
            .unwrap_or(' ');
        if matches!(mark, OPEN | CLOSE) {
            return Some((text.get(..at)?, mark, text.get(at + mark.len_utf8()..)?));
        }
        from = at + 1;
    }
}

/// Writes `c` as `[U+200B]`, escaped when `after` would make a link of it.
fn push_code_point(out: &mut String, c: char, after: &str) {
    if after.starts_with(['(', ':']) {
        out.push('\\');
    }
    let _ = write!(out, "[U+{:04X}]", u32::from(c));
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
        let end = unit_at(text, at).end.min(line.end);
        let unit = text.get(at..end).unwrap_or_default();
        chars += unit.chars().count();
        run = if unit.bytes().all(is_encoded) {
            run + unit.len()
        } else {
            0
        };
        backslashes = if unit == "\\" { backslashes + 1 } else { 0 };
        at = end;
        let enough = chars >= FOLD_CHARS + FOLD_SLACK_CHARS || (chars >= FOLD_CHARS && unit == " ");
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
