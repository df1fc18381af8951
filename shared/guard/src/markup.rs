//! Rules about markup: template tags, hidden content, addresses that can carry data away.

use std::collections::VecDeque;
use std::ops::Range;

use memchr::{memchr2, memmem};

use crate::Rule;
use crate::fold::{fold, is_word_char};
use crate::rules::{HIDING_STYLES, ROLE_TAGS};
use crate::unit::{Kind, unit_at};

/// Longest name of a tag, in bytes.
const MAX_NAME_BYTES: usize = 40;
/// Spaces and slashes in front of a name that are read over.
const MAX_SKIPPED: u8 = 4;
/// Longest tag that is looked into, in bytes.
const MAX_TAG_BYTES: usize = 2_048;
/// Longest address that is looked at, in bytes.
const MAX_URL_BYTES: usize = 4_096;
/// A part of an address without a separator is opaque from this length on, in bytes.
const OPAQUE_PART_BYTES: usize = 64;

/// One thing found in the markup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub rule: Rule,
    pub detail: &'static str,
    /// In the original, in bytes.
    pub span: Range<usize>,
    /// The brackets that must lose their meaning, as byte ranges.
    pub brackets: [Option<Range<usize>>; 2],
    pub escape: Escape,
}

/// How brackets are neutralised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escape {
    /// Each becomes a character entity.
    Entity,
    /// A backslash is put in front.
    Backslash,
}

/// An opening square bracket whose partner has not come yet.
struct OpenBracket {
    at: usize,
    escaped: bool,
}

/// Most nested square brackets that are kept track of.
const MAX_OPEN_BRACKETS: usize = 64;

/// Gives to `found` what the markup rules look for.
pub(crate) fn find(text: &str, mut found: impl FnMut(Found)) {
    angle_brackets(text, &mut found);
    square_brackets(text, &mut found);
}

/// Tags, comments and elements.
fn angle_brackets(text: &str, found: &mut impl FnMut(Found)) {
    let bytes = text.as_bytes();
    let mut comment_end = None;
    // The first end of a comment at or behind the last place that was asked for.
    let mut next_end: Option<usize> = Some(0);
    for (at, width) in opening_brackets(text) {
        if bytes
            .get(at..)
            .is_some_and(|rest| rest.get(1) == Some(&b'!') && rest.starts_with(b"<!--"))
        {
            if next_end.is_some_and(|end| end < at + 4) {
                next_end = bytes
                    .get(at + 4..)
                    .and_then(|rest| {
                        // Made when the first comment opens: most texts have none.
                        let end = comment_end.get_or_insert_with(|| memmem::Finder::new("-->"));
                        end.find(rest)
                    })
                    .map(|i| at + 4 + i);
            }
            let end = next_end.map_or(text.len(), |end| end + 3);
            found(Found {
                rule: Rule::HiddenMarkup,
                detail: "an HTML comment",
                span: at..end,
                brackets: [Some(at..at + 1), next_end.map(|end| end + 2..end + 3)],
                escape: Escape::Entity,
            });
            continue;
        }
        if let Some(tag) = role_tag(text, at, at + width) {
            found(tag);
            continue;
        }
        if width == 1
            && let Some(element) = element(text, at)
        {
            found(element);
        }
    }
}

/// Positions and widths of `<` and its full-width form.
fn opening_brackets(text: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    let bytes = text.as_bytes();
    let has_wide = !text.is_ascii() && memmem::find(bytes, "＜".as_bytes()).is_some();
    // 0xEF is the first byte of the full-width form.
    let second = if has_wide { 0xEF } else { b'<' };
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let at = from + memchr2(b'<', second, bytes.get(from..)?)?;
            from = at + 1;
            if bytes.get(at) == Some(&b'<') {
                return Some((at, 1));
            }
            if bytes.get(at..)?.starts_with("＜".as_bytes()) {
                return Some((at, 3));
            }
        }
    })
}

/// Where in [`ROLE_TAGS`], which is sorted, the tags begin whose first byte is this one or a later one.
static TAGS_FROM: [usize; 257] = {
    let mut from = [0; 257];
    let (mut byte, mut tag) = (0, 0);
    while byte < from.len() {
        while tag < ROLE_TAGS.len() && (ROLE_TAGS[tag].as_bytes()[0] as usize) < byte {
            tag += 1;
        }
        from[byte] = tag;
        byte += 1;
    }
    from
};

fn tags_beginning_with(byte: u8) -> &'static [&'static str] {
    let at = usize::from(byte);
    ROLE_TAGS
        .get(TAGS_FROM[at]..TAGS_FROM[at + 1])
        .unwrap_or_default()
}

/// The tag of a prompt template or tool protocol whose bracket is at `at..name_at`.
fn role_tag(text: &str, at: usize, name_at: usize) -> Option<Found> {
    // Most brackets are followed by none of the characters that can begin such a tag.
    if !matches!(text.as_bytes().get(name_at)?, b'a'..=b'z' | b'A'..=b'Z' | b'/' | b'|' | b' ' | b'[' | b'&' | 0x80..)
    {
        return None;
    }
    let mut name = [0_u8; MAX_NAME_BYTES];
    let mut length = 0;
    let mut barred = false;
    let mut skipped = 0;
    let mut position = name_at;
    let mut ended = false;
    // Bounded: a name, and as many characters again that are read over.
    for _ in 0..2 * MAX_NAME_BYTES {
        let Some(byte) = text.as_bytes().get(position) else {
            break;
        };
        if byte.is_ascii_alphanumeric() && !ended {
            *name.get_mut(length)? = byte.to_ascii_lowercase();
            length += 1;
            position += 1;
            continue;
        }
        let unit = unit_at(text, position);
        match unit.kind {
            Kind::Char('|' | '｜') => {
                barred = true;
                ended |= length > 0;
            }
            Kind::Char('/' | ' ' | '\u{2581}') if length == 0 && skipped < MAX_SKIPPED => {
                skipped += 1;
            }
            Kind::Char(c @ ('_' | '-' | ':' | '\u{2581}')) if length > 0 && !ended => {
                *name.get_mut(length)? = if c == '\u{2581}' {
                    b'_'
                } else {
                    u8::try_from(c).ok()?
                };
                length += 1;
            }
            Kind::Char(c) if is_word_char(c) && !ended => {
                let mut fits = true;
                fold(c, |c| {
                    match (u8::try_from(c), name.get_mut(length)) {
                        (Ok(byte), Some(slot)) if byte.is_ascii() => *slot = byte,
                        _ => fits = false,
                    }
                    length += 1;
                });
                if !fits {
                    return None;
                }
            }
            Kind::Char(_) => break,
            Kind::Neutral if length == 0 => return None,
            _ => {}
        }
        if ended {
            break;
        }
        position = unit.end;
    }
    let name = name
        .get(..length)
        .and_then(|name| std::str::from_utf8(name).ok())?;
    if name.is_empty() {
        return None;
    }
    let is_known = tags_beginning_with(*name.as_bytes().first()?).contains(&name);
    if !(is_known || barred) {
        return None;
    }
    // Up to the closing bracket, if it is near and no other tag opens before it.
    let rest = text.get(position..floor_boundary(text, position + MAX_TAG_BYTES))?;
    let start = position + rest.find(['>', '＞', '<', '＜'])?;
    let closing = text
        .get(start..)?
        .chars()
        .next()
        .filter(|c| matches!(c, '>' | '＞'))?;
    let close = start..start + closing.len_utf8();
    Some(Found {
        rule: Rule::FakeRoleTag,
        detail: "a delimiter of a prompt template or tool protocol",
        span: at..close.end,
        brackets: [Some(at..name_at), Some(close)],
        escape: Escape::Entity,
    })
}

/// An element that hides its content or fetches an address that carries data.
fn element(text: &str, at: usize) -> Option<Found> {
    let bytes = text.as_bytes();
    if !bytes.get(at + 1)?.is_ascii_alphabetic() {
        return None;
    }
    // A tag ends before the next one begins, so that no byte is looked at twice.
    let inside = bytes.get(at + 1..bytes.len().min(at + MAX_TAG_BYTES))?;
    let length = memchr2(b'<', b'>', inside)?;
    if inside.get(length) != Some(&b'>') {
        return None;
    }
    let tag = text.get(at + 1..at + 1 + length)?;
    if !tag.contains('=') {
        return None;
    }
    let compact: String = tag
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let end = at + 1 + length;
    let found = |rule, detail| Found {
        rule,
        detail,
        span: at..end + 1,
        brackets: [Some(at..at + 1), Some(end..end + 1)],
        escape: Escape::Entity,
    };
    if compact.contains("style=")
        && (HIDING_STYLES.iter().any(|style| compact.contains(style))
            || is_white_on_white(&compact))
    {
        return Some(found(Rule::HiddenMarkup, "an element that is not shown"));
    }
    let address = ["src=", "href="]
        .iter()
        .find_map(|attribute| compact.split_once(attribute))
        .map(|(_, value)| value.trim_start_matches(['"', '\'']))
        .and_then(|value| value.split(['"', '\'', '>']).next())?;
    carries_data(address).then(|| found(Rule::ExfilUrl, "an element whose address can carry data"))
}

/// Whether a style, in lower case and without white space, writes white on white.
fn is_white_on_white(style: &str) -> bool {
    let white = |property: &str| {
        ["white", "#fff", "#ffffff", "rgb(255,255,255)"]
            .iter()
            .any(|value| {
                style.match_indices(property).any(|(index, _)| {
                    let own =
                        index == 0 || style.as_bytes().get(index - 1).is_none_or(|b| *b != b'-');
                    own && style
                        .get(index + property.len()..)
                        .is_some_and(|rest| rest.starts_with(value))
                })
            })
    };
    white("color:") && (white("background:") || white("background-color:"))
}

/// Links, images, reference definitions, and template tags in square brackets.
fn square_brackets(text: &str, found: &mut impl FnMut(Found)) {
    let bytes = text.as_bytes();
    let mut open: VecDeque<OpenBracket> = VecDeque::new();
    let mut from = 0;
    while let Some(at) = bytes
        .get(from..)
        .and_then(|rest| memchr2(b'[', b']', rest))
        .map(|i| from + i)
    {
        from = at + 1;
        if bytes.get(at) == Some(&b'[') {
            if let Some(tag) = bracketed_tag(text, at) {
                found(tag);
                continue;
            }
            if open.len() == MAX_OPEN_BRACKETS {
                open.pop_front();
            }
            open.push_back(OpenBracket {
                at,
                escaped: is_escaped(bytes, at),
            });
            continue;
        }
        let Some(opening) = open.pop_back().filter(|opening| !opening.escaped) else {
            continue;
        };
        let backslash = |rule, detail, end| Found {
            rule,
            detail,
            span: opening.at..end,
            brackets: [Some(opening.at..opening.at + 1), None],
            escape: Escape::Backslash,
        };
        match bytes.get(at + 1) {
            Some(b'(') => {
                let (url, end) = address(text, at + 2);
                if carries_data(url) {
                    found(backslash(
                        Rule::ExfilUrl,
                        "a link or image whose address can carry data",
                        end,
                    ));
                }
            }
            Some(b':') if starts_line(bytes, opening.at) => {
                let (url, end) = address(text, at + 2);
                let label = text.get(opening.at + 1..at).unwrap_or_default();
                if url == "#" || url.is_empty() && label == "//" || label == "comment" {
                    found(Found {
                        brackets: [Some(opening.at..opening.at + 1), Some(at..at + 1)],
                        escape: Escape::Entity,
                        ..backslash(Rule::HiddenMarkup, "a Markdown comment", end)
                    });
                } else if carries_data(url) {
                    found(backslash(
                        Rule::ExfilUrl,
                        "a reference whose address can carry data",
                        end,
                    ));
                }
            }
            _ => {}
        }
    }
}

/// `[INST]` and its like. Only names that are no ordinary words count in square brackets.
fn bracketed_tag(text: &str, at: usize) -> Option<Found> {
    let rest = text.get(at + 1..)?;
    let end = rest
        .bytes()
        .take(MAX_NAME_BYTES)
        .take_while(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'/'))
        .count();
    if end == 0 || rest.as_bytes().get(end) != Some(&b']') {
        return None;
    }
    let name = rest.get(..end)?.trim_start_matches('/');
    let known = [
        "inst",
        "sys",
        "system_prompt",
        "available_tools",
        "tool_calls",
        "tool_results",
        "tool_content",
    ];
    let is_known = known.iter().any(|known| name.eq_ignore_ascii_case(known));
    is_known.then(|| Found {
        rule: Rule::FakeRoleTag,
        detail: "a delimiter of a prompt template or tool protocol",
        span: at..at + end + 2,
        brackets: [Some(at..at + 1), Some(at + end + 1..at + end + 2)],
        escape: Escape::Entity,
    })
}

/// Whether an odd number of backslashes stands in front of `at`.
fn is_escaped(bytes: &[u8], at: usize) -> bool {
    let before = bytes.get(..at).unwrap_or_default();
    before.iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1
}

/// Whether only spaces stand between `at` and the start of its line.
fn starts_line(bytes: &[u8], at: usize) -> bool {
    let before = bytes.get(..at).unwrap_or_default();
    let spaces = before
        .iter()
        .rev()
        .take(3)
        .take_while(|b| **b == b' ')
        .count();
    before.len() == spaces || before.get(before.len() - spaces - 1) == Some(&b'\n')
}

/// The address that begins behind the spaces at `at`, and where it ends.
fn address(text: &str, at: usize) -> (&str, usize) {
    let bytes = text.as_bytes();
    let skipped = bytes
        .get(at..)
        .unwrap_or_default()
        .iter()
        .take(8)
        .take_while(|b| matches!(b, b' ' | b'<' | b'\n'))
        .count();
    let start = at + skipped;
    // Brackets end it as well, so that no byte is looked at twice.
    let length = bytes
        .get(start..)
        .unwrap_or_default()
        .iter()
        .take(MAX_URL_BYTES)
        .take_while(|b| {
            !matches!(
                b,
                b' ' | b'\n' | b'\t' | b'\r' | b'(' | b')' | b'<' | b'>' | b'[' | b']' | b'"'
            )
        })
        .count();
    let end = floor_boundary(text, start + length);
    (text.get(start..end).unwrap_or_default(), end)
}

/// Whether an absolute address has a query or a long part that says nothing to a reader.
fn carries_data(url: &str) -> bool {
    let lower = url
        .get(..floor_boundary(url, 8))
        .unwrap_or_default()
        .to_ascii_lowercase();
    let is_absolute = ["http:", "https:", "ftp:", "//", "ws:", "wss:"]
        .iter()
        .any(|scheme| lower.starts_with(scheme));
    if !is_absolute {
        return false;
    }
    if url
        .split_once('?')
        .is_some_and(|(_, query)| !query.is_empty())
    {
        return true;
    }
    url.split(['/', '.', '#', '&', '-', '_', ',', ';'])
        .any(|part| part.len() >= OPAQUE_PART_BYTES)
}

/// The last character boundary at or before `at`.
fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
