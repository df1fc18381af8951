//! What is known about a request besides the request itself.

use std::time::Duration;

use raglan_core::clock::Timestamp;

/// Left of Lambda's time for writing the answer and the audit event.
const RESERVED_FOR_THE_ANSWER: Duration = Duration::from_millis(800);

/// What the platform tells about one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallContext {
    /// Identifier of the request; callers are told it in errors.
    pub request_id: String,
    /// When the platform ends the call, where it says so.
    pub deadline: Option<Timestamp>,
    /// The address that the request came from.
    pub source_ip: Option<String>,
}

impl CallContext {
    /// How long it is until the platform ends the call. `None` where nobody says so.
    ///
    /// A deadline that has already passed is taken as unknown: `cargo lambda watch` sends a duration
    /// where Lambda sends a moment.
    #[must_use]
    pub fn time_until_the_end(&self, now: Timestamp) -> Option<Duration> {
        let left_ms = self.deadline?.epoch_ms() - now.epoch_ms();
        let left_ms = u64::try_from(left_ms).ok().filter(|left| *left > 0)?;
        Some(Duration::from_millis(left_ms))
    }

    /// How long the work on this request may still take.
    #[must_use]
    pub fn time_left(&self, now: Timestamp, default: Duration) -> Duration {
        self.time_until_the_end(now).map_or(default, |left| {
            left.saturating_sub(RESERVED_FOR_THE_ANSWER).min(default)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_in_the_past_is_taken_as_unknown() {
        let now = Timestamp::from_epoch_seconds(1_800_000_000);
        let default = Duration::from_secs(25);
        let left = |deadline_ms: Option<i64>| {
            let deadline = deadline_ms.map(Timestamp::from_epoch_ms);
            CallContext {
                request_id: String::new(),
                deadline,
                source_ip: None,
            }
            .time_left(now, default)
        };
        assert_eq!(left(None), default);
        assert_eq!(left(Some(600_000)), default);
        assert_eq!(
            left(Some(now.epoch_ms() + 10_000)),
            Duration::from_millis(9_200)
        );
        assert_eq!(left(Some(now.epoch_ms() + 100)), Duration::ZERO);
        assert_eq!(left(Some(now.epoch_ms() + 100_000)), default);
    }
}
