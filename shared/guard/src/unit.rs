//! The probe view, one unit at a time: what a model would make of the text at one position.
//!
//! A unit is one character of the original or a longer spelling of one: an entity, a percent or
//! backslash escape, an invisible code point, or one of the visible forms that the guard itself
//! writes. Reading the guard's own forms like the originals is what makes sanitising idempotent:
//! a sanitised text has the same probe view as the text it was made from.

use crate::invisible::{is_invisible, smuggled_ascii};

/// Opening mark around neutralised text.
pub(crate) const OPEN: char = '⟦';
/// Closing mark around neutralised text.
pub(crate) const CLOSE: char = '⟧';
/// Stands between two parts of a folded line.
pub(crate) const FOLD: &str = "\n↪ ";
/// How the note in front of a folded line ends.
pub(crate) const FOLD_NOTE_END: &str = " characters]";
/// Label in front of a run of encoded text.
pub(crate) const ENCODED_OPEN: &str = "⟦encoded, not decoded⟧";
/// Label behind such a run.
pub(crate) const ENCODED_CLOSE: &str = "⟦/encoded⟧";
/// Put in front of a line that starts like a chat role.
pub(crate) const LINE_PREFIX: &str = "¦ ";

/// Longest content of an HTML comment that is taken for a way to split a word, in bytes.
const MAX_SPLITTING_COMMENT_BYTES: usize = 8;

/// What a unit is to the words around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A character, part of a word or between words.
    Char(char),
    /// Not there: Markdown emphasis, the fold of a long line.
    Silent,
    /// Not visible: a model may read over it or take it for a space.
    Invisible,
    /// Ends a word and says nothing else: the guard's marks, a lone backslash.
    Neutral,
}

/// One unit and where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    pub kind: Kind,
    /// End, in bytes from the start of the text.
    pub end: usize,
}

/// Reads the unit that starts at byte `at`, which must be a character boundary before the end.
#[inline]
pub(crate) fn unit_at(text: &str, at: usize) -> Unit {
    let bytes = text.as_bytes();
    let kind = match bytes.get(at) {
        Some(byte) if is_plain(*byte) => Kind::Char(char::from(*byte)),
        // Most brackets begin nothing longer.
        Some(byte @ (b'<' | b'['))
            if !matches!(bytes.get(at + 1), Some(b'!' | b'U' | b'0'..=b'9')) =>
        {
            Kind::Char(char::from(*byte))
        }
        Some(b'*' | b'~' | b'`') => Kind::Silent,
        _ => return longer_unit_at(text, at),
    };
    Unit { kind, end: at + 1 }
}

/// Whether the byte is printable ASCII that stands for itself wherever it stands.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
        && !matches!(byte, b'*' | b'~' | b'`' | b'&' | b'<' | b'[' | b'%' | b'\\')
}

/// Reads a unit that may be longer than one byte.
fn longer_unit_at(text: &str, at: usize) -> Unit {
    let rest = text.get(at..).unwrap_or_default();
    let unit = |kind, length: usize| Unit {
        kind,
        end: at + length,
    };
    match rest.as_bytes().first() {
        None => unit(Kind::Neutral, 1),
        Some(b'[') => match (escaped_code_point(rest), fold_note_length(rest)) {
            (Some((c, length)), _) => unit(kind_of_special(c), length),
            (None, Some(length)) => unit(Kind::Silent, length),
            (None, None) => unit(Kind::Char('['), 1),
        },
        Some(b'&') => entity(rest).map_or(unit(Kind::Char('&'), 1), |(c, length)| {
            splitting_comment(rest, "&lt;!--", "--&gt;").map_or_else(
                || unit(kind_of(c), length),
                |length| unit(Kind::Invisible, length),
            )
        }),
        Some(b'<') => splitting_comment(rest, "<!--", "-->")
            .map_or(unit(Kind::Char('<'), 1), |length| {
                unit(Kind::Invisible, length)
            }),
        Some(b'%') => {
            percent_escape(rest).map_or(unit(Kind::Char('%'), 1), |c| unit(Kind::Char(c), 3))
        }
        Some(b'\\') => backslash_escape(rest).map_or(unit(Kind::Neutral, 1), |(c, length)| {
            unit(kind_of(c), length)
        }),
        Some(b'\n') if rest.starts_with(FOLD) => unit(Kind::Silent, FOLD.len()),
        Some(_) => {
            let c = rest.chars().next().unwrap_or(' ');
            if c == OPEN
                && let Some(label) = [ENCODED_OPEN, ENCODED_CLOSE]
                    .iter()
                    .find(|l| rest.starts_with(**l))
            {
                return unit(Kind::Neutral, label.len());
            }
            unit(kind_of(c), c.len_utf8())
        }
    }
}

/// Length of the note in front of a folded line, `[4096 characters]` and the fold mark.
fn fold_note_length(text: &str) -> Option<usize> {
    let digits = text
        .strip_prefix('[')?
        .bytes()
        .take(20)
        .take_while(u8::is_ascii_digit)
        .count();
    let rest = text.get(1 + digits..)?.strip_prefix(FOLD_NOTE_END)?;
    (digits > 0 && rest.starts_with(FOLD)).then_some(1 + digits + FOLD_NOTE_END.len() + FOLD.len())
}

fn kind_of(c: char) -> Kind {
    match c {
        OPEN | CLOSE => Kind::Neutral,
        c => kind_of_special(c),
    }
}

fn kind_of_special(c: char) -> Kind {
    match smuggled_ascii(c) {
        Some(ascii) => Kind::Char(ascii),
        None if is_invisible(c) => Kind::Invisible,
        None if matches!(c, OPEN | CLOSE) => Kind::Neutral,
        None => Kind::Char(c),
    }
}

/// `[U+200B]` as the guard writes it, for code points that it writes so; and the length.
fn escaped_code_point(text: &str) -> Option<(char, usize)> {
    let digits = text.strip_prefix("[U+")?;
    let length = digits
        .bytes()
        .take(7)
        .take_while(u8::is_ascii_hexdigit)
        .count();
    if !(4..=6).contains(&length) || digits.as_bytes().get(length) != Some(&b']') {
        return None;
    }
    let c = char::from_u32(u32::from_str_radix(digits.get(..length)?, 16).ok()?)?;
    // A label's brackets, escaped, still enclose the label: it is read over as a whole.
    let written = 3 + length + 1;
    if c == OPEN {
        for label in ["encoded, not decoded", "/encoded"] {
            if let Some(after) = text
                .get(written..)
                .and_then(|rest| rest.strip_prefix(label))
            {
                for close in ["⟧", "[U+27E7]"] {
                    if after.starts_with(close) {
                        return Some((c, written + label.len() + close.len()));
                    }
                }
            }
        }
    }
    (is_invisible(c) || matches!(c, OPEN | CLOSE)).then_some((c, written))
}

/// A character entity: a number, or one of the four names that matter to markup.
fn entity(text: &str) -> Option<(char, usize)> {
    for (name, c) in [
        ("&lt;", '<'),
        ("&gt;", '>'),
        ("&amp;", '&'),
        ("&quot;", '"'),
    ] {
        if text.starts_with(name) {
            return Some((c, name.len()));
        }
    }
    let number = text.strip_prefix("&#")?;
    let (digits, radix, prefix) = match number.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16, 3),
        None => (number, 10, 2),
    };
    let length = digits
        .bytes()
        .take(8)
        .take_while(u8::is_ascii_hexdigit)
        .count();
    if digits.as_bytes().get(length) != Some(&b';') {
        return None;
    }
    let code = u32::from_str_radix(digits.get(..length)?, radix).ok()?;
    Some((char::from_u32(code)?, prefix + length + 1))
}

/// `%69`: printable ASCII only.
fn percent_escape(text: &str) -> Option<char> {
    let byte = u8::from_str_radix(text.get(1..3)?, 16).ok()?;
    (b' '..=b'~').contains(&byte).then_some(char::from(byte))
}

/// `\u0069`, `\x69`, `\n`, `\r`, `\t`.
fn backslash_escape(text: &str) -> Option<(char, usize)> {
    let number = |length: usize| {
        let digits = text
            .get(2..2 + length)
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        Some((
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)?,
            2 + length,
        ))
    };
    match text.as_bytes().get(1)? {
        b'n' => Some(('\n', 2)),
        b'r' | b't' => Some((' ', 2)),
        b'u' => number(4),
        b'x' => number(2),
        _ => None,
    }
}

/// Length of a comment that starts here and is too short to say anything.
fn splitting_comment(text: &str, open: &str, close: &str) -> Option<usize> {
    let inside = text.strip_prefix(open)?.as_bytes();
    let near = inside
        .get(..MAX_SPLITTING_COMMENT_BYTES + close.len())
        .unwrap_or(inside);
    let length = memchr::memmem::find(near, close.as_bytes())?;
    Some(open.len() + length + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spelling_of_a_character_reads_like_the_character() {
        for (text, kind) in [
            ("i", Kind::Char('i')),
            ("&#105;", Kind::Char('i')),
            ("&#x69;", Kind::Char('i')),
            ("&lt;", Kind::Char('<')),
            ("%69", Kind::Char('i')),
            ("\\u0069", Kind::Char('i')),
            ("\u{E0069}", Kind::Char('i')),
            ("[U+E0069]", Kind::Char('i')),
            ("\u{200B}", Kind::Invisible),
            ("[U+200B]", Kind::Invisible),
            ("<!-- x -->", Kind::Invisible),
            ("&lt;!----&gt;", Kind::Invisible),
            ("⟦", Kind::Neutral),
            ("[U+27E6]", Kind::Neutral),
            (ENCODED_OPEN, Kind::Neutral),
            ("[U+27E6]/encoded[U+27E7]", Kind::Neutral),
            ("*", Kind::Silent),
            ("\n↪ ", Kind::Silent),
            ("[4096 characters]\n↪ ", Kind::Silent),
        ] {
            assert_eq!(
                unit_at(text, 0),
                Unit {
                    kind,
                    end: text.len()
                },
                "{text:?}"
            );
        }
    }

    #[test]
    fn what_only_resembles_an_escape_is_read_as_it_stands() {
        for text in [
            "[U+0041]",
            "[U+XYZ]",
            "&bogus;",
            "%zz",
            "<!-- a longer remark -->",
        ] {
            assert_eq!(unit_at(text, 0).end, 1, "{text:?}");
        }
    }
}
