//! `raglan audit tail`: events as they are stored.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use raglan_core::clock::{Clock, Timestamp};
use raglan_store::{AuditRecord, AuditTable};

use super::arguments::TailArguments;
use super::selection::{Range, Selection, first_id_at};
use super::view;
use crate::Outcome;
use crate::session::Session;
use crate::terminal::stop_signal;

const PAUSE: Duration = Duration::from_secs(1);
/// An event is looked for this long after it happened: it waits in the queue, and the index follows the
/// table. What needs longer is not shown; `raglan audit query` finds it.
const LATEST_ARRIVAL_SECONDS: i64 = 60;

pub(super) async fn tail(
    session: &mut Session<'_>,
    arguments: &TailArguments,
) -> anyhow::Result<Outcome> {
    let table = session.target.audit_table()?;
    let selection = Selection::of(session, &arguments.selection).await?;
    let mut follower = Follower::begin(table, selection, session.clock.now());
    if !session.json {
        session.console.say(view::heading());
    }
    let follow = async {
        loop {
            let events = follower.new_events(session.clock).await?;
            for record in &events {
                session.console.say(if session.json {
                    view::json(record)
                } else {
                    view::line(record.event())
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        failed = follow => failed,
        () = stop_signal() => Ok(Outcome::Done),
    }
}

/// Finds events that were not there before.
pub(crate) struct Follower {
    table: AuditTable,
    selection: Selection,
    begin: Timestamp,
    /// What was found, as far back as is looked.
    seen: BTreeSet<String>,
}

impl Follower {
    /// Finds events from `begin` on.
    pub(super) fn begin(table: AuditTable, selection: Selection, begin: Timestamp) -> Self {
        Self {
            table,
            selection,
            begin,
            seen: BTreeSet::new(),
        }
    }

    /// Finds events of all keys from `begin` on.
    pub(crate) fn of_all(table: AuditTable, begin: Timestamp) -> Self {
        Self::begin(table, Selection::default(), begin)
    }

    /// The events since the last call, oldest first.
    ///
    /// # Errors
    /// What the table fails with.
    pub(crate) async fn new_events(
        &mut self,
        clock: &dyn Clock,
    ) -> anyhow::Result<Vec<AuditRecord>> {
        let now = clock.now();
        let from = self.begin.max(now.plus_seconds(-LATEST_ARRIVAL_SECONDS));
        // The clocks of others may be ahead.
        let to = now.plus_seconds(LATEST_ARRIVAL_SECONDS);
        let oldest = first_id_at(from);
        self.seen = self.seen.split_off(&oldest);
        let mut events = Vec::new();
        let seen = &self.seen;
        self.selection
            .read(&self.table, Range { from, to }, |record| {
                if !seen.contains(&record.event().event_id) {
                    events.push(record.clone());
                }
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        let ids = events.iter().map(|record| record.event().event_id.clone());
        self.seen.extend(ids);
        Ok(events)
    }
}
