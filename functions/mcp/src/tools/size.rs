//! How large a result may be: in bytes, because Lambda and clients take no more, and in tokens, because
//! the caller's model reads all of it.

use serde_json::{Map, Value};

use super::written::WrittenJson;

/// What is left for the envelope around a result: protocol fields, metadata, commas.
const ENVELOPE: Size = Size {
    bytes: 512,
    tokens: 160,
};

/// The size of a whole result, or of a part of one. A result stands in an answer twice, as structured
/// content and as JSON text in `content`, and both count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// Bytes on the wire.
    pub bytes: usize,
    /// Tokens, as [`estimated_tokens`] counts them.
    pub tokens: usize,
}

impl Size {
    /// What these fields take as a result or a part of one, the comma behind them included.
    pub fn of(value: &(impl Json + ?Sized)) -> Self {
        let mut written = Written::default();
        value.measure(&mut written);
        Self {
            // As text, the JSON is a JSON string: its quotes and backslashes are escaped.
            bytes: (written.bytes + 1) * 2 + written.escapes,
            tokens: (written.hundredths.div_ceil(100) + 1) * 2,
        }
    }

    /// What is left of `self` when a part of the size `part` is taken; `None` when it does not fit.
    #[must_use]
    pub fn without(self, part: Self) -> Option<Self> {
        Some(Self {
            bytes: self.bytes.checked_sub(part.bytes)?,
            tokens: self.tokens.checked_sub(part.tokens)?,
        })
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            tokens: self.tokens + other.tokens,
        }
    }

    /// The room for a result's parts where the whole may have the size `self`.
    #[must_use]
    pub fn inside_envelope(self) -> Self {
        self.without(ENVELOPE).unwrap_or_default()
    }

    /// The `parts`th part of `self`.
    #[must_use]
    pub const fn divided_by(self, parts: usize) -> Self {
        Self {
            bytes: self.bytes / parts,
            tokens: self.tokens / parts,
        }
    }

    /// The longest beginning of a text that cannot be too large for a result with this room, whatever
    /// is put around it. It ends between two characters.
    #[must_use]
    pub fn beginning_of(self, text: &str) -> &str {
        beginning(text, self.bytes / 2, self.tokens / 2)
    }
}

/// What can be measured without being written.
pub trait Json {
    /// Counts the JSON of this value, as `serde_json` writes it.
    fn measure(&self, written: &mut Written);
}

impl Json for Value {
    fn measure(&self, written: &mut Written) {
        match self {
            Self::Null => written.plain("null"),
            Self::Bool(value) => written.plain(if *value { "true" } else { "false" }),
            Self::Number(number) => written.plain(&number.to_string()),
            Self::String(text) => text.as_str().measure(written),
            Self::Array(items) => {
                written.plain("[]");
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        written.plain(",");
                    }
                    item.measure(written);
                }
            }
            Self::Object(fields) => fields.measure(written),
        }
    }
}

impl Json for Map<String, Value> {
    fn measure(&self, written: &mut Written) {
        written.plain("{}");
        for (index, (name, value)) in self.iter().enumerate() {
            written.plain(if index > 0 { ",:" } else { ":" });
            name.as_str().measure(written);
            value.measure(written);
        }
    }
}

impl Json for WrittenJson {
    fn measure(&self, written: &mut Written) {
        for part in self.text().as_bytes().chunks(COUNTED_BYTES) {
            if part.is_ascii() {
                written.add_ascii(part);
            } else {
                written.add(part, &AS_THEY_ARE);
            }
        }
    }
}

impl Json for str {
    fn measure(&self, written: &mut Written) {
        written.add(b"\"\"", &AS_THEY_ARE);
        written.add(self.as_bytes(), &IN_A_STRING);
    }
}

/// How much JSON there is so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    bytes: usize,
    /// How many of the bytes are quotes and backslashes.
    escapes: usize,
    hundredths: usize,
}

impl Written {
    /// Of one byte that a string can hold, written in a string.
    const fn of_byte_in_string(byte: u8) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let backslash = Self::of_byte(b'\\');
        match byte {
            b'"' | b'\\' => backslash.and(Self::of_byte(byte)),
            // `\n` and the like: a backslash and a letter.
            0x08 | b'\t' | b'\n' | 0x0c | b'\r' => backslash.and(Self::of_byte(b'n')),
            // `\u001f`
            0..0x20 => backslash
                .and(Self::of_byte(b'u'))
                .and(Self::of_byte(b'0'))
                .and(Self::of_byte(b'0'))
                .and(Self::of_byte(HEX[(byte >> 4) as usize]))
                .and(Self::of_byte(HEX[(byte & 0xf) as usize])),
            _ => Self::of_byte(byte),
        }
    }

    const fn of_byte(byte: u8) -> Self {
        Self {
            bytes: 1,
            escapes: matches!(byte, b'"' | b'\\') as usize,
            hundredths: HUNDREDTHS[byte as usize] as usize,
        }
    }

    const fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            escapes: self.escapes + other.escapes,
            hundredths: self.hundredths + other.hundredths,
        }
    }

    fn plain(&mut self, json: &str) {
        self.add(json.as_bytes(), &AS_THEY_ARE);
    }

    /// Adds up to [`COUNTED_BYTES`] ASCII characters by counting, which the processor does for sixteen of
    /// them at a time.
    fn add_ascii(&mut self, part: &[u8]) {
        let in_words = count(part, |byte| matches!(byte, b'a'..=b'z' | b' '));
        let hundredths = |byte: u8| usize::from(HUNDREDTHS[usize::from(byte)]);
        *self = self.and(Self {
            bytes: part.len(),
            escapes: count(part, |byte| matches!(byte, b'"' | b'\\')),
            hundredths: in_words * hundredths(b'a') + (part.len() - in_words) * hundredths(b'A'),
        });
    }

    fn add(&mut self, bytes: &[u8], sizes: &[Packed; 256]) {
        for part in bytes.chunks(PACKED_BYTES) {
            let sum: Packed = part.iter().map(|byte| sizes[usize::from(*byte)]).sum();
            let field = |shift: u32| (sum >> shift & PACKED_MASK) as usize;
            *self = self.and(Self {
                bytes: field(0),
                escapes: field(PACKED_BITS),
                hundredths: field(2 * PACKED_BITS),
            });
        }
    }
}

/// How many of up to 255 bytes are such.
fn count(bytes: &[u8], is: impl Fn(u8) -> bool) -> usize {
    let counts = bytes.iter().map(|byte| u8::from(is(*byte)));
    usize::from(counts.fold(0, u8::wrapping_add))
}

/// [`Written`] in one number, so that a byte costs one addition.
type Packed = u64;
const PACKED_BITS: u32 = 21;
const PACKED_MASK: Packed = (1 << PACKED_BITS) - 1;
/// So many bytes can be added up: none has more than 512 hundredths.
const PACKED_BYTES: usize = 1 << (PACKED_BITS - 9);

/// So many ASCII characters are counted together: their number fits into a byte.
const COUNTED_BYTES: usize = 128;

static AS_THEY_ARE: [Packed; 256] = packed(false);
static IN_A_STRING: [Packed; 256] = packed(true);

const fn packed(in_a_string: bool) -> [Packed; 256] {
    let mut sizes = [0; 256];
    let mut byte: u8 = 0;
    loop {
        let size = if in_a_string {
            Written::of_byte_in_string(byte)
        } else {
            Written::of_byte(byte)
        };
        sizes[byte as usize] = size.bytes as Packed
            | (size.escapes as Packed) << PACKED_BITS
            | (size.hundredths as Packed) << (2 * PACKED_BITS);
        if byte == u8::MAX {
            break;
        }
        byte += 1;
    }
    sizes
}

/// How many of the items fit, counted from the first; at least one, so that every page leads on.
#[must_use]
pub fn fitting(items: &[Value], room: Size) -> usize {
    let mut left = Some(room);
    let fit = items.iter().take_while(|item| {
        left = left.and_then(|left| left.without(Size::of(*item)));
        left.is_some()
    });
    fit.count().max(1)
}

/// The longest beginning of at most `max_bytes` and `max_tokens` that ends between two characters.
#[must_use]
pub fn beginning(text: &str, max_bytes: usize, max_tokens: usize) -> &str {
    let text = &text[..text.floor_char_boundary(max_bytes)];
    // No byte is more than a token: four of them make the heaviest character.
    if text.len() <= max_tokens {
        return text;
    }
    let mut weight = 0;
    let end = text.char_indices().find(|(_, character)| {
        weight += usize::from(hundredths(*character));
        weight.div_ceil(100) > max_tokens
    });
    end.map_or(text, |(at, _)| &text[..at])
}

/// How many tokens a model may make of the text. No model's vocabulary is known here, so every kind of
/// character has a weight.
///
/// Held against three vocabularies (OpenAI's `cl100k_base` and `o200k_base`, and the one that Anthropic
/// published for Claude 2) on English and Chinese documents, tables, source code, lock files and their
/// JSON, the estimate is 1.0 to 1.8 times the count; on Japanese, Korean, Arabic, Hindi, Russian and
/// Greek sentences 1.0 to 5.8 times, because the vocabularies differ as much. Base64 (0.73), Thai
/// (0.83 for one of them) and rare ideographs (0.60) are the known texts that it takes for shorter
/// than they are.
#[must_use]
pub fn estimated_tokens(text: &str) -> usize {
    let weights = text
        .bytes()
        .map(|byte| usize::from(HUNDREDTHS[usize::from(byte)]));
    weights.sum::<usize>().div_ceil(100)
}

/// [`hundredths`] of the character that begins with a byte; 0 for the bytes that continue one. UTF-8
/// tells the length of a character by its first byte (RFC 3629 §3), and the weights follow the length.
static HUNDREDTHS: [u16; 256] = {
    let mut weights = [0; 256];
    let mut byte: u8 = 0;
    loop {
        weights[byte as usize] = match byte {
            0x00..=0x7f => hundredths(byte as char),
            0x80..=0xbf => 0,
            0xc0..=0xdf => hundredths('\u{80}'),
            0xe0..=0xef => hundredths('\u{800}'),
            _ => hundredths('\u{10000}'),
        };
        if byte == u8::MAX {
            break;
        }
        byte += 1;
    }
    weights
};

/// A character's share of a token.
const fn hundredths(character: char) -> u16 {
    match character {
        'a'..='z' | ' ' => 28,
        // Digits, punctuation and capitals are the ends of words, or stand alone.
        '\0'..='\u{7f}' => 70,
        '\u{80}'..='\u{7ff}' => 130,
        // Ideographs, kana, Hangul, and what else takes three bytes.
        '\u{800}'..='\u{ffff}' => 150,
        _ => 400,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Text, and what three vocabularies make of it: `cl100k_base`, `o200k_base`, Claude 2.
    const COUNTED: [(&str, [usize; 3]); 4] = [
        (
            "A full-time employee has 30 working days of paid annual leave. Leave that is not taken by 31 March lapses.",
            [26, 26, 25],
        ),
        (
            "员工入职满一年后，每年有十五天带薪年假。未休的年假在次年三月底失效。",
            [43, 29, 38],
        ),
        (
            r#"{"id":"passage-1","kb_id":"script","rank":1,"score":7.875,"trust":"untrusted","suspicious":false}"#,
            [34, 34, 34],
        ),
        (
            "従業員は毎年三十日の有給休暇を取得する権利があります。",
            [33, 22, 30],
        ),
    ];

    #[test]
    fn the_estimate_is_not_below_what_known_vocabularies_make_of_a_text() {
        for (text, counts) in COUNTED {
            let estimated = estimated_tokens(text);
            for count in counts {
                assert!(estimated >= count, "{text}: {estimated} < {count}");
                assert!(estimated <= count * 2, "{text}: {estimated} > 2 x {count}");
            }
        }
    }

    #[test]
    fn a_result_is_as_large_as_its_structured_content_and_its_text_on_the_wire() {
        let structured = json!({ "text": "a \"quote\", a \\ and\nfour 年假" });
        let text = structured.to_string();
        let wire = json!({ "content": [{ "text": text }], "structuredContent": structured });
        let frame = json!({ "content": [{ "text": "" }], "structuredContent": {} });
        let expected = wire.to_string().len() - frame.to_string().len() + 2;
        // The two braces that the frame has already, and a comma for either form.
        assert_eq!(Size::of(&structured).bytes, expected + 2);
    }

    #[test]
    fn a_page_has_an_item_even_if_that_is_too_large() {
        let items = [json!("a".repeat(50)), json!("b")];
        let room = |bytes| Size {
            bytes,
            tokens: 1_000,
        };
        assert_eq!(fitting(&items, room(10)), 1);
        assert_eq!(fitting(&items, room(110)), 1);
        assert_eq!(fitting(&items, room(200)), 2);
        let few_tokens = Size {
            bytes: 1_000,
            tokens: 39,
        };
        assert_eq!(fitting(&items, few_tokens), 1);
    }

    /// Any JSON, with what is written in a way of its own.
    fn any_json() -> impl Strategy<Value = Value> {
        let text = "([a-z A-Z0-9\"\\\\年é🦀]|[\\x00-\\x1f\\x7f]|\\PC){0,20}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<f32>().prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((text, inner), 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// The size of JSON that was written.
    fn size_of_written(json: &str) -> Size {
        let escapes = json.bytes().filter(|byte| matches!(byte, b'"' | b'\\'));
        Size {
            bytes: (json.len() + 1) * 2 + escapes.count(),
            tokens: (estimated_tokens(json) + 1) * 2,
        }
    }

    #[test]
    fn long_text_is_measured_in_parts() {
        for text in [
            "🦀".repeat(5_000),
            "\"".repeat(5_000),
            "\u{1}".repeat(5_000),
            "A letter, \"年\" and more letters. ".repeat(500),
        ] {
            let size = size_of_written(&json!(text).to_string());
            assert_eq!(Size::of(text.as_str()), size);
            assert_eq!(Size::of(&WrittenJson::of(&text)), size);
        }
    }

    proptest! {
        #[test]
        fn what_is_measured_is_what_would_be_written(value in any_json()) {
            let size = size_of_written(&value.to_string());
            prop_assert_eq!(Size::of(&value), size);
            prop_assert_eq!(Size::of(&WrittenJson::of(&value)), size);
        }

        #[test]
        fn a_beginning_ends_between_characters_and_within_both_limits(
            text in "[a-z 0-9年é🦀\"]{0,60}", bytes in 0_usize..80, tokens in 0_usize..40,
        ) {
            let cut = beginning(&text, bytes, tokens);
            prop_assert!(text.starts_with(cut));
            prop_assert!(cut.len() <= bytes && estimated_tokens(cut) <= tokens);
            if let Some(next) = text[cut.len()..].chars().next() {
                let longer = format!("{cut}{next}");
                prop_assert!(longer.len() > bytes || estimated_tokens(&longer) > tokens);
            }
        }

        #[test]
        fn two_parts_are_never_smaller_than_the_whole(a in "\\PC{0,30}", b in "\\PC{0,30}") {
            let whole = Size::of(format!("{a}{b}").as_str());
            let (a, b) = (Size::of(a.as_str()), Size::of(b.as_str()));
            prop_assert!(whole.tokens <= a.tokens + b.tokens && whole.bytes <= a.bytes + b.bytes);
        }
    }
}
