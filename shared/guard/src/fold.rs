//! Folding of one character to the form in which words are compared: compatibility-decomposed,
//! without accents, lower case, and with look-alikes of Latin letters replaced by those letters.
//!
//! The look-alikes are a hand-picked part of what Unicode Technical Standard 39 calls the confusable
//! skeleton. The word lists go through the same folding, so a Russian or Greek word in them is still
//! found although some of its letters turn into Latin ones.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Calls `push` with each character that `c` folds to; none for a lone accent.
pub(crate) fn fold(c: char, mut push: impl FnMut(char)) {
    if c.is_ascii() {
        push(c.to_ascii_lowercase());
        return;
    }
    if let Some(letter) = enclosed_letter(c) {
        push(letter);
        return;
    }
    for part in std::iter::once(c).nfkd() {
        if part.is_ascii() {
            push(part.to_ascii_lowercase());
        } else if let Some(latin) = look_alike(part) {
            latin.chars().for_each(&mut push);
        } else if !is_combining_mark(part) {
            for lower in part.to_lowercase() {
                match look_alike(lower) {
                    Some(latin) => latin.chars().for_each(&mut push),
                    None => push(lower),
                }
            }
        }
    }
}

/// Whether words of the character's script are written without spaces, so that they are looked up
/// at every position.
pub(crate) fn is_unspaced(c: char) -> bool {
    let code = u32::from(c);
    // The scripts with the most readers, and punctuation, with one comparison each.
    if code < 0x0E00 || matches!(code, 0x1200..=0x303F) {
        return false;
    }
    matches!(code,
        0x0E00..=0x0E7F      // Thai
        | 0x1100..=0x115E | 0x1161..=0x11FF | 0xAC00..=0xD7AF // Hangul: suffixes are attached
        | 0x3040..=0x30FF    // Hiragana, Katakana
        | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x323AF // Han
    )
}

/// Whether the character belongs to a word.
pub(crate) fn is_word_char(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric();
    }
    // The tables of the standard library are slow for ideographs, which are letters, all of them, and for
    // the punctuation between them.
    matches!(c, '\u{4e00}'..='\u{9fff}')
        || !matches!(c, '\u{2010}'..='\u{205E}' | '\u{3000}'..='\u{3003}' | '\u{3008}'..='\u{3020}' | '\u{FF01}'..='\u{FF0F}')
            && is_in_word(c)
}

fn is_in_word(c: char) -> bool {
    c.is_alphanumeric() || is_combining_mark(c) || enclosed_letter(c).is_some()
}

/// Letters in circles and squares that have no compatibility decomposition.
fn enclosed_letter(c: char) -> Option<char> {
    let offset = match u32::from(c) {
        code @ 0x1F150..=0x1F169 => code - 0x1F150,
        code @ 0x1F170..=0x1F189 => code - 0x1F170,
        code @ 0x1F1E6..=0x1F1FF => code - 0x1F1E6,
        _ => return None,
    };
    u8::try_from(offset)
        .ok()
        .map(|offset| char::from(b'a' + offset))
}

/// The Latin letters that `c` looks like.
fn look_alike(c: char) -> Option<&'static str> {
    // Characters of one string look like the letter before it. Capitals are listed only where they
    // look like another letter than the small form does.
    const TABLE: [(&str, &str); 29] = [
        ("a", "аαɑᴀɐ\u{13AA}"),
        ("b", "вьβʙƀɓƅ\u{13F4}"),
        ("c", "сϲᴄƈ\u{13DF}"),
        ("d", "ԁᴅɖɗđð\u{13A0}"),
        ("e", "еεᴇəɛɇєҽ\u{13AC}"),
        ("f", "ꜰƒẝ"),
        ("g", "ԍɡɢɠց\u{13C0}"),
        ("h", "һнΗʜħɦհ\u{13BB}"),
        ("i", "іιıɪɩɨӏ\u{13A5}"),
        ("j", "јᴊɉɟյ\u{13AB}"),
        ("k", "кκᴋƙ\u{13E6}"),
        ("l", "ʟłɭɫ\u{13DE}"),
        ("m", "мΜᴍɱ\u{13B7}"),
        ("n", "пΝηɴɲɳŋոռ"),
        ("o", "оοσᴏøɵօθ"),
        ("p", "рρᴘƥþ\u{13E2}"),
        ("q", "ԛɋզ"),
        ("r", "гʀɍɾɼ\u{13A1}\u{13D2}"),
        ("s", "ѕςꜱʂ\u{13DA}ß"),
        ("t", "тτᴛŧƭʈ\u{13A2}"),
        ("u", "υμᴜʉսц"),
        ("v", "νѵᴠʋ\u{13D9}"),
        ("w", "ԝωᴡшա\u{13B3}"),
        ("x", "хχ×"),
        ("y", "уΥγʏƴɏ"),
        ("z", "Ζζᴢƶȥ\u{13C3}"),
        ("ae", "æ"),
        ("oe", "œ"),
        ("-", "‐‑‒–—−"),
    ];
    // Most letters of other scripts are in none of the rows: only these blocks are searched.
    if !matches!(u32::from(c),
        0xD7..=0x29F | 0x370..=0x58F | 0x13A0..=0x13FF | 0x1D00..=0x1D2B | 0x1E9D
        | 0x2010..=0x2014 | 0x2212 | 0xA730..=0xA731)
    {
        return None;
    }
    TABLE
        .iter()
        .find(|(_, likes)| likes.contains(c))
        .map(|(latin, _)| *latin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> String {
        let mut out = String::new();
        for c in text.chars() {
            fold(c, |folded| out.push(folded));
        }
        out
    }

    #[test]
    fn disguised_letters_fold_to_the_letters_they_look_like() {
        for disguised in [
            "ignore",
            "IGNORE",
            "ｉｇｎｏｒｅ",
            "𝐢𝐠𝐧𝐨𝐫𝐞",
            "ⓘⓖⓝⓞⓡⓔ",
            "іgnоrе",
            "ɪɢɴᴏʀᴇ",
            "ígñôrë",
            "🅘🅖🅝🅞🅡🅔",
        ] {
            assert_eq!(folded(disguised), "ignore", "{disguised}");
        }
    }

    #[test]
    fn the_characters_that_are_told_apart_by_range_are_what_the_tables_say() {
        for c in '\u{80}'..=char::MAX {
            assert_eq!(is_word_char(c), is_in_word(c), "{c:?}");
        }
    }

    #[test]
    fn letters_of_other_scripts_stay_what_they_are() {
        assert_eq!(folded("指令"), "指令");
        assert_eq!(folded("ЖЮ"), "жю");
    }
}
