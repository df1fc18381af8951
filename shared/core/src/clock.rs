//! Time as a parameter.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

/// A moment in UTC with millisecond resolution.
///
/// Written and read as RFC 3339 (`2026-11-30T08:15:00.000Z`); a plain date is read as its midnight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    epoch_ms: i64,
}

/// The text is neither an RFC 3339 date-time nor a date `YYYY-MM-DD` between the years 0 and 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a date (2026-11-30) or an RFC 3339 date-time (2026-11-30T08:15:00Z)")]
pub struct InvalidTimestamp;

/// RFC 3339 with exactly three digits of a second, so that text order is time order.
const MILLISECONDS: &[BorrowedFormatItem<'static>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
const DATE: &[BorrowedFormatItem<'static>] = format_description!("[year]-[month]-[day]");

/// The last moment that RFC 3339 can name: 9999-12-31T23:59:59.999Z.
const LATEST_EPOCH_MS: i64 = 253_402_300_799_999;
/// The first moment that RFC 3339 can name: 0000-01-01T00:00:00Z.
const EARLIEST_EPOCH_MS: i64 = -62_167_219_200_000;

impl Timestamp {
    /// From milliseconds since 1970-01-01T00:00:00Z. Values outside of the years 0 to 9999 are
    /// brought to the nearest end, because nothing else can be written as RFC 3339.
    #[must_use]
    pub const fn from_epoch_ms(epoch_ms: i64) -> Self {
        let epoch_ms = if epoch_ms > LATEST_EPOCH_MS {
            LATEST_EPOCH_MS
        } else if epoch_ms < EARLIEST_EPOCH_MS {
            EARLIEST_EPOCH_MS
        } else {
            epoch_ms
        };
        Self { epoch_ms }
    }

    /// From whole seconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn from_epoch_seconds(epoch_seconds: i64) -> Self {
        Self::from_epoch_ms(epoch_seconds.saturating_mul(1000))
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn epoch_ms(self) -> i64 {
        self.epoch_ms
    }

    /// Whole seconds since 1970-01-01T00:00:00Z, rounded down.
    #[must_use]
    pub const fn epoch_seconds(self) -> i64 {
        self.epoch_ms.div_euclid(1000)
    }

    /// This moment, `seconds` later (or earlier, when negative).
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self::from_epoch_ms(self.epoch_ms.saturating_add(seconds.saturating_mul(1000)))
    }

    /// The day in UTC, `YYYY-MM-DD`.
    #[must_use]
    pub fn day(self) -> String {
        self.to_string().chars().take(10).collect()
    }

    /// Reads RFC 3339 or a plain date.
    ///
    /// # Errors
    /// [`InvalidTimestamp`] when the text is neither.
    pub fn parse(text: &str) -> Result<Self, InvalidTimestamp> {
        if let Ok(moment) = OffsetDateTime::parse(text, &Rfc3339) {
            let epoch_ms = moment.unix_timestamp_nanos().div_euclid(1_000_000);
            return i64::try_from(epoch_ms)
                .map(Self::from_epoch_ms)
                .map_err(|_| InvalidTimestamp);
        }
        let date = time::Date::parse(text, DATE).map_err(|_| InvalidTimestamp)?;
        Ok(Self::from_epoch_seconds(
            date.midnight().assume_utc().unix_timestamp(),
        ))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.epoch_ms) * 1_000_000)
            .ok()
            .and_then(|moment| moment.format(MILLISECONDS).ok())
            .ok_or(fmt::Error)?;
        f.write_str(&text)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

/// Where the present comes from.
pub trait Clock: Send + Sync {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the system's clock"
    )]
    fn now(&self) -> Timestamp {
        let epoch_ms = OffsetDateTime::now_utc()
            .unix_timestamp_nanos()
            .div_euclid(1_000_000);
        Timestamp::from_epoch_ms(i64::try_from(epoch_ms).unwrap_or(LATEST_EPOCH_MS))
    }
}

/// A clock that a test sets and moves.
#[derive(Debug)]
pub struct ManualClock {
    epoch_ms: AtomicI64,
}

impl ManualClock {
    /// A clock that stands still at `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self {
            epoch_ms: AtomicI64::new(now.epoch_ms()),
        }
    }

    /// Moves the clock by `seconds`.
    pub fn advance_seconds(&self, seconds: i64) {
        self.epoch_ms
            .fetch_add(seconds.saturating_mul(1000), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_epoch_ms(self.epoch_ms.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_date_is_its_midnight_and_an_offset_is_brought_to_utc() {
        assert_eq!(
            Timestamp::parse("2026-11-30").unwrap().to_string(),
            "2026-11-30T00:00:00.000Z"
        );
        assert_eq!(
            Timestamp::parse("2026-11-30T08:15:00.5+08:00")
                .unwrap()
                .to_string(),
            "2026-11-30T00:15:00.500Z"
        );
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "yesterday",
            "2026-13-01",
            "2026-02-30",
            "20261130",
            "2026-11-30T25:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(text), Err(InvalidTimestamp), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(epoch_ms in any::<i64>()) {
            let moment = Timestamp::from_epoch_ms(epoch_ms);
            prop_assert_eq!(Timestamp::parse(&moment.to_string()), Ok(moment));
        }

        #[test]
        fn text_order_is_time_order(a in 0_i64..LATEST_EPOCH_MS, b in 0_i64..LATEST_EPOCH_MS) {
            let (a, b) = (Timestamp::from_epoch_ms(a), Timestamp::from_epoch_ms(b));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".*") {
            let _ = Timestamp::parse(&text);
        }
    }
}
