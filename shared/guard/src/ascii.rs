//! Eight bytes of a text at a time, as the bytes of one number. Most text is ASCII, and most words have
//! no more letters.

/// The lowest bit of every byte.
const ONES: u64 = u64::from_ne_bytes([1; 8]);
/// The highest bit of every byte, which no ASCII character has.
const HIGHS: u64 = ONES << 7;

/// The ASCII letters and digits that a text begins with, up to eight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WordPart {
    /// In lower case, the first one lowest, and zeros behind.
    pub lower: u64,
    /// How many they are.
    pub length: usize,
    /// Whether there is a digit among them.
    pub has_digit: bool,
}

impl WordPart {
    /// Most letters and digits of one part.
    pub const MAX_LENGTH: usize = 8;

    /// What `text` begins with.
    #[inline]
    pub fn of(text: &[u8]) -> Self {
        let eight = u64::from_le_bytes(first_eight(text));
        // The bit makes a capital small and leaves a digit as it is.
        let lower = eight | (ONES * 0x20);
        let digits = among(eight, b'0', b'9');
        let others = !(among(lower, b'a', b'z') | digits) & HIGHS;
        // All bits of the bytes before the first other one.
        let word = ((others & others.wrapping_neg()) >> 7).wrapping_sub(1);
        Self {
            lower: lower & word,
            length: (others.trailing_zeros() / 8) as usize,
            has_digit: digits & word != 0,
        }
    }
}

/// The first eight bytes, zeros behind the end of the text.
#[inline]
fn first_eight(text: &[u8]) -> [u8; 8] {
    text.first_chunk().copied().unwrap_or_else(|| {
        let mut eight = [0; 8];
        for (to, from) in eight.iter_mut().zip(text) {
            *to = *from;
        }
        eight
    })
}

/// Whether all of the bytes are printable ASCII characters.
#[inline]
pub(crate) fn are_printable(eight: [u8; 8]) -> bool {
    let eight = u64::from_le_bytes(eight);
    // The lowest byte that is not printable gets its highest bit in one of the three, and where all are
    // printable none gets it.
    let others = eight | eight.wrapping_add(ONES) | eight.wrapping_sub(ONES * 0x20);
    others & HIGHS == 0
}

/// Sets the highest bit of each byte that is one of the ASCII characters `first..=last`, and no other.
#[inline]
const fn among(bytes: u64, first: u8, last: u8) -> u64 {
    // Without the highest bits, no sum reaches into the next byte.
    let low = bytes & !HIGHS;
    let from_first = low + ONES * (0x80 - first as u64);
    let behind_last = low + ONES * (0x7F - last as u64);
    from_first & !behind_last & !bytes & HIGHS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_word_part_is_what_a_look_at_every_byte_says(
            text in prop::collection::vec(prop_oneof![any::<u8>(), 0x2F_u8..0x7C], 0..20),
        ) {
            let part = WordPart::of(&text);
            let word = text.iter().take(8).take_while(|byte| byte.is_ascii_alphanumeric());
            let lower: Vec<u8> = word.map(u8::to_ascii_lowercase).collect();
            prop_assert_eq!(part.length, lower.len());
            let mut eight = [0; 8];
            eight[..lower.len()].copy_from_slice(&lower);
            prop_assert_eq!(part.lower, u64::from_le_bytes(eight));
            prop_assert_eq!(part.has_digit, lower.iter().any(u8::is_ascii_digit));
        }

        #[test]
        fn printable_characters_are_told_from_others(eight: [u8; 8], at in 0_usize..8, byte: u8) {
            let is_printable = |byte: &u8| matches!(byte, b' '..=b'~');
            prop_assert_eq!(are_printable(eight), eight.iter().all(is_printable));
            let mut letters = *b"a letter";
            letters[at] = byte;
            prop_assert_eq!(are_printable(letters), is_printable(&byte));
        }
    }
}
