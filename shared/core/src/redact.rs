//! Takes credentials out of texts that are kept: log entries and audit events; and out of events what
//! belongs to persons ([`personal`]).
//!
//! No code of ours writes a key down, but texts that others make are kept as well: what an engine or a
//! library says about an error, and what a caller puts in the wrong place.

mod personal;

use std::borrow::Cow;
use std::ops::Range;

use crate::key::{PREFIX, SECRET_CHARS, is_token_character};

/// What stands where a credential was.
pub const HIDDEN: &str = "[secret]";
const BEARER: &str = "bearer ";
/// How the identifiers of AWS access keys begin: long-lived and temporary ones. Sixteen capital letters
/// and digits follow.
const AWS_KEY_ID: [&str; 2] = ["AKIA", "ASIA"];
const AWS_KEY_ID_REST_BYTES: usize = 16;
/// What the secret half of an AWS access key stands behind, in configuration files and in JSON. It is
/// forty characters of base64.
const AWS_SECRET_NAMES: [&str; 2] = ["secret_access_key", "secretaccesskey"];
const AWS_SECRET_BYTES: usize = 40;
/// `{"` in base64: how the header of a JSON Web Token begins (RFC 7519 §3).
const JWT: &str = "eyJ";
const JWT_PART_MIN_BYTES: usize = 8;
/// As short as a key can be that was issued elsewhere.
const TOKEN_MIN_BYTES: usize = 16;

/// The text without keys of ours, mistyped ones included, without access keys of AWS and JSON Web Tokens,
/// and without what follows the word `Bearer`. A key that was issued elsewhere has no shape of its own:
/// it is only known by that word.
#[must_use]
pub fn without_credentials(text: &str) -> Cow<'_, str> {
    replace(text, HIDDEN, |bytes, position| {
        credential_at(&bytes[position..])
    })
}

/// The text as an audit event keeps it: without credentials, numbers of payment cards and e-mail
/// addresses.
#[must_use]
pub fn masked(text: &str) -> Cow<'_, str> {
    let text = and_then(without_credentials(text), personal::without_cards);
    and_then(text, personal::without_addresses)
}

fn and_then(text: Cow<'_, str>, next: impl Fn(&str) -> Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => next(text),
        Cow::Owned(text) => match next(&text) {
            Cow::Owned(changed) => Cow::Owned(changed),
            Cow::Borrowed(_) => Cow::Owned(text),
        },
    }
}

/// Puts `mark` in the place of everything that `find` finds at a position of the bytes. What it finds is
/// a range from that position on whose ends lie between characters.
fn replace<'a>(
    text: &'a str,
    mark: &str,
    find: impl Fn(&[u8], usize) -> Option<Range<usize>>,
) -> Cow<'a, str> {
    let bytes = text.as_bytes();
    let (mut kept, mut copied, mut position) = (String::new(), 0, 0);
    while position < bytes.len() {
        match find(bytes, position) {
            Some(found) => {
                kept.push_str(&text[copied..position + found.start]);
                kept.push_str(mark);
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
    // Few positions begin anything: the rest must cost next to nothing.
    match bytes[0] {
        b'r' => own_key(bytes),
        b'A' => aws_key_id(bytes),
        b'e' => json_web_token(bytes),
        b'b' | b'B' => bearer(bytes),
        b's' | b'S' => aws_secret(bytes),
        _ => None,
    }
}

fn own_key(bytes: &[u8]) -> Option<Range<usize>> {
    let rest = bytes.strip_prefix(PREFIX.as_bytes())?;
    let length = run(rest, |byte| byte.is_ascii_alphanumeric());
    (length >= SECRET_CHARS).then_some(0..PREFIX.len() + length)
}

fn aws_key_id(bytes: &[u8]) -> Option<Range<usize>> {
    let prefix = AWS_KEY_ID
        .iter()
        .find(|prefix| bytes.starts_with(prefix.as_bytes()))?;
    let rest = &bytes[prefix.len()..];
    let length = run(rest, |byte| {
        byte.is_ascii_uppercase() || byte.is_ascii_digit()
    });
    (length == AWS_KEY_ID_REST_BYTES).then_some(0..prefix.len() + length)
}

/// The secret behind its name; between them stand quotes, colons, equals signs, spaces and escapes.
fn aws_secret(bytes: &[u8]) -> Option<Range<usize>> {
    let named = |name: &&&str| {
        let start = bytes.get(..name.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
    };
    let name = AWS_SECRET_NAMES.iter().find(named)?;
    let between = run(&bytes[name.len()..], |byte| b" \"'\\:=".contains(&byte));
    let start = name.len() + between;
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    let length = run(&bytes[start..], base64);
    (between > 0 && length == AWS_SECRET_BYTES).then_some(start..start + length)
}

/// Header, claims and signature, with dots between them; the signature may be empty or cut.
fn json_web_token(bytes: &[u8]) -> Option<Range<usize>> {
    if !bytes.starts_with(JWT.as_bytes()) {
        return None;
    }
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let header = run(bytes, base64);
    let claims = run(bytes.get(header + 1..)?, base64);
    let long = header >= JWT_PART_MIN_BYTES && claims >= JWT_PART_MIN_BYTES;
    if bytes[header] != b'.' || !long {
        return None;
    }
    let end = header + 1 + claims;
    match bytes.get(end..) {
        Some([b'.', rest @ ..]) => Some(0..end + 1 + run(rest, base64)),
        _ => Some(0..end),
    }
}

fn bearer(bytes: &[u8]) -> Option<Range<usize>> {
    let (word, rest) = bytes.split_at_checked(BEARER.len())?;
    if !word.eq_ignore_ascii_case(BEARER.as_bytes()) {
        return None;
    }
    let length = run(rest, is_token_character);
    // A long word of prose has no digit.
    let token = length >= TOKEN_MIN_BYTES && rest[..length].iter().any(u8::is_ascii_digit);
    token.then_some(BEARER.len()..BEARER.len() + length)
}

/// How many of the first bytes are of this kind.
fn run(bytes: &[u8], kind: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| kind(**byte)).count()
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
    fn access_keys_of_aws_and_json_web_tokens_are_hidden() {
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        for (text, expected) in [
            ("AKIAIOSFODNN7EXAMPLE".to_owned(), "[secret]"),
            ("is ASIAIOSFODNN7EXAMPLE.".to_owned(), "is [secret]."),
            ("AKIAIOSFODNN7EXAMPLEX".to_owned(), "AKIAIOSFODNN7EXAMPLEX"),
            (
                format!("aws_secret_access_key = {secret}"),
                "aws_secret_access_key = [secret]",
            ),
            (
                format!(r#"{{\"SecretAccessKey\": \"{secret}\"}}"#),
                r#"{\"SecretAccessKey\": \"[secret]\"}"#,
            ),
            (
                "secret_access_key is short".to_owned(),
                "secret_access_key is short",
            ),
            (
                "t=eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.c2lnbmF0dXJl&x".to_owned(),
                "t=[secret]&x",
            ),
            (
                "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm5hIn0".to_owned(),
                "[secret]",
            ),
            ("eyJ.eyJ.x eyJhbGciOiJ".to_owned(), "eyJ.eyJ.x eyJhbGciOiJ"),
            ("eyJ".to_owned(), "eyJ"),
        ] {
            assert_eq!(without_credentials(&text), expected);
        }
    }

    #[test]
    fn everything_that_is_masked_is_masked_in_one_text() {
        let text = "Bearer foreign-key-0123456789 of anna@example.com pays with 4111111111111111";
        assert_eq!(masked(text), "Bearer [secret] of [e-mail] pays with [card]");
        assert!(matches!(masked("leave"), Cow::Borrowed("leave")));
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
