//! Randomness as a parameter.

use std::sync::atomic::{AtomicU64, Ordering};

/// Where random bytes come from.
pub trait Random: Send + Sync {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// [`RandomUnavailable`] when the source cannot be read; nothing may be derived from `bytes` then.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomUnavailable>;
}

/// The operating system gave no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operating system's random source is not available")]
pub struct RandomUnavailable;

/// The operating system's cryptographic randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that asks the operating system"
    )]
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomUnavailable> {
        getrandom::fill(bytes).map_err(|_| RandomUnavailable)
    }
}

/// A repeatable sequence for tests: never use it for a secret.
#[derive(Debug, Default)]
pub struct SequenceRandom {
    state: AtomicU64,
}

impl SequenceRandom {
    /// A sequence that is fully decided by `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed),
        }
    }
}

impl Random for SequenceRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomUnavailable> {
        // SplitMix64 (Steele, Lea, Flood 2014): short, repeatable, well distributed.
        for chunk in bytes.chunks_mut(8) {
            let mut z = self
                .state
                .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst)
                .wrapping_add(0x9E37_79B9_7F4A_7C15);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            for (target, source) in chunk.iter_mut().zip(z.to_le_bytes()) {
                *target = source;
            }
        }
        Ok(())
    }
}
