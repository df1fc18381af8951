//! How much a key may ask: the token bucket and the calls of one day, as arithmetic.
//!
//! The bucket is the generic cell rate algorithm (ITU-T I.371, annex A): instead of tokens and a
//! moment it keeps one number, the *theoretical arrival time*, at which the bucket is full again.
//! Each call moves it by the time that one token takes to come back. A call may come as long as the
//! bucket would be full no later than `burst` tokens from now. One number can be moved by an
//! addition in the store, so callers at the same time need no lock and lose nothing.

use std::collections::BTreeMap;

use crate::clock::Timestamp;
use crate::key_record::RateLimit;
use crate::tool::Tool;

const MICROSECONDS_PER_MINUTE: i64 = 60_000_000;
const MICROSECONDS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// Larger values in a key's record are taken as this one; it keeps the arithmetic far from overflow.
const BURST_MAX: u32 = 1_000_000;

/// Microseconds since 1970: milliseconds would round the pace of fast keys.
#[must_use]
pub const fn epoch_us(moment: Timestamp) -> i64 {
    moment.epoch_ms().saturating_mul(1000)
}

/// The number of the UTC day that `moment` lies in; 1970-01-01 is 0.
#[must_use]
pub const fn day_number(moment: Timestamp) -> i64 {
    moment.epoch_seconds().div_euclid(SECONDS_PER_DAY)
}

/// The next midnight in UTC, at which daily quotas begin anew.
#[must_use]
pub const fn next_midnight(moment: Timestamp) -> Timestamp {
    Timestamp::from_epoch_seconds((day_number(moment) + 1).saturating_mul(SECONDS_PER_DAY))
}

/// A token bucket with its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    token_us: i64,
    burst: u32,
}

/// What a bucket says to one more call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// The bucket is full: the count begins at the present.
    Full,
    /// Tokens are missing, but there is one for this call: the count goes on.
    Partial,
    /// There is no token.
    Empty,
}

/// What is left of a bucket, as callers are told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remaining {
    /// Calls that may come right now.
    pub calls: u32,
    /// Whole seconds until `calls` rises to the burst, or, when it is 0, until one call may come.
    pub reset_seconds: u64,
}

impl Bucket {
    /// The bucket of this limit; `None` when it is 0 a minute, which switches it off. A burst of 0 is
    /// taken as 1: otherwise no call could ever come.
    #[must_use]
    pub fn new(limit: RateLimit) -> Option<Self> {
        let per_minute = i64::from(limit.requests_per_minute);
        // Rounded up: the pace is never faster than the limit.
        let token_us =
            (per_minute > 0).then(|| (MICROSECONDS_PER_MINUTE + per_minute - 1) / per_minute)?;
        Some(Self {
            token_us,
            burst: limit.burst.clamp(1, BURST_MAX),
        })
    }

    /// Time after which one used token is back, in microseconds.
    #[must_use]
    pub const fn token_us(self) -> i64 {
        self.token_us
    }

    /// Calls that may come at once.
    #[must_use]
    pub const fn burst(self) -> u32 {
        self.burst
    }

    /// Seconds in which an empty bucket becomes full, at least 1.
    #[must_use]
    pub fn window_seconds(self) -> u64 {
        seconds_up(self.capacity_us()).max(1)
    }

    /// The latest `full_at_us` with which `calls` calls may still come at `now_us`.
    #[must_use]
    pub fn latest_us(self, now_us: i64, calls: u32) -> i64 {
        now_us + self.capacity_us() - self.cost_us(calls)
    }

    /// Time that `calls` calls move `full_at_us` by.
    #[must_use]
    pub fn cost_us(self, calls: u32) -> i64 {
        self.token_us * i64::from(calls)
    }

    /// Whether `calls` calls may come together at `now_us` when the bucket is full at `full_at_us`.
    #[must_use]
    pub fn fill(self, full_at_us: i64, now_us: i64, calls: u32) -> Fill {
        if full_at_us.max(now_us) > self.latest_us(now_us, calls) {
            Fill::Empty
        } else if full_at_us <= now_us {
            Fill::Full
        } else {
            Fill::Partial
        }
    }

    /// `full_at_us` after these calls; `None` when they may not come.
    #[must_use]
    pub fn take(self, full_at_us: i64, now_us: i64, calls: u32) -> Option<i64> {
        match self.fill(full_at_us, now_us, calls) {
            Fill::Full => Some(now_us + self.cost_us(calls)),
            Fill::Partial => Some(full_at_us + self.cost_us(calls)),
            Fill::Empty => None,
        }
    }

    /// Whole seconds until `calls` calls may come, at least 1. More calls than the burst never may.
    #[must_use]
    pub fn wait_seconds(self, full_at_us: i64, now_us: i64, calls: u32) -> u64 {
        seconds_up(full_at_us - self.latest_us(now_us, calls)).max(1)
    }

    /// What is left at `now_us`.
    #[must_use]
    pub fn remaining(self, full_at_us: i64, now_us: i64) -> Remaining {
        let debt_us = (full_at_us - now_us).max(0);
        let free_us = (self.capacity_us() - debt_us).max(0);
        let calls = u32::try_from(free_us / self.token_us).unwrap_or(self.burst);
        let reset_seconds = if calls == 0 {
            self.wait_seconds(full_at_us, now_us, 1)
        } else {
            seconds_up(debt_us)
        };
        Remaining {
            calls,
            reset_seconds,
        }
    }

    fn capacity_us(self) -> i64 {
        self.token_us * i64::from(self.burst)
    }
}

fn seconds_up(duration_us: i64) -> u64 {
    let seconds = (duration_us + MICROSECONDS_PER_SECOND - 1) / MICROSECONDS_PER_SECOND;
    u64::try_from(seconds).unwrap_or(0)
}

/// The tool calls of one request: one, or several in a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calls {
    /// How many, those of unknown tools included.
    pub total: u32,
    /// How many of each tool.
    pub by_tool: BTreeMap<Tool, u32>,
}

impl Calls {
    /// One more call of the tool of this name.
    pub fn add(&mut self, tool_name: &str) {
        self.total = self.total.saturating_add(1);
        if let Some(tool) = Tool::from_name(tool_name) {
            let count = self.by_tool.entry(tool).or_default();
            *count = count.saturating_add(1);
        }
    }
}

/// What a deployment or a key allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The pace of all tool calls together; 0 a minute switches it off.
    pub rate: RateLimit,
    /// Calls a day (UTC) by tool. A tool that is not named, or has 0, has no quota.
    pub daily_quotas: BTreeMap<Tool, u64>,
}

impl Limits {
    /// The daily quota of a tool for a key whose record has these quotas by name.
    #[must_use]
    pub fn daily_quota(&self, of_the_key: &BTreeMap<String, u64>, tool: Tool) -> Option<u64> {
        let quota = of_the_key
            .get(tool.name())
            .or_else(|| self.daily_quotas.get(&tool));
        quota.copied().filter(|quota| *quota > 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket(requests_per_minute: u32, burst: u32) -> Bucket {
        Bucket::new(RateLimit {
            requests_per_minute,
            burst,
        })
        .unwrap()
    }

    /// Sends calls at these moments (ascending) and gives the moments of those that may come.
    fn admitted(bucket: Bucket, moments_us: &[i64]) -> Vec<i64> {
        let mut full_at_us = 0;
        let mut admitted = Vec::new();
        for now_us in moments_us {
            if let Some(next) = bucket.take(full_at_us, *now_us, 1) {
                full_at_us = next;
                admitted.push(*now_us);
            }
        }
        admitted
    }

    #[test]
    fn a_full_bucket_gives_its_burst_and_then_the_sustained_rate() {
        let bucket = bucket(120, 40);
        let start_us = 1_000_000_000;
        assert_eq!(admitted(bucket, &[start_us; 100]).len(), 40);
        let ten_seconds: Vec<i64> = (0..10_000).map(|ms| start_us + ms * 1000).collect();
        assert_eq!(admitted(bucket, &ten_seconds).len(), 40 + 19);
    }

    #[test]
    fn a_limit_of_zero_a_minute_is_no_limit_and_a_burst_of_zero_is_one() {
        let limit = |requests_per_minute, burst| RateLimit {
            requests_per_minute,
            burst,
        };
        assert_eq!(Bucket::new(limit(0, 40)), None);
        assert_eq!(Bucket::new(limit(60, 0)), Bucket::new(limit(60, 1)));
    }

    #[test]
    fn calls_that_come_together_are_taken_together_or_not_at_all() {
        let bucket = bucket(60, 10);
        let full_at_us = bucket.take(0, 0, 7).unwrap();
        assert_eq!(full_at_us, 7_000_000);
        assert_eq!(bucket.take(full_at_us, 0, 4), None);
        assert_eq!(bucket.wait_seconds(full_at_us, 0, 4), 1);
        assert_eq!(bucket.take(full_at_us, 0, 3), Some(10_000_000));
        assert_eq!(bucket.fill(0, 0, 11), Fill::Empty);
    }

    #[test]
    fn what_is_left_is_told_in_calls_and_whole_seconds() {
        let bucket = bucket(120, 40);
        let rows = [
            // Full, one call taken, all taken, all taken 400 ms ago, beyond all.
            (0, 0, 40, 0),
            (500_000, 0, 39, 1),
            (20_000_000, 0, 0, 1),
            (20_000_000, 400_000, 0, 1),
            (23_000_000, 0, 0, 4),
        ];
        for (full_at_us, now_us, calls, reset_seconds) in rows {
            let expected = Remaining {
                calls,
                reset_seconds,
            };
            assert_eq!(
                bucket.remaining(full_at_us, now_us),
                expected,
                "{full_at_us}"
            );
        }
        assert_eq!(bucket.window_seconds(), 20);
    }

    #[test]
    fn quotas_begin_anew_at_midnight_in_utc() {
        let evening = Timestamp::parse("2026-11-30T23:59:59.999Z").unwrap();
        let midnight = Timestamp::parse("2026-12-01").unwrap();
        assert_eq!(next_midnight(evening), midnight);
        assert_eq!(next_midnight(midnight), midnight.plus_seconds(86_400));
        assert_eq!(day_number(evening) + 1, day_number(midnight));
    }

    #[test]
    fn a_keys_own_quota_comes_first_and_zero_lifts_it() {
        let limits = Limits {
            rate: RateLimit {
                requests_per_minute: 0,
                burst: 0,
            },
            daily_quotas: BTreeMap::from([(Tool::Ask, 500)]),
        };
        let own = |quota| BTreeMap::from([("ask".to_owned(), quota)]);
        assert_eq!(limits.daily_quota(&BTreeMap::new(), Tool::Ask), Some(500));
        assert_eq!(limits.daily_quota(&own(7), Tool::Ask), Some(7));
        assert_eq!(limits.daily_quota(&own(0), Tool::Ask), None);
        assert_eq!(limits.daily_quota(&own(7), Tool::Retrieve), None);
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_holds_more_than_its_rate_and_one_burst(
            per_minute in 1_u32..60_000,
            burst in 1_u32..200,
            gaps_us in prop::collection::vec(0_i64..2_000_000, 1..400),
        ) {
            let bucket = bucket(per_minute, burst);
            let moments: Vec<i64> = gaps_us.iter().scan(0, |now, gap| {
                *now += gap;
                Some(*now)
            }).collect();
            let admitted = admitted(bucket, &moments);
            for (first, from) in admitted.iter().enumerate() {
                for (last, to) in admitted.iter().enumerate().skip(first) {
                    let count = i64::try_from(last - first + 1).unwrap();
                    let budget = (to - from) / bucket.token_us() + i64::from(bucket.burst());
                    prop_assert!(count <= budget, "{count} calls in {} us", to - from);
                }
            }
        }

        #[test]
        fn whoever_keeps_to_the_rate_is_never_refused(
            per_minute in 1_u32..60_000,
            burst in 1_u32..200,
            calls in 1_usize..300,
        ) {
            let bucket = bucket(per_minute, burst);
            let moments: Vec<i64> = (0_i64..).map(|n| n * bucket.token_us()).take(calls).collect();
            prop_assert_eq!(admitted(bucket, &moments).len(), calls);
        }

        #[test]
        fn what_is_told_is_what_happens(
            per_minute in 1_u32..60_000,
            burst in 1_u32..200,
            debt_us in -1_000_000_i64..100_000_000,
        ) {
            let bucket = bucket(per_minute, burst);
            let now_us = 1_000_000_000;
            let mut full_at_us = now_us + debt_us.min(bucket.latest_us(0, 0) + bucket.token_us());
            let told = bucket.remaining(full_at_us, now_us);
            let mut calls = 0;
            while let Some(next) = bucket.take(full_at_us, now_us, 1) {
                full_at_us = next;
                calls += 1;
            }
            prop_assert_eq!(told.calls, calls);
            if calls == 0 {
                let later_us = now_us + i64::try_from(told.reset_seconds).unwrap() * 1_000_000;
                prop_assert!(bucket.take(full_at_us, later_us, 1).is_some());
            }
        }
    }
}
