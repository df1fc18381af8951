//! The audit trail in the terminal of `raglan dev`.

use std::time::Duration;

use raglan_core::clock::{Clock as _, SystemClock};

use crate::audit::tail::Follower;
use crate::audit::view;
use crate::language::text;
use crate::system::LocalSystem;
use crate::terminal::{say, warn};

const PAUSE: Duration = Duration::from_millis(700);

/// Shows events as they are stored.
pub struct Trail {
    follower: Follower,
    shown: usize,
}

impl Trail {
    /// Shows events from now on.
    pub fn begin(system: &LocalSystem) -> Self {
        Self {
            follower: Follower::of_all(system.audit_table(), SystemClock.now()),
            shown: 0,
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
            while self.shown < count {
                self.show_new().await;
                tokio::time::sleep(PAUSE).await;
            }
        };
        // Running out of patience is an answer too: the number shows it.
        let _ = tokio::time::timeout(patience, wait).await;
        self.shown
    }

    async fn show_new(&mut self) {
        match self.follower.new_events(&SystemClock).await {
            Ok(events) => {
                for record in &events {
                    say(view::line(record.event()));
                }
                self.shown += events.len();
            }
            Err(error) => warn(text!("the audit trail cannot be read: {error}", error)),
        }
    }
}
