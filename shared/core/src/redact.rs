//! Takes credentials out of texts that are kept: log entries and audit events.
//!
//! No code of ours writes a key down, but texts that others make are kept as well: what an engine or a
//! library says about an error, and what a caller puts in the wrong place.

use std::borrow::Cow;
use std::ops::Range;

use crate::key::{PREFIX, SECRET_CHARS, is_token_character};

/// What stands where a credential was.
pub const HIDDEN: &str = "[secret]";
const BEARER: &str = "bearer ";
/// As short as a key can be that was issued elsewhere.
const TOKEN_MIN_BYTES: usize = 16;

/// The text without keys of ours, mistyped ones included, and without what follows the word `Bearer`.
/// A key that was issued elsewhere has no shape of its own: it is only known by that word.
#[must_use]
pub fn without_credentials(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let (mut kept, mut copied, mut position) = (String::new(), 0, 0);
    while position < bytes.len() {
        match credential_at(&bytes[position..]) {
            Some(found) => {
                kept.push_str(&text[copied..position + found.start]);
                kept.push_str(HIDDEN);
                position += found.end;
                copied = position;
            }
            None => position += 1,
        }
    }
    if kept.is_empty() {
        return Cow::Borrowed(text);
    }
    kept.push_str(&text[copied..]);
    Cow::Owned(kept)
}

/// Where the credential is that these bytes begin with. Both ends lie beside ASCII characters.
fn credential_at(bytes: &[u8]) -> Option<Range<usize>> {
    if let Some(rest) = bytes.strip_prefix(PREFIX.as_bytes()) {
        let length = rest
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric())
            .count();
        return (length >= SECRET_CHARS).then_some(0..PREFIX.len() + length);
    }
    let (word, rest) = bytes.split_at_checked(BEARER.len())?;
    if !word.eq_ignore_ascii_case(BEARER.as_bytes()) {
        return None;
    }
    let length = rest
        .iter()
        .take_while(|byte| is_token_character(**byte))
        .count();
    // A long word of prose has no digit.
    let token = length >= TOKEN_MIN_BYTES && rest[..length].iter().any(u8::is_ascii_digit);
    token.then_some(BEARER.len()..BEARER.len() + length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::PlainKey;
    use crate::random::SequenceRandom;

    proptest! {
        #[test]
        fn a_key_is_hidden_wherever_it_stands(
            seed in any::<u64>(), before in "[^A-Za-z0-9]*", after in "[^A-Za-z0-9].*",
        ) {
            let key = PlainKey::generate(&SequenceRandom::seeded(seed)).unwrap();
            let text = format!("{before}{}{after}", key.reveal());
            let expected = format!("{before}{HIDDEN}{}", without_credentials(&after));
            prop_assert_eq!(without_credentials(&text), expected);
        }

        #[test]
        fn what_is_no_credential_stays_as_it_is(text in "[^_0-9]*") {
            let kept = without_credentials(&text);
            prop_assert_eq!(kept.as_ref(), text.as_str());
        }
    }

    #[test]
    fn mistyped_keys_and_bearer_tokens_are_hidden_and_prose_is_not() {
        let secret = "a1".repeat(22);
        for (text, expected) in [
            (format!("rgl_{secret}!"), "[secret]!"),
            (format!("rgl_{secret}"), "[secret]"),
            (
                "Authorization: BEARER foreign-key-0123456789, x".to_owned(),
                "Authorization: BEARER [secret], x",
            ),
            (format!("Bearer rgl_{secret}\""), "Bearer [secret]\""),
            ("rgl_abc…xyz".to_owned(), "rgl_abc…xyz"),
            (
                "bearer misrepresentations".to_owned(),
                "bearer misrepresentations",
            ),
            ("the bearer ".to_owned(), "the bearer "),
        ] {
            assert_eq!(without_credentials(&text), expected);
        }
    }
}
