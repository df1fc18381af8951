//! The hash of words: shared with the build script, which lays the word table out.

/// Bits of the set of word beginnings.
pub(crate) const BEGINNING_BITS: u32 = 1 << 17;
/// Bits of the set of stems.
pub(crate) const STEM_BITS: u32 = 1 << 12;

/// Takes in the next byte of a word; the hash of no bytes is 0.
pub(crate) fn hash_step(hash: u32, byte: u8) -> u32 {
    (hash.rotate_left(5) ^ u32::from(byte)).wrapping_mul(0x9E37_79B1)
}

/// Where a hash falls in a set of `bits` bits (a power of two): the index of the word and the mask.
pub(crate) fn bit(hash: u32, bits: u32) -> (usize, u64) {
    let position = (hash ^ (hash >> 15)) & (bits - 1);
    ((position / 64) as usize, 1 << (position % 64))
}
