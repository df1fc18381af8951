//! How words are told apart and hashed: shared with the build script, which lays the word table out.

/// Bits of the set of word beginnings.
pub(crate) const BEGINNING_BITS: u32 = 1 << 16;
/// So many bytes of a stem say in which bucket it is; no stem is shorter.
pub(crate) const STEM_BEGINNING_BYTES: usize = 3;
/// How many buckets of stems there are.
pub(crate) const STEM_BUCKETS: u32 = 256;

/// The first eight bytes of a word, with zeros behind a shorter one, and the last eight of a longer one.
/// Words of the same length and up to 16 bytes are the same when these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub first: u64,
    pub last: u64,
}

impl Ends {
    /// The ends of a word.
    #[inline]
    pub fn of(word: &[u8]) -> Self {
        let length = word.len();
        if let (Some(first), Some(last)) = (word.first_chunk(), word.last_chunk()) {
            return Self {
                first: u64::from_le_bytes(*first),
                last: if length > 8 {
                    u64::from_le_bytes(*last)
                } else {
                    0
                },
            };
        }
        let first = if let (Some(first), Some(last)) = (word.first_chunk(), word.last_chunk()) {
            // The two overlap.
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            u64::from(last) << (8 * (length - 4)) | u64::from(first)
        } else {
            let byte = |at: usize| word.get(at).copied().unwrap_or_default();
            u64::from_le_bytes([byte(0), byte(1), byte(2), 0, 0, 0, 0, 0])
        };
        Self::of_short(first)
    }

    /// The ends of a word of up to eight bytes, as this number has them.
    #[inline]
    pub const fn of_short(first: u64) -> Self {
        Self { first, last: 0 }
    }

    /// What lies between the ends.
    #[inline]
    pub fn middle(word: &[u8]) -> &[u8] {
        let end = word.len().saturating_sub(8);
        word.get(8..end).unwrap_or_default()
    }

    /// A hash of the word.
    #[inline]
    pub const fn hash(self) -> u32 {
        let mixed = self.first.wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ self.last.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
        // The highest bits depend on all of the others.
        (mixed >> 32) as u32
    }

    /// The bucket of the stems that begin so.
    #[inline]
    pub const fn stem_bucket(self) -> u32 {
        self.hash() >> 16 & (STEM_BUCKETS - 1)
    }
}

/// Takes in the next character of a beginning; the hash of none is 0.
#[inline]
pub(crate) fn hash_step(hash: u32, c: char) -> u32 {
    (hash.rotate_left(5) ^ u32::from(c)).wrapping_mul(0x9E37_79B1)
}

/// Where a hash falls in a set of `bits` bits (a power of two): the index of the word and the mask.
#[inline]
pub(crate) fn bit(hash: u32, bits: u32) -> (usize, u64) {
    let position = (hash ^ (hash >> 15)) & (bits - 1);
    ((position / 64) as usize, 1 << (position % 64))
}

/// How many numbers [`letter_pair`] gives.
pub(crate) const LETTER_PAIRS: usize = 1 << 10;
/// How many numbers [`triple`] gives.
pub(crate) const BEGINNING_TRIPLES: usize = 1 << 15;

/// Two letters as one number; other bytes get the numbers of letters as well.
#[inline]
pub(crate) const fn letter_pair(first: u8, second: u8) -> usize {
    (first as usize & 31) << 5 | second as usize & 31
}

/// The first three bytes of a word as one number, which others may have as well.
#[inline]
pub(crate) const fn triple(beginning: [u8; 3]) -> usize {
    letter_pair(beginning[0], beginning[1]) << 5 | beginning[2] as usize & 31
}
