//! Events between the answer and the queue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use raglan_core::audit::AuditEvent;
use tokio::sync::watch;
use tokio::time::Instant;

/// So many events may wait: one request has 20 at most, and each event is bounded, so this bounds the
/// memory.
const MAX_WAITING: usize = 64;

/// An event that waits.
#[derive(Debug)]
pub struct Waiting {
    /// The event.
    pub event: AuditEvent,
    /// From then on it is not tried any more.
    pub until: Instant,
}

/// Holds events until they are sent or given up. Closed at first.
#[derive(Debug)]
pub struct Outbox {
    state: Mutex<State>,
    /// How many wait.
    count: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    /// By the event's identifier, so the oldest comes first.
    waiting: BTreeMap<String, Arc<Waiting>>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            count: watch::Sender::new(0),
        }
    }
}

impl Outbox {
    /// Takes events from now on.
    pub fn open(&self) {
        self.state().open = true;
    }

    /// Takes no events any more. Those that wait stay.
    pub fn close(&self) {
        self.state().open = false;
    }

    /// Takes the events of one request.
    ///
    /// # Errors
    /// The events, when it is closed or has no room for all of them.
    pub fn put(&self, events: Vec<AuditEvent>, until: Instant) -> Result<(), Vec<AuditEvent>> {
        let mut state = self.state();
        if !state.open || state.waiting.len() + events.len() > MAX_WAITING {
            return Err(events);
        }
        for event in events {
            let waiting = Arc::new(Waiting { event, until });
            state
                .waiting
                .insert(waiting.event.event_id.clone(), waiting);
        }
        self.count.send_replace(state.waiting.len());
        Ok(())
    }

    /// What waits, the oldest first.
    pub fn waiting(&self) -> Vec<Arc<Waiting>> {
        self.state().waiting.values().cloned().collect()
    }

    /// The event does not wait any more. Whether it did until now.
    pub fn remove(&self, event_id: &str) -> bool {
        let mut state = self.state();
        let waited = state.waiting.remove(event_id).is_some();
        self.count.send_replace(state.waiting.len());
        waited
    }

    /// Ends when nothing waits.
    pub async fn emptied(&self) {
        // The sender lives as long as `self`.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    /// A panic elsewhere must not cost events: they are whole or not there.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn event(id: &str) -> AuditEvent {
        let json = serde_json::json!({
            "schema_version": 2, "event_id": id, "at": "2026-11-30T08:15:00.000Z",
            "request_id": "r", "decision": "allowed", "http_status": 200, "duration_ms": 3,
        });
        serde_json::from_value(json).unwrap()
    }

    fn ids(outbox: &Outbox) -> Vec<String> {
        let waiting = outbox.waiting();
        waiting
            .iter()
            .map(|one| one.event.event_id.clone())
            .collect()
    }

    #[tokio::test]
    async fn events_wait_until_they_are_removed_the_oldest_first() {
        let outbox = Outbox::default();
        outbox.open();
        let until = Instant::now();
        outbox.put(vec![event("b")], until).unwrap();
        outbox.put(vec![event("a")], until).unwrap();
        assert_eq!(ids(&outbox), ["a", "b"]);
        assert_eq!(outbox.emptied().now_or_never(), None);
        assert!(outbox.remove("a"));
        assert!(!outbox.remove("a"));
        outbox.close();
        assert_eq!(ids(&outbox), ["b"]);
        assert!(outbox.remove("b"));
        assert_eq!(outbox.emptied().now_or_never(), Some(()));
    }

    #[tokio::test]
    async fn a_closed_or_full_outbox_takes_all_events_of_a_request_or_none() {
        let outbox = Outbox::default();
        let until = Instant::now();
        assert!(outbox.put(vec![event("a")], until).is_err());
        outbox.open();
        let many = |prefix: &str, count: usize| -> Vec<AuditEvent> {
            (0..count).map(|n| event(&format!("{prefix}{n}"))).collect()
        };
        outbox.put(many("a", MAX_WAITING - 1), until).unwrap();
        let back = outbox.put(many("b", 2), until).unwrap_err();
        assert_eq!(back.len(), 2);
        assert_eq!(ids(&outbox).len(), MAX_WAITING - 1);
        outbox.put(many("c", 1), until).unwrap();
        assert!(outbox.put(many("d", 1), until).is_err());
    }
}
