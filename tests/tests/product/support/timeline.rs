//! What happened in which order, across processes: everything that is noted passes through this one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

/// Longer than anything takes that happens at all.
const PATIENCE: Duration = Duration::from_secs(30);

/// The steps so far.
#[derive(Debug, Clone)]
pub struct Timeline {
    steps: Arc<Mutex<Vec<&'static str>>>,
    changed: watch::Sender<()>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            steps: Arc::default(),
            changed: watch::Sender::new(()),
        }
    }
}

impl Timeline {
    /// This happens now.
    pub fn note(&self, step: &'static str) {
        self.steps.lock().unwrap().push(step);
        self.changed.send_replace(());
    }

    /// All steps, in their order.
    pub fn steps(&self) -> Vec<&'static str> {
        self.steps.lock().unwrap().clone()
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.steps.lock().unwrap().clear();
    }

    /// How often this has happened.
    pub fn count(&self, step: &str) -> usize {
        let steps = self.steps.lock().unwrap();
        steps.iter().filter(|one| **one == step).count()
    }

    /// Waits until this has happened so often.
    pub async fn reach(&self, step: &str, count: usize) {
        let mut changed = self.changed.subscribe();
        let reached = async {
            while self.count(step) < count {
                changed.changed().await.unwrap();
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, reached).await.is_ok();
        assert!(
            in_time,
            "{step:?} did not happen {count} times: {:?}",
            self.steps()
        );
    }
}
