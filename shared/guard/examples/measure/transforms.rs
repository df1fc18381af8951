//! Fourteen ways to disguise a text from a filter while a model still reads it.

use std::fmt::Write as _;

/// A disguise and its name.
pub type Transform = (&'static str, fn(&str) -> String);

/// All disguises.
pub const TRANSFORMS: [Transform; 14] = [
    ("zero-width space in every word", zero_width),
    ("Unicode tags", tags),
    ("full-width letters", full_width),
    ("mathematical letters", mathematical),
    ("homoglyphs", homoglyphs),
    ("leetspeak", leetspeak),
    ("hexadecimal", hexadecimal),
    ("base64", base64),
    ("ROT13", rot13),
    ("spaced letters", spaced),
    ("Markdown emphasis", emphasis),
    ("HTML comment", comment),
    ("line breaks", line_breaks),
    ("reversed", reversed),
];

fn each_char(text: &str, map: impl Fn(char) -> char) -> String {
    text.chars().map(map).collect()
}

/// `c` moved into the block whose "A" is `upper` and whose "a" is `lower`.
fn moved(c: char, upper: u32, lower: u32) -> char {
    let code = match c {
        'A'..='Z' => u32::from(c) - u32::from('A') + upper,
        'a'..='z' => u32::from(c) - u32::from('a') + lower,
        _ => return c,
    };
    char::from_u32(code).unwrap_or(c)
}

fn zero_width(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let middle = word
            .char_indices()
            .nth(word.chars().count() / 2)
            .map_or(0, |(index, _)| index);
        let (first, second) = word.split_at(middle);
        format!("{first}\u{200B}{second}")
    });
    words.collect::<Vec<_>>().join(" ")
}

fn tags(text: &str) -> String {
    each_char(text, |c| match c {
        ' '..='~' => char::from_u32(0xE0000 + u32::from(c)).unwrap_or(c),
        c => c,
    })
}

fn full_width(text: &str) -> String {
    each_char(text, |c| match c {
        '!'..='~' => char::from_u32(0xFEE0 + u32::from(c)).unwrap_or(c),
        c => c,
    })
}

fn mathematical(text: &str) -> String {
    each_char(text, |c| moved(c, 0x1D400, 0x1D41A))
}

fn homoglyphs(text: &str) -> String {
    each_char(text, |c| match c {
        'a' => 'а',
        'c' => 'с',
        'e' => 'е',
        'i' => 'і',
        'o' => 'о',
        'p' => 'р',
        's' => 'ѕ',
        'x' => 'х',
        'y' => 'у',
        'A' => 'А',
        'E' => 'Е',
        'I' => 'І',
        'O' => 'О',
        'P' => 'Р',
        'S' => 'Ѕ',
        c => c,
    })
}

fn leetspeak(text: &str) -> String {
    each_char(text, |c| match c.to_ascii_lowercase() {
        'a' => '4',
        'e' => '3',
        'i' => '1',
        'o' => '0',
        's' => '5',
        't' => '7',
        _ => c,
    })
}

fn hexadecimal(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn base64(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bits = chunk
            .iter()
            .chain([&0, &0])
            .take(3)
            .fold(0_usize, |bits, b| bits << 8 | usize::from(*b));
        for index in 0..4 {
            let symbol = ALPHABET
                .get(bits >> (18 - 6 * index) & 63)
                .copied()
                .unwrap_or(b'A');
            out.push(if index <= chunk.len() {
                char::from(symbol)
            } else {
                '='
            });
        }
    }
    out
}

fn rot13(text: &str) -> String {
    each_char(text, |c| {
        let first = match c {
            'A'..='Z' => b'A',
            'a'..='z' => b'a',
            _ => return c,
        };
        u8::try_from(c).map_or(c, |byte| char::from((byte - first + 13) % 26 + first))
    })
}

fn spaced(text: &str) -> String {
    text.chars().map(String::from).collect::<Vec<_>>().join(" ")
}

fn emphasis(text: &str) -> String {
    text.split(' ')
        .map(|word| {
            let middle = word
                .char_indices()
                .nth(word.chars().count() / 2)
                .map_or(0, |(index, _)| index);
            let (first, second) = word.split_at(middle);
            format!("**{first}**{second}")
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn comment(text: &str) -> String {
    format!("<!-- {text} -->")
}

fn line_breaks(text: &str) -> String {
    text.replace(' ', "\n")
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}
