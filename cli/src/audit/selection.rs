//! Which events a command is about, and how they are read: always by a key or an index, page by page.

use std::ops::ControlFlow;

use raglan_core::audit::{AuditEvent, Decision};
use raglan_core::clock::Timestamp;
use raglan_core::key::PREFIX;
use raglan_store::audit_table::{Bounds, Slice};
use raglan_store::{AuditRecord, AuditTable};

use super::arguments::{RangeArguments, SelectionArguments};
use crate::failure::Failure;
use crate::key::find::find;
use crate::language::text;
use crate::moment::Past;
use crate::session::Session;

const SECONDS_PER_DAY: i64 = 86_400;
/// A range of time that names no beginning begins so long ago.
const DEFAULT_SINCE: Past = Past::Ago(SECONDS_PER_DAY);

/// A range of time, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

impl Range {
    /// What the options name.
    ///
    /// # Errors
    /// [`Failure::Usage`] when it ends before it begins.
    pub(super) fn of(arguments: &RangeArguments, now: Timestamp) -> Result<Self, Failure> {
        let from = arguments.since.or(arguments.from).unwrap_or(DEFAULT_SINCE);
        Self::between(from, arguments.to, now)
    }

    /// From one moment to another or to now.
    ///
    /// # Errors
    /// [`Failure::Usage`] when it ends before it begins.
    pub(super) fn between(from: Past, to: Option<Past>, now: Timestamp) -> Result<Self, Failure> {
        let range = Self {
            from: from.begin(now),
            to: to.map_or(now, |to| to.end(now)),
        };
        if range.from > range.to {
            let message = text!(
                "the time ends ({to}) before it begins ({from})",
                to = range.to,
                from = range.from
            );
            return Err(Failure::Usage(message));
        }
        Ok(range)
    }

    /// Its days in UTC, the first one first.
    pub(super) fn days(self) -> impl Iterator<Item = String> {
        let last = self.to.day();
        let first = Timestamp::parse(&self.from.day()).unwrap_or(self.from);
        (0..)
            .map(move |n| first.plus_seconds(n * SECONDS_PER_DAY).day())
            .take_while(move |day| *day <= last)
            // The last day that a timestamp can name has no day after it.
            .scan(String::new(), |before, day| {
                (*before != day).then(|| {
                    before.clone_from(&day);
                    day
                })
            })
    }
}

/// Whose events, and which of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selection {
    key: Option<String>,
    owner: Option<String>,
    tool: Option<String>,
    decision: Option<Decision>,
}

impl Selection {
    /// What the options name. A key that is named by itself or by its fingerprint is looked up.
    ///
    /// # Errors
    /// As [`find`].
    pub(super) async fn of(
        session: &mut Session<'_>,
        arguments: &SelectionArguments,
    ) -> anyhow::Result<Self> {
        let key = match arguments.key.as_deref() {
            Some(named) if named == "-" || named.starts_with(PREFIX) => {
                let keys = session.target.keys()?;
                let found = find(&keys, session.console, named).await?;
                Some(found.record.key_id)
            }
            named => named.map(ToOwned::to_owned),
        };
        Ok(Self {
            key,
            owner: arguments.owner.clone(),
            tool: arguments.tool.clone(),
            decision: arguments.decision.map(Into::into),
        })
    }

    /// The smallest part of a day that one query reads and that holds all of it.
    pub(super) fn slice<'a>(&'a self, day: &'a str) -> Slice<'a> {
        match (&self.key, &self.owner) {
            (Some(key), _) => Slice::Key(key, day),
            (None, Some(owner)) => Slice::Owner(owner, day),
            (None, None) => Slice::Day(day),
        }
    }

    pub(super) fn fits(&self, event: &AuditEvent) -> bool {
        let tool_fits = self.tool.is_none() || event.tool == self.tool;
        let decision_fits = self
            .decision
            .is_none_or(|decision| event.decision == decision);
        tool_fits && decision_fits
    }

    /// Hands over every event of the range that fits, oldest first, until `see` breaks off. No more than
    /// a page of events is held.
    ///
    /// # Errors
    /// What the table or `see` fails with.
    pub(super) async fn read(
        &self,
        table: &AuditTable,
        range: Range,
        mut see: impl FnMut(&AuditRecord) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<()> {
        let until = first_id_at(Timestamp::from_epoch_ms(range.to.epoch_ms() + 1));
        for day in range.days() {
            let mut after = first_id_at(range.from);
            loop {
                let bounds = Bounds {
                    after: Some(&after),
                    until: Some(&until),
                };
                let page = table.page(self.slice(&day), bounds).await?;
                let Some(last) = page.last() else {
                    break;
                };
                for record in &page {
                    let event = record.event();
                    let in_range = (range.from..=range.to).contains(&event.at);
                    if in_range && self.fits(event) && see(record)?.is_break() {
                        return Ok(());
                    }
                }
                after.clone_from(&last.event().event_id);
            }
        }
        Ok(())
    }
}

/// The least identifier that an event of this moment can have: version 7 begins with the time.
pub(crate) fn first_id_at(moment: Timestamp) -> String {
    let milliseconds = format!("{:012x}", moment.epoch_ms().max(0));
    format!("{}-{}", &milliseconds[..8], &milliseconds[8..])
}

#[cfg(test)]
mod tests {
    use raglan_core::ids;
    use raglan_core::random::SequenceRandom;

    use super::*;

    #[test]
    fn a_range_has_the_days_that_it_touches() {
        let range = |from: &str, to: &str| Range {
            from: Timestamp::parse(from).unwrap(),
            to: Timestamp::parse(to).unwrap(),
        };
        let days = |range: Range| range.days().collect::<Vec<_>>();
        let over_new_year = range("2026-12-31T23:59:59Z", "2027-01-02T00:00:00Z");
        let expected = ["2026-12-31", "2027-01-01", "2027-01-02"];
        assert_eq!(days(over_new_year), expected);
        assert_eq!(days(range("2027-01-01", "2027-01-01")), ["2027-01-01"]);
        let end_of_time = range("9999-12-31", "9999-12-31T23:59:59.999Z");
        assert_eq!(days(end_of_time), ["9999-12-31"]);
    }

    #[test]
    fn a_date_at_the_end_means_its_whole_day() {
        let now = Timestamp::from_epoch_seconds(1_800_000_000);
        let day = Past::At(Timestamp::parse("2027-01-10").unwrap(), true);
        let range = Range::between(day, Some(day), now).unwrap();
        assert_eq!(range.from.to_string(), "2027-01-10T00:00:00.000Z");
        assert_eq!(range.to.to_string(), "2027-01-10T23:59:59.999Z");
        let backwards = Range::between(Past::Ago(60), Some(Past::Ago(120)), now);
        assert!(matches!(backwards, Err(Failure::Usage(_))));
    }

    #[test]
    fn identifiers_of_a_moment_lie_between_its_bounds() {
        let random = SequenceRandom::seeded(1);
        let moment = Timestamp::from_epoch_ms(1_800_000_000_123);
        let next = Timestamp::from_epoch_ms(moment.epoch_ms() + 1);
        for _ in 0..100 {
            let id = ids::time_sortable(moment, &random).unwrap();
            assert!(first_id_at(moment) < id && id < first_id_at(next), "{id}");
        }
    }
}
