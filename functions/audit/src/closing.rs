//! Closes the days that are over: what their chains hold is sealed in a root, which is kept apart. Events
//! that come later go into the chains of their day, which is then closed once more.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::try_join_all;
use raglan_core::audit_chain::{ChainEnd, DayRoot, Head};
use raglan_core::clock::{Clock, Timestamp};
use raglan_store::audit_table::OpenChain;
use raglan_store::{AuditTable, StoreError};
use raglan_telemetry::metrics::{self, Group, Measurement, Unit};

use crate::archive::{Archive, ArchiveError, Kept};

const SECONDS_PER_DAY: i64 = 86_400;
/// A day is left alone for so long after its end: a writer may still take it for today.
const SETTLING_SECONDS: i64 = 900;
/// So many chains are marked at the same time.
const MARKS_AT_ONCE: usize = 16;

/// A day could not be closed. Nothing is lost: it stays open.
#[derive(Debug, thiserror::Error)]
pub enum ClosingError {
    /// The table.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The archive.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// Somebody else closes the day at this moment.
    #[error("{day}: closing {closing} was written by somebody else meanwhile")]
    Taken {
        /// The day.
        day: String,
        /// Which closing.
        closing: u32,
    },
    /// A root of the day cannot be read, so that nobody knows what it covers.
    #[error("{day}: the root of closing {closing} cannot be read")]
    Unreadable {
        /// The day.
        day: String,
        /// Which closing.
        closing: u32,
    },
}

/// Closes days.
#[derive(Clone)]
pub struct Closer {
    table: AuditTable,
    archive: Archive,
    retention_days: u32,
    clock: Arc<dyn Clock>,
}

impl Closer {
    /// Closes the days of `table`, whose events are kept for `retention_days`, into `archive`.
    #[must_use]
    pub fn new(
        table: AuditTable,
        archive: Archive,
        retention_days: u32,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            table,
            archive,
            retention_days,
            clock,
        }
    }

    /// Closes every day that is over and has a chain that no root covers to its end. Returns the new
    /// roots. A day that cannot be closed does not hold back the others.
    ///
    /// # Errors
    /// The first [`ClosingError`], after all days were tried.
    pub async fn close_days(&self) -> Result<Vec<DayRoot>, ClosingError> {
        let now = self.clock.now();
        let result = self.close_days_before(now).await;
        let (name, value) = match &result {
            Ok(roots) => ("audit_days_closed", roots.len() as u64),
            Err(_) => ("audit_closing_failures", 1),
        };
        let measured = Measurement {
            name,
            unit: Unit::Count,
            value,
        };
        let group = Group {
            measurements: vec![measured],
            ..Group::default()
        };
        metrics::write(&[group], now.epoch_ms());
        result
    }

    async fn close_days_before(&self, now: Timestamp) -> Result<Vec<DayRoot>, ClosingError> {
        let today = now.plus_seconds(-SETTLING_SECONDS).day();
        let mut days: BTreeMap<String, Vec<OpenChain>> = BTreeMap::new();
        for chain in self.table.open_before(&today).await? {
            days.entry(chain.day.clone()).or_default().push(chain);
        }
        let mut roots = Vec::new();
        let mut failure = None;
        for (day, open) in days {
            match self.close(&day, &open, now).await {
                Ok(root) => roots.extend(root),
                Err(error) => {
                    tracing::error!(day, %error, "a day of the audit trail could not be closed");
                    failure.get_or_insert(error);
                }
            }
        }
        failure.map_or(Ok(roots), Err)
    }

    /// Closes one day; `None` when the last root covers everything already, because a run before ended
    /// between writing it and noting so.
    async fn close(
        &self,
        day: &str,
        open: &[OpenChain],
        now: Timestamp,
    ) -> Result<Option<DayRoot>, ClosingError> {
        // Read after the open chains: the root covers at least what is marked below.
        let heads = self.table.heads(day).await?;
        let last = self.archive.closings(day).await?.pop_last();
        let root = match last {
            None => Some(self.root(day, 1, heads, now)),
            Some((closing, None)) => {
                return Err(ClosingError::Unreadable {
                    day: day.to_owned(),
                    closing,
                });
            }
            Some((closing, Some(last))) => {
                report_shortened(&last, &heads);
                let root = self.root(day, closing.saturating_add(1), heads, now);
                (root.chains != last.chains).then_some(root)
            }
        };
        if let Some(root) = &root {
            if self.archive.keep(root).await? == Kept::Taken {
                return Err(ClosingError::Taken {
                    day: day.to_owned(),
                    closing: root.closing,
                });
            }
            tracing::info!(
                day,
                closing = root.closing,
                chain_count = root.chains.len(),
                event_count = root.event_count,
                root = %root.root,
                "a day of the audit trail was closed"
            );
        }
        for chains in open.chunks(MARKS_AT_ONCE) {
            try_join_all(chains.iter().map(|chain| self.table.mark_closed(chain))).await?;
        }
        Ok(root)
    }

    fn root(
        &self,
        day: &str,
        closing: u32,
        heads: BTreeMap<String, Head>,
        now: Timestamp,
    ) -> DayRoot {
        let ends = heads.into_iter().map(|(key, head)| ChainEnd { key, head });
        let begin = Timestamp::parse(day).unwrap_or(now);
        let kept_seconds = i64::from(self.retention_days) * SECONDS_PER_DAY;
        let complete_until = begin.plus_seconds(kept_seconds);
        DayRoot::close(day, ends.collect(), now, complete_until).numbered(closing)
    }
}

/// A chain only ever grows. Verification finds out what happened; this says early that something did.
fn report_shortened(last: &DayRoot, heads: &BTreeMap<String, Head>) {
    for end in &last.chains {
        let sequence = heads.get(&end.key).map_or(0, |head| head.sequence);
        if sequence < end.head.sequence {
            tracing::error!(
                marker = "AUDIT_CHAIN_SHORTENED",
                day = last.day,
                key = end.key,
                closed_at = end.head.sequence,
                sequence,
                "a chain of the audit trail is shorter than when its day was closed"
            );
        }
    }
}
