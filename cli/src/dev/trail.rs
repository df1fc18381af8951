//! The audit trail in the terminal.

use std::collections::BTreeSet;
use std::time::Duration;

use raglan_core::audit::AuditEvent;
use raglan_core::clock::{Clock, SystemClock, Timestamp};
use raglan_store::AuditTable;
use raglan_store::audit_table::{Bounds, Slice};

use crate::language::text;
use crate::system::LocalSystem;
use crate::terminal::{say, warn};

const PAUSE: Duration = Duration::from_millis(700);

/// The heading of the rows.
pub fn header() -> &'static str {
    text!(
        "time (UTC)    decision         status  what                    key              ms  result"
    )
}

/// Shows events as they are stored.
pub struct Trail {
    table: AuditTable,
    day: String,
    shown: BTreeSet<String>,
    /// No event from before has a greater identifier.
    after: String,
}

impl Trail {
    /// Shows events from now on.
    pub fn begin(system: &LocalSystem) -> Self {
        let now = SystemClock.now();
        Self {
            table: system.audit_table(),
            day: now.day(),
            shown: BTreeSet::new(),
            after: first_id_at(now),
        }
    }

    /// Shows events until the caller stops waiting.
    pub async fn follow(&mut self) {
        loop {
            self.show_new().await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Shows events until there are `count` of them or the time is over; returns how many there are.
    pub async fn wait_for(&mut self, count: usize, patience: Duration) -> usize {
        let wait = async {
            while self.shown.len() < count {
                self.show_new().await;
                tokio::time::sleep(PAUSE).await;
            }
        };
        // Running out of patience is an answer too: the number shows it.
        let _ = tokio::time::timeout(patience, wait).await;
        self.shown.len()
    }

    async fn show_new(&mut self) {
        let today = SystemClock.now().day();
        for day in BTreeSet::from([self.day.clone(), today.clone()]) {
            let bounds = Bounds {
                after: Some(&self.after),
                until: None,
            };
            match self.table.all(Slice::Day(&day), bounds).await {
                Ok(records) => records.iter().for_each(|record| self.show(record.event())),
                Err(error) => warn(text!("the audit trail cannot be read: {error}", error)),
            }
        }
        self.day = today;
    }

    fn show(&mut self, event: &AuditEvent) {
        if !self.shown.insert(event.event_id.clone()) {
            return;
        }
        say(row(event));
    }
}

/// The least identifier that an event of this moment can have: version 7 begins with the time.
fn first_id_at(now: Timestamp) -> String {
    let milliseconds = format!("{:012x}", now.epoch_ms());
    format!("{}-{}", &milliseconds[..8], &milliseconds[8..])
}

fn row(event: &AuditEvent) -> String {
    let time: String = event.at.to_string().chars().skip(11).take(12).collect();
    let what = event
        .tool
        .as_deref()
        .or(event.method.as_deref())
        .or(event
            .administration
            .as_ref()
            .map(|change| change.action.as_str()))
        .unwrap_or("-");
    let key = event
        .key_id
        .as_deref()
        .or(event.key_fingerprint.as_deref())
        .unwrap_or("-");
    let result = match (
        &event.administration,
        &event.error_class,
        event.result_count,
    ) {
        (Some(change), _, _) => text!(
            "{phase} by {operator}",
            phase = change.phase.name(),
            operator = change.operator
        ),
        (None, Some(class), _) => class.clone(),
        (None, None, Some(count)) => text!("{count} items", count),
        (None, None, None) => String::new(),
    };
    format!(
        "{time}  {:<15}  {:<6}  {what:<22}  {key:<17}  {:>3}  {result}",
        event.decision.name(),
        event.http_status,
        event.duration_ms
    )
}
