//! Code points that a reader does not see and a model does.

use crate::ascii::are_printable;

/// Whether `c` is drawn as nothing: zero-width characters, direction controls, tags, variation
/// selectors, fillers, control characters. Tab, line feed, carriage return and form feed are not.
pub(crate) fn is_invisible(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{0C}');
    }
    let code = u32::from(c);
    // By the block of 256 first: most blocks have none.
    match code >> 8 {
        0x00 => matches!(code, 0x80..=0x9F | 0xAD),
        0x03 => code == 0x034F,
        0x06 => code == 0x061C,
        0x11 => matches!(code, 0x115F..=0x1160),
        0x17 => matches!(code, 0x17B4..=0x17B5),
        0x18 => matches!(code, 0x180B..=0x180F),
        0x20 => matches!(code, 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F),
        0x31 => code == 0x3164,
        0xFE => matches!(code, 0xFE00..=0xFE0F | 0xFEFF),
        0xFF => matches!(code, 0xFFA0 | 0xFFF0..=0xFFFB),
        0x1BC => matches!(code, 0x1BCA0..=0x1BCA3),
        0x1D1 => matches!(code, 0x1D173..=0x1D17A),
        0xE00..=0xE0F => true,
        _ => false,
    }
}

/// The ASCII character that an invisible code point smuggles, if it is one of those that can: tag
/// characters (U+E0020 to U+E007E) and the supplementary variation selectors, which stand for the
/// bytes from 16 on.
pub(crate) fn smuggled_ascii(c: char) -> Option<char> {
    let code = match u32::from(c) {
        code @ 0xE0020..=0xE007E => code - 0xE0000,
        code @ 0xE0100..=0xE01EF => code - 0xE0100 + 16,
        _ => return None,
    };
    char::from_u32(code).filter(|c| c.is_ascii_graphic() || *c == ' ')
}

/// The three flags that Unicode recommends to be written with tag characters (England, Scotland,
/// Wales); any other sequence behind the black flag is hidden text.
const TAG_FLAGS: [&str; 3] = [
    "\u{1F3F4}\u{E0067}\u{E0062}\u{E0065}\u{E006E}\u{E0067}\u{E007F}",
    "\u{1F3F4}\u{E0067}\u{E0062}\u{E0073}\u{E0063}\u{E0074}\u{E007F}",
    "\u{1F3F4}\u{E0067}\u{E0062}\u{E0077}\u{E006C}\u{E0073}\u{E007F}",
];

/// Joiners in a row (letter, joiner, letter, joiner, …) beyond which they are no longer taken for
/// spelling.
const MAX_CHAINED_JOINERS: u8 = 8;

/// One invisible code point in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Invisible {
    /// Where it starts, in bytes.
    pub start: usize,
    /// The code point.
    pub c: char,
}

/// Iterates over the invisible code points of `text`, without those that ordinary spelling needs:
/// emoji presentation and joined emoji, joiners and direction marks inside scripts that use them,
/// ideographic variants, the three tag flags.
pub(crate) fn unexpected(text: &str) -> impl Iterator<Item = Invisible> + '_ {
    let mut previous = ' ';
    let mut chained = 0_u8;
    let mut since_joiner = 0_u8;
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < text.len() {
            let start = at;
            let rest = text.get(at..)?;
            let bytes = rest.as_bytes();
            let skipped = visible_prefix(bytes);
            if skipped > 0 {
                let mut seen = rest.get(..skipped)?.chars().rev();
                previous = seen.next()?;
                // No chain goes over an ASCII character, or over two of any script.
                let is_chained = seen.next().is_none() && !previous.is_ascii();
                since_joiner = if is_chained {
                    since_joiner.saturating_add(1)
                } else {
                    2
                };
                at += skipped;
                continue;
            }
            let c = rest.chars().next()?;
            at += c.len_utf8();
            if !is_invisible(c) {
                if c == '\u{1F3F4}'
                    && let Some(flag) = TAG_FLAGS.iter().find(|flag| rest.starts_with(**flag))
                {
                    at = start + flag.len();
                }
                previous = c;
                since_joiner = since_joiner.saturating_add(1);
                continue;
            }
            let next = text
                .get(at..)
                .and_then(|rest| rest.chars().next())
                .unwrap_or(' ');
            chained = if since_joiner > 1 { 0 } else { chained };
            if is_spelling(previous, c, next) && chained < MAX_CHAINED_JOINERS {
                chained += 1;
                since_joiner = 0;
                // A presentation selector belongs to its emoji: what follows it sees the emoji.
                if c != '\u{FE0F}' {
                    previous = c;
                }
                continue;
            }
            previous = ' ';
            return Some(Invisible { start, c });
        }
        None
    })
}

/// How many bytes at the start are characters that are surely drawn or ordinary white space.
fn visible_prefix(bytes: &[u8]) -> usize {
    let mut length = 0;
    loop {
        let rest = bytes.get(length..).unwrap_or_default();
        let (eights, _) = rest.as_chunks();
        let printable = 8 * eights
            .iter()
            .take_while(|eight| are_printable(**eight))
            .count();
        let next = rest.iter().skip(printable).take(8);
        let visible = next.take_while(|byte| is_visible(**byte)).count();
        length += printable + visible;
        if visible < 8 {
            return length;
        }
    }
}

/// Whether no character that has this byte is invisible, whichever other bytes it has.
fn is_visible(byte: u8) -> bool {
    static VISIBLE: [bool; 256] = {
        let mut visible = [false; 256];
        let mut byte: u8 = 0;
        loop {
            visible[byte as usize] = matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r' | 0x0C)
                // It continues a character.
                || matches!(byte, 0x80..=0xBF)
                // It begins one of a block of 64 or 4,096 that has no invisible one.
                || matches!(byte, 0xC3..=0xCC | 0xCE..=0xD7 | 0xD9..=0xE0 | 0xE4..=0xEE);
            if byte == u8::MAX {
                break;
            }
            byte += 1;
        }
        visible
    };
    VISIBLE[usize::from(byte)]
}

/// Whether ordinary spelling puts `c` between `previous` and `next`.
fn is_spelling(previous: char, c: char, next: char) -> bool {
    match c {
        '\u{FE0E}' | '\u{FE0F}' => {
            is_pictograph(previous) || (next == '\u{20E3}' && is_keycap(previous))
        }
        '\u{200D}' => {
            (is_pictograph(previous) && is_pictograph(next))
                || (is_joining_script(previous) && is_joining_script(next))
        }
        '\u{200C}' => is_joining_script(previous) && is_joining_script(next),
        '\u{200E}' | '\u{200F}' | '\u{061C}' => {
            is_right_to_left(previous) || is_right_to_left(next)
        }
        '\u{FE00}'..='\u{FE02}' | '\u{E0100}'..='\u{E010F}' => {
            is_han(previous) && !is_invisible(next)
        }
        _ => false,
    }
}

fn is_keycap(c: char) -> bool {
    matches!(c, '0'..='9' | '#' | '*')
}

fn is_han(c: char) -> bool {
    matches!(u32::from(c), 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x323AF)
}

fn is_pictograph(c: char) -> bool {
    matches!(u32::from(c),
        0xA9 | 0xAE | 0x203C | 0x2049 | 0x2122 | 0x2139 | 0x2194..=0x21AA | 0x231A..=0x23FF
        | 0x24C2 | 0x25AA..=0x27BF | 0x2934..=0x2935 | 0x2B05..=0x2B55 | 0x3030 | 0x303D | 0x3297
        | 0x3299 | 0x1F000..=0x1FAFF)
}

/// Scripts whose spelling uses the joiners: Arabic and the scripts of South and South-East Asia.
fn is_joining_script(c: char) -> bool {
    matches!(u32::from(c), 0x0600..=0x08FF | 0x0900..=0x0DFF | 0x0F00..=0x109F | 0x1780..=0x17FF | 0xFB50..=0xFDFF | 0xFE70..=0xFEFC)
}

fn is_right_to_left(c: char) -> bool {
    matches!(u32::from(c), 0x0590..=0x08FF | 0xFB1D..=0xFDFF | 0xFE70..=0xFEFC) && !is_invisible(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<char> {
        unexpected(text).map(|invisible| invisible.c).collect()
    }

    #[test]
    fn no_invisible_code_point_begins_with_a_byte_that_is_taken_for_visible() {
        let mut buffer = [0; 4];
        for c in ('\0'..=char::MAX).filter(|c| is_invisible(*c)) {
            assert!(
                !is_visible(c.encode_utf8(&mut buffer).as_bytes()[0]),
                "{c:?}"
            );
        }
    }

    #[test]
    fn emoji_flags_and_joining_scripts_are_spelling() {
        for text in [
            "a \u{2764}\u{FE0F} heart",
            "\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}",
            "\u{1F3F3}\u{FE0F}\u{200D}\u{1F308}",
            "1\u{FE0F}\u{20E3}",
            "می\u{200C}خواهم",
            "क\u{094D}\u{200D}ष",
            "שלום\u{200F}!",
            TAG_FLAGS[0],
        ] {
            assert_eq!(found(text), Vec::<char>::new(), "{text:?}");
        }
    }

    #[test]
    fn hidden_text_behind_a_black_flag_is_found() {
        let text = "\u{1F3F4}\u{E0072}\u{E0075}\u{E006E}\u{E007F}";
        assert_eq!(found(text).len(), 4);
    }

    #[test]
    fn joiners_between_latin_letters_are_found() {
        assert_eq!(
            found("ig\u{200B}no\u{200D}re\u{FE0F} \u{202E}x\u{8}"),
            ['\u{200B}', '\u{200D}', '\u{FE0F}', '\u{202E}', '\u{8}']
        );
    }

    #[test]
    fn tags_and_variation_selectors_give_their_ascii() {
        assert_eq!(smuggled_ascii('\u{E0049}'), Some('I'));
        assert_eq!(smuggled_ascii('\u{E0159}'), Some('i'));
        assert_eq!(smuggled_ascii('\u{E0001}'), None);
        assert_eq!(smuggled_ascii('\u{200B}'), None);
    }
}
