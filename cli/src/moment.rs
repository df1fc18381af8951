//! Durations and moments as people type them.

use raglan_core::clock::Timestamp;

use crate::language::text;

/// A text that is neither a duration nor a moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMoment {
    /// Not a whole number and a unit.
    #[error("{}", text!("expected a whole number and a unit: 45m, 12h, 30d or 4w"))]
    Duration,
    /// Neither a duration nor a moment.
    #[error(
        "{}",
        text!(
            "expected a duration (12h, 30d), a date (2027-01-31), a date-time (RFC 3339) or never"
        )
    )]
    Moment,
    /// Neither a duration nor a moment of the past.
    #[error(
        "{}",
        text!("expected a duration (2h, 7d), a date (2027-01-31) or a date-time (RFC 3339)")
    )]
    Past,
}

/// Seconds of `45m`, `12h`, `30d`, `4w`, `90s` or `0`.
///
/// # Errors
/// [`InvalidMoment::Duration`]
pub fn parse_duration_seconds(text: &str) -> Result<i64, InvalidMoment> {
    let invalid = InvalidMoment::Duration;
    if text == "0" {
        return Ok(0);
    }
    let mut characters = text.chars();
    let unit = match characters.next_back() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 86_400,
        Some('w') => 7 * 86_400,
        _ => return Err(invalid),
    };
    let digits = characters.as_str();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid);
    }
    let count: i64 = digits.parse().map_err(|_| InvalidMoment::Duration)?;
    count.checked_mul(unit).ok_or(invalid)
}

/// When something ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It does not.
    Never,
    /// After so many seconds.
    In(i64),
    /// At that moment.
    At(Timestamp),
}

impl When {
    /// The moment, seen from `now`; `None` for never.
    #[must_use]
    pub const fn from(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Never => None,
            Self::In(seconds) => Some(now.plus_seconds(seconds)),
            Self::At(moment) => Some(moment),
        }
    }
}

/// `never`, `now`, a duration from now on, a date (its beginning in UTC) or a date-time.
///
/// # Errors
/// [`InvalidMoment::Moment`]
pub fn parse_when(text: &str) -> Result<When, InvalidMoment> {
    match text {
        "never" => Ok(When::Never),
        "now" => Ok(When::In(0)),
        _ => parse_duration_seconds(text).map(When::In).or_else(|_| {
            Timestamp::parse(text)
                .map(When::At)
                .map_err(|_| InvalidMoment::Moment)
        }),
    }
}

/// When something was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// So many seconds ago.
    Ago(i64),
    /// At that moment; `true` when a date was named, which is a whole day.
    At(Timestamp, bool),
}

impl Past {
    /// The moment, or the beginning of the day.
    #[must_use]
    pub const fn begin(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Ago(seconds) => now.plus_seconds(-seconds),
            Self::At(moment, _) => moment,
        }
    }

    /// The moment, or the end of the day.
    #[must_use]
    pub const fn end(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(moment, true) => {
                Timestamp::from_epoch_ms(moment.plus_seconds(86_400).epoch_ms() - 1)
            }
            _ => self.begin(now),
        }
    }
}

/// A duration until now, a date or a date-time.
///
/// # Errors
/// [`InvalidMoment::Past`]
pub fn parse_past(text: &str) -> Result<Past, InvalidMoment> {
    if let Ok(seconds) = parse_duration_seconds(text) {
        return Ok(Past::Ago(seconds));
    }
    let is_date = !text.contains([':', 'T', 't']);
    Timestamp::parse(text)
        .map(|moment| Past::At(moment, is_date))
        .map_err(|_| InvalidMoment::Past)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_duration_is_a_whole_number_and_a_unit() {
        for (text, seconds) in [
            ("0", 0),
            ("90s", 90),
            ("45m", 2_700),
            ("12h", 43_200),
            ("30d", 2_592_000),
            ("4w", 2_419_200),
        ] {
            assert_eq!(parse_duration_seconds(text), Ok(seconds), "{text}");
        }
        for bad in [
            "",
            "d",
            "30",
            "-1d",
            "1.5h",
            "1 d",
            "1D",
            "１d",
            "9999999999999999999d",
            "1y",
        ] {
            assert_eq!(
                parse_duration_seconds(bad),
                Err(InvalidMoment::Duration),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_moment_is_counted_from_now_or_named() {
        let now = Timestamp::from_epoch_seconds(1_800_000_000);
        let moment = |text: &str| parse_when(text).unwrap().from(now);
        assert_eq!(moment("never"), None);
        assert_eq!(moment("now"), Some(now));
        assert_eq!(moment("1d"), Some(now.plus_seconds(86_400)));
        assert_eq!(
            moment("2027-01-31").unwrap().to_string(),
            "2027-01-31T00:00:00.000Z"
        );
        assert_eq!(
            moment("2027-01-31T12:00:00+01:00").unwrap().to_string(),
            "2027-01-31T11:00:00.000Z"
        );
        assert_eq!(parse_when("tomorrow"), Err(InvalidMoment::Moment));
    }

    #[test]
    fn the_past_is_counted_back_from_now_or_named() {
        let now = Timestamp::from_epoch_seconds(1_800_000_000);
        let past = |text: &str| parse_past(text).unwrap();
        assert_eq!(past("2h").begin(now), now.plus_seconds(-7_200));
        assert_eq!(past("2h").end(now), now.plus_seconds(-7_200));
        let date_time = past("2027-01-31T12:00:00Z");
        assert_eq!(date_time.begin(now), date_time.end(now));
        let end = past("2027-01-31").end(now).to_string();
        assert_eq!(end, "2027-01-31T23:59:59.999Z");
        for bad in ["yesterday", "-2h", "2027-13-01", ""] {
            assert_eq!(parse_past(bad), Err(InvalidMoment::Past), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in ".*", number in any::<u128>()) {
            let _ = parse_when(&text);
            let _ = parse_past(&text).map(|past| past.end(Timestamp::from_epoch_seconds(0)));
            let _ = parse_when(&format!("{number}w"));
        }

        #[test]
        fn no_duration_leads_into_the_past(text in "[0-9]{0,20}[smhdw]") {
            if let Ok(seconds) = parse_duration_seconds(&text) {
                prop_assert!(seconds >= 0);
            }
        }
    }
}
