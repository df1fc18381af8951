//! Identifiers that sort by time: UUID version 7 (RFC 9562 §5.7).

use uuid::Builder;

use crate::clock::Timestamp;
use crate::random::{Random, RandomUnavailable};

/// A new identifier whose text order is the order of `now`, 36 characters long.
///
/// # Errors
/// [`RandomUnavailable`] when there are no random bytes.
pub fn time_sortable(now: Timestamp, random: &dyn Random) -> Result<String, RandomUnavailable> {
    let mut bytes = [0_u8; 10];
    random.fill(&mut bytes)?;
    let epoch_ms = u64::try_from(now.epoch_ms()).unwrap_or(0);
    Ok(Builder::from_unix_timestamp_millis(epoch_ms, &bytes)
        .into_uuid()
        .to_string())
}

/// `bytes.len()` random bytes as lower-case hexadecimal.
///
/// # Errors
/// [`RandomUnavailable`] when there are no random bytes.
pub fn random_hex<const LENGTH: usize>(random: &dyn Random) -> Result<String, RandomUnavailable> {
    let mut bytes = [0_u8; LENGTH];
    random.fill(&mut bytes)?;
    Ok(to_hex(&bytes))
}

/// A new identifier of a key: `key-` and twelve hexadecimal digits; not secret.
///
/// # Errors
/// [`RandomUnavailable`] when there are no random bytes.
pub fn key_id(random: &dyn Random) -> Result<String, RandomUnavailable> {
    Ok(format!("key-{}", random_hex::<6>(random)?))
}

/// Lower-case hexadecimal.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        for nibble in [byte >> 4, byte & 0xf] {
            text.push(char::from(DIGITS[usize::from(nibble)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SequenceRandom;

    #[test]
    fn later_identifiers_sort_after_earlier_ones() {
        let random = SequenceRandom::seeded(1);
        let ids: Vec<String> = (0..50)
            .map(|n| time_sortable(Timestamp::from_epoch_ms(1_700_000_000_000 + n), &random))
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(ids.is_sorted());
        assert_eq!(ids[0].as_bytes()[14], b'7');
    }

    #[test]
    fn hexadecimal_is_lower_case_and_two_digits_a_byte() {
        assert_eq!(to_hex(&[0, 15, 16, 255]), "000f10ff");
    }
}
