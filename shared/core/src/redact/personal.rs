//! Numbers of payment cards and e-mail addresses: what people put into questions although nobody may
//! keep it.

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};

use super::replace;

const CARD: &str = "[card]";
const ADDRESS: &str = "[e-mail]";

/// Digits of a payment card (ISO/IEC 7812).
const CARD_DIGITS: RangeInclusive<usize> = 13..=19;
/// How the numbers of payment networks begin. Moments in milliseconds begin otherwise.
const CARD_FIRST_DIGITS: RangeInclusive<u8> = b'2'..=b'6';
/// From here on scripts have no upper and lower case, and words are not kept apart by spaces: such
/// characters stand beside an address, not in it.
const FIRST_IDEOGRAPH: char = '\u{2E80}';

/// The text without numbers of payment cards: digits that satisfy the Luhn formula, alone or in groups
/// with a space or a hyphen between them.
pub(super) fn without_cards(text: &str) -> Cow<'_, str> {
    replace(text, CARD, card_at)
}

fn card_at(bytes: &[u8], position: usize) -> Option<Range<usize>> {
    let before = position.checked_sub(1).map(|before| bytes[before]);
    if !CARD_FIRST_DIGITS.contains(&bytes[position]) || before.is_some_and(|b| b.is_ascii_digit()) {
        return None;
    }
    let (mut digits, mut end) = (Vec::new(), None);
    let mut rest = bytes[position..].iter().enumerate().peekable();
    while let Some((offset, byte)) = rest.next() {
        let next = rest.peek().map(|(_, next)| **next);
        let next_is_digit = next.is_some_and(|next| next.is_ascii_digit());
        match byte {
            b'0'..=b'9' if digits.len() < *CARD_DIGITS.end() => digits.push(byte - b'0'),
            b' ' | b'-' if next_is_digit => continue,
            _ => break,
        }
        if !next_is_digit && CARD_DIGITS.contains(&digits.len()) && satisfies_luhn(&digits) {
            end = Some(offset + 1);
        }
    }
    end.map(|end| 0..end)
}

/// The check digit of ISO/IEC 7812-1, annex B.
fn satisfies_luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| match (place % 2, u32::from(*digit)) {
            (0, digit) => digit,
            (_, digit) if digit > 4 => digit * 2 - 9,
            (_, digit) => digit * 2,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// The text without e-mail addresses.
pub(super) fn without_addresses(text: &str) -> Cow<'_, str> {
    let (mut kept, mut copied) = (String::new(), 0);
    for (at, _) in text.match_indices('@') {
        let (before, after) = (&text[copied.min(at)..at], &text[at + 1..]);
        let local = before
            .char_indices()
            .rev()
            .take_while(|(_, c)| is_letter_or_digit(*c) || "._%+-'".contains(*c))
            .last()
            .map(|(start, _)| start + copied.min(at));
        let domain = &after[..domain_length(after)];
        let (Some(start), true) = (local, domain.contains('.')) else {
            continue;
        };
        kept.push_str(&text[copied..start]);
        kept.push_str(ADDRESS);
        copied = at + 1 + domain.len();
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    kept.push_str(&text[copied..]);
    Cow::Owned(kept)
}

/// How many bytes of a text are the name of a domain: labels with dots between them, none at the end.
fn domain_length(text: &str) -> usize {
    let name = text
        .find(|c: char| !is_letter_or_digit(c) && !".-".contains(c))
        .map_or(text, |end| &text[..end]);
    name.trim_end_matches(['.', '-']).len()
}

fn is_letter_or_digit(c: char) -> bool {
    c.is_alphanumeric() && c < FIRST_IDEOGRAPH
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn card_numbers_are_hidden_however_they_are_grouped() {
        for (text, expected) in [
            ("4111111111111111", "[card]"),
            ("pay 4111 1111 1111 1111 now", "pay [card] now"),
            ("4111-1111-1111-1111,", "[card],"),
            ("卡号378282246310005。", "卡号[card]。"),
            ("5555555555554444/2221000000000009", "[card]/[card]"),
            ("7 4111 1111 1111 1111 7", "7 [card] 7"),
            ("4111111111111111 123", "[card] 123"),
        ] {
            assert_eq!(without_cards(text), expected);
        }
    }

    #[test]
    fn other_numbers_stay() {
        for text in [
            "4111111111111112",
            "1796026500000",
            "41111111111111111111111",
            "2026-11-30 08:15:00",
            "4111 - 1111 - 1111 - 1111",
            "+49 89 123456",
            "4",
            "",
        ] {
            assert_eq!(without_cards(text), text);
        }
    }

    #[test]
    fn addresses_are_hidden_and_what_stands_beside_them_is_not() {
        for (text, expected) in [
            ("anna.b+x@mail.example.com", "[e-mail]"),
            (
                "<anna@example.com>, bo@example.org.",
                "<[e-mail]>, [e-mail].",
            ),
            ("请联系anna@example.com谢谢", "请联系[e-mail]谢谢"),
            ("jürgen@münchen.de", "[e-mail]"),
            ("a@b.example@c.example", "[e-mail]@c.example"),
        ] {
            assert_eq!(without_addresses(text), expected);
        }
        for text in [
            "user@host",
            "@anna",
            "a @ b.c",
            "npm i @scope/pkg",
            "@",
            "x@.",
            "x@-.-",
        ] {
            assert_eq!(without_addresses(text), text);
        }
    }

    proptest! {
        #[test]
        fn an_address_is_hidden_wherever_it_stands(
            before in ".*[ ,;<(]", local in "[a-z][a-z0-9.]{0,9}", domain in "[a-z]{1,9}\\.[a-z]{2,5}",
            after in "[ ,;>)].*",
        ) {
            let text = format!("{before}{local}@{domain}{after}");
            let address = format!("{local}@{domain}");
            prop_assert!(!without_addresses(&text).contains(&address));
        }

        #[test]
        fn no_text_makes_the_search_panic(text in "[0-9@. \\-a-z4知é]{0,60}") {
            let _ = super::super::masked(&text);
        }
    }
}
