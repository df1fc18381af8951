//! What the function is called for: a batch of the queue, or, by the schedule, the days that are over.

use std::time::Duration;

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent};
use raglan_core::audit_chain::Digest;
use raglan_core::clock::Timestamp;
use serde::{Deserialize, Serialize};

use crate::closing::{Closer, ClosingError};
use crate::handler::Handler;

/// How long a call may take where the platform does not say; the template's timeout is longer.
const TIME_WITHOUT_DEADLINE: Duration = Duration::from_secs(25);

/// From `now` until the platform ends the call, at `deadline_ms` since 1970.
///
/// A deadline that has already passed is taken as unknown: `cargo lambda watch` sends a duration
/// where Lambda sends a moment.
#[must_use]
pub fn time_left(deadline_ms: u64, now: Timestamp) -> Duration {
    let now_ms = u64::try_from(now.epoch_ms()).unwrap_or(0);
    match deadline_ms.checked_sub(now_ms) {
        None | Some(0) => TIME_WITHOUT_DEADLINE,
        Some(left_ms) => Duration::from_millis(left_ms),
    }
}

/// A call, as its caller writes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Call {
    /// The schedule: `{"task": "close_days"}`.
    Task {
        /// What is to be done.
        task: Task,
    },
    /// The event source mapping of the queue.
    Batch(SqsEvent),
}

/// Something that is to be done without an event of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Closes the days that are over.
    CloseDays,
}

/// The answer to a [`Call`].
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// The records that must come again.
    Batch(SqsBatchResponse),
    /// The days that were closed.
    Closed {
        /// In the order of the days.
        closed: Vec<ClosedDay>,
    },
}

/// A day that was closed.
#[derive(Debug, Serialize)]
pub struct ClosedDay {
    /// The day in UTC, `YYYY-MM-DD`.
    pub day: String,
    /// Which closing of the day it was.
    pub closing: u32,
    /// Its root.
    pub root: Digest,
}

/// The audit function.
#[derive(Clone)]
pub struct Function {
    /// Stores events.
    pub handler: Handler,
    /// Closes days.
    pub closer: Closer,
}

impl Function {
    /// Does what it is called for.
    ///
    /// # Errors
    /// [`ClosingError`]: the platform calls again, and later the schedule.
    pub async fn handle(&self, call: Call, time_left: Duration) -> Result<Answer, ClosingError> {
        match call {
            Call::Batch(batch) => {
                // Boxed: the compiler gives up on the layout of a future this deep.
                let response = Box::pin(self.handler.handle(batch, time_left)).await;
                Ok(Answer::Batch(response))
            }
            Call::Task {
                task: Task::CloseDays,
            } => {
                let roots = Box::pin(self.closer.close_days()).await?.into_iter();
                let closed = roots.map(|root| ClosedDay {
                    day: root.day,
                    closing: root.closing,
                    root: root.root,
                });
                Ok(Answer::Closed {
                    closed: closed.collect(),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deadline_in_the_past_is_taken_as_unknown() {
        let now = Timestamp::from_epoch_seconds(1_800_000_000);
        let left = |deadline_ms| time_left(deadline_ms, now);
        assert_eq!(left(1_800_000_010_000), Duration::from_secs(10));
        for deadline_ms in [0, 600_000, 1_800_000_000_000] {
            assert_eq!(left(deadline_ms), TIME_WITHOUT_DEADLINE);
        }
    }

    #[test]
    fn the_queue_and_the_schedule_are_told_apart() {
        let read = |call| serde_json::from_value::<Call>(call);
        let message = json!({"messageId": "m1", "body": "{}"});
        let batch = read(json!({"Records": [message]})).unwrap();
        assert!(matches!(batch, Call::Batch(batch) if batch.records.len() == 1));
        let task = read(json!({"task": "close_days"})).unwrap();
        assert!(matches!(
            task,
            Call::Task {
                task: Task::CloseDays
            }
        ));
        for other in [json!({"task": "other"}), json!({}), json!([])] {
            assert!(read(other.clone()).is_err(), "{other}");
        }
    }

    /// SAM writes the text into the schedule's rule as it is.
    #[test]
    fn the_template_asks_for_what_there_is() {
        let template = include_str!("../../../template.yaml");
        let input = template
            .lines()
            .find_map(|line| line.trim().strip_prefix("Input: '")?.strip_suffix('\''))
            .unwrap();
        assert!(matches!(serde_json::from_str(input), Ok(Call::Task { .. })));
    }
}
