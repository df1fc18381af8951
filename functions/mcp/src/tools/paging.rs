//! Lists in pages: the arguments `cursor` and `limit`.

use raglan_texts::{Language, text};
use serde_json::{Value, json};

use super::arguments::Arguments;

/// Longest cursor that is looked at, in characters. A cursor holds an engine's own position, and the
/// longest of those are tokens of 2,048 characters.
pub const CURSOR_MAX_CHARS: usize = 8_000;

/// JSON Schema of a `cursor` argument.
pub fn cursor_schema(language: Language) -> Value {
    json!({ "type": "string", "maxLength": CURSOR_MAX_CHARS,
        "description": text!(
            language,
            "next_cursor of the page before; leave it out for the first page."
        ) })
}

/// JSON Schema of a `limit` argument.
pub fn limit_schema(default: u64, most: u64, language: Language) -> Value {
    json!({ "type": "integer", "minimum": 1, "default": default,
        "description": text!(language, "How many at most; more than {most} counts as {most}.", most) })
}

/// JSON Schema of `truncated` in the result.
pub fn truncated_schema(language: Language) -> Value {
    json!({ "type": "boolean",
        "description": text!(
            language,
            "Whether the page has fewer items than limit, because they are large."
        ) })
}

/// Reads `limit`, clamped to `most`.
pub fn read_limit(arguments: &mut Arguments<'_>, default: u64, most: u64) -> usize {
    let limit = arguments
        .whole_number("limit", 1)
        .unwrap_or(default)
        .min(most);
    usize::try_from(limit).unwrap_or(usize::MAX)
}
