//! Step 6 of a request: its events go to the audit queue. When, depends on the mode:
//!
//! * *deferred*: after the answer, where something keeps the process awake for it ([`crate::extension`]);
//!   before the answer, in a bounded time, everywhere else. What the queue does not take is written to
//!   the log in full, behind the marker `AUDIT_NOT_SENT`.
//! * *strict*: an intent before an engine is asked, the outcome before the answer. What cannot be written
//!   down is not answered.

mod outbox;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use raglan_core::audit::{AuditEvent, EventPhase};
use raglan_core::clock::{Clock, Timestamp};
use raglan_core::ids;
use raglan_core::random::Random;
use raglan_store::{AuditQueue, StoreError};
use tokio::time::{Instant, sleep, timeout_at};

use self::outbox::{Outbox, Waiting};
use crate::config::AuditMode;
use crate::context::CallContext;
use crate::metrics;
use crate::record::{CallRecord, Ending};
use crate::reply::Refusal;

/// Left of the platform's time for writing events to the log.
const RESERVED_FOR_THE_LOG: Duration = Duration::from_millis(200);
/// How long events are tried again after the answer. Meanwhile the instance takes no other request, so
/// that a queue that is away must not hold up everybody for as long as the platform would allow.
const AFTER_THE_ANSWER: Duration = Duration::from_secs(5);
/// How long a caller may wait for the queue when the trail is not a condition of the answer.
const BEFORE_THE_ANSWER: Duration = Duration::from_secs(2);
/// How long a caller may wait for the queue when it is: for the intent, and again for the outcome.
const STRICT: Duration = Duration::from_secs(3);
/// Lambda gives a process half a second between SIGTERM and its end.
const SHUTDOWN: Duration = Duration::from_millis(300);
/// The pause before an event is tried again; it doubles each time. The SDK has tried three times by then.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The trail cannot be told of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the audit trail cannot be told of this call")]
pub struct Unrecorded;

/// Why one event is not on the queue.
#[derive(Debug, thiserror::Error)]
enum NotSent {
    #[error(transparent)]
    Queue(#[from] StoreError),
    #[error("the time for it was over")]
    OutOfTime,
}

/// The way to the audit queue.
pub struct Trail {
    queue: AuditQueue,
    mode: AuditMode,
    outbox: Outbox,
    metrics_enabled: bool,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl fmt::Debug for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trail")
            .field("queue", &self.queue)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Trail {
    /// The way to this queue. Events are sent before the answer until [`Trail::defer`] is called.
    #[must_use]
    pub fn new(
        queue: AuditQueue,
        mode: AuditMode,
        metrics_enabled: bool,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self {
            queue,
            mode,
            outbox: Outbox::default(),
            metrics_enabled,
            clock,
            random,
        }
    }

    /// The mode.
    #[must_use]
    pub const fn mode(&self) -> AuditMode {
        self.mode
    }

    /// Opens a connection to the queue.
    ///
    /// # Errors
    /// [`StoreError`]; the first event opens the connection then.
    pub async fn warm(&self) -> Result<(), StoreError> {
        self.queue.warm().await
    }

    /// From now on outcomes wait until [`Trail::deliver_waiting`] is called: somebody promises to call
    /// it after every answer, and to keep the process awake until it ends.
    pub fn defer(&self) {
        self.outbox.open();
    }

    /// The promise of [`Trail::defer`] is taken back.
    pub fn stop_deferring(&self) {
        self.outbox.close();
    }

    /// Hands over the outcomes of one request.
    ///
    /// # Errors
    /// [`Unrecorded`] in strict mode, when not every event is on the queue: the answer must be withheld.
    /// The log holds the events then, as outcomes with the status 503.
    pub async fn outcome(
        &self,
        events: Vec<AuditEvent>,
        context: &CallContext,
    ) -> Result<(), Unrecorded> {
        match self.mode {
            AuditMode::Deferred => {
                let until = self.until(context, AFTER_THE_ANSWER);
                if let Err(events) = self.outbox.put(events, until) {
                    self.send_before_the_answer(&events, context).await;
                }
                Ok(())
            }
            AuditMode::Strict => self.send_or_withhold(&events, context).await,
        }
    }

    /// Sends one event before a call is made.
    ///
    /// # Errors
    /// [`Unrecorded`] when it is not on the queue: the call must not be made.
    pub async fn intent(
        &self,
        event: &AuditEvent,
        context: &CallContext,
    ) -> Result<(), Unrecorded> {
        let sent = self.deliver(event, self.until(context, STRICT)).await;
        sent.map_err(|error| {
            let request_id = &context.request_id;
            tracing::error!(request_id, %error, "the audit queue refused an intent");
            self.count_failure();
            Unrecorded
        })
    }

    async fn send_before_the_answer(&self, events: &[AuditEvent], context: &CallContext) {
        let until = self.until(context, BEFORE_THE_ANSWER);
        join_all(events.iter().map(async |event| {
            // Without further attempts than the SDK's: the caller waits.
            let sent = timeout_at(until, self.queue.send(event)).await;
            match sent {
                Ok(Ok(())) => {}
                Ok(Err(error)) => self.write_to_the_log(event, &error.into()),
                Err(_elapsed) => self.write_to_the_log(event, &NotSent::OutOfTime),
            }
        }))
        .await;
    }

    async fn send_or_withhold(
        &self,
        events: &[AuditEvent],
        context: &CallContext,
    ) -> Result<(), Unrecorded> {
        let until = self.until(context, STRICT);
        let sent = join_all(events.iter().map(|event| self.deliver(event, until))).await;
        let Some(error) = sent.into_iter().find_map(Result::err) else {
            return Ok(());
        };
        for event in events {
            self.write_to_the_log(&self.withheld(event), &error);
        }
        Err(Unrecorded)
    }

    /// The outcome after all: nothing was answered. It is an event of its own, because the first one may
    /// have reached the queue although nobody knows.
    fn withheld(&self, event: &AuditEvent) -> AuditEvent {
        let refusal = Refusal::AuditUnavailable;
        AuditEvent {
            event_id: ids::time_sortable(event.at, self.random.as_ref())
                .unwrap_or_else(|_| event.event_id.clone()),
            http_status: refusal.status().as_u16(),
            error_class: Some(refusal.class().to_owned()),
            ..event.clone()
        }
    }

    /// Sends everything that waits, each event until its time is over. When this returns, what waited is
    /// on the queue or in the log.
    pub async fn deliver_waiting(&self) {
        let waiting = self.outbox.waiting();
        join_all(waiting.iter().map(|one| self.settle(one, one.until))).await;
    }

    /// Ends when nothing waits any more.
    pub async fn delivered(&self) {
        self.outbox.emptied().await;
    }

    /// Sends everything that waits in the time that the platform gives a process to end.
    pub async fn shut_down(&self) {
        self.outbox.close();
        let until = Instant::now() + SHUTDOWN;
        let waiting = self.outbox.waiting();
        join_all(waiting.iter().map(|one| self.settle(one, until))).await;
    }

    async fn settle(&self, one: &Waiting, until: Instant) {
        let sent = self.deliver(&one.event, until).await;
        let still_waited = self.outbox.remove(&one.event.event_id);
        if let (Err(error), true) = (sent, still_waited) {
            self.write_to_the_log(&one.event, &error);
        }
    }

    /// Sends one event, again and again as long as that may help and `until` is not reached.
    async fn deliver(&self, event: &AuditEvent, until: Instant) -> Result<(), NotSent> {
        let mut pause = FIRST_PAUSE;
        loop {
            match timeout_at(until, self.queue.send(event)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) if !error.is_transient() || Instant::now() + pause >= until => {
                    return Err(error.into());
                }
                Ok(Err(_)) => sleep(pause).await,
                Err(_elapsed) => return Err(NotSent::OutOfTime),
            }
            pause *= 2;
        }
    }

    /// The last resort: the whole event in the log, where a metric counts it.
    fn write_to_the_log(&self, event: &AuditEvent, error: &NotSent) {
        let event = serde_json::to_string(event).unwrap_or_default();
        tracing::error!(
            marker = "AUDIT_NOT_SENT", %error, event, "the audit queue refused an event"
        );
        self.count_failure();
    }

    fn count_failure(&self) {
        if self.metrics_enabled {
            let now_ms = self.clock.now().epoch_ms();
            raglan_telemetry::metrics::write(&metrics::of_audit_failure(), now_ms);
        }
    }

    /// When the platform ends the call, or `longest` from now, whichever is earlier.
    fn until(&self, context: &CallContext, longest: Duration) -> Instant {
        Instant::now() + patience(context, self.clock.now(), longest)
    }
}

fn patience(context: &CallContext, now: Timestamp, longest: Duration) -> Duration {
    context.time_until_the_end(now).map_or(longest, |left| {
        left.saturating_sub(RESERVED_FOR_THE_LOG).min(longest)
    })
}

/// Announces the calls of one request before they are made; only in strict mode.
#[derive(Debug)]
pub struct Intents {
    /// Where to.
    pub trail: Arc<Trail>,
    /// The request's.
    pub context: CallContext,
    /// When the request came.
    pub began: Timestamp,
}

impl Intents {
    /// Sends the intent of what is in the record.
    ///
    /// # Errors
    /// [`Unrecorded`]: the call must not be made.
    pub async fn announce(&self, record: &CallRecord) -> Result<(), Unrecorded> {
        let so_far = Ending {
            phase: EventPhase::Intent,
            http_status: 0,
            began: self.began,
            ended: self.trail.clock.now(),
        };
        let event = record
            .event(&self.context, so_far, self.trail.random.as_ref())
            .map_err(|_| Unrecorded)?;
        Box::pin(self.trail.intent(&event, &self.context)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_tried_for_longer_than_the_platform_lets_the_process_write_its_log() {
        let now = Timestamp::from_epoch_seconds(1_800_000_000);
        let with = |left_ms: Option<i64>| {
            let context = CallContext {
                request_id: String::new(),
                deadline: left_ms.map(|left| Timestamp::from_epoch_ms(now.epoch_ms() + left)),
                source_ip: None,
            };
            patience(&context, now, AFTER_THE_ANSWER)
        };
        assert_eq!(with(Some(2_000)), Duration::from_millis(1_800));
        assert_eq!(with(Some(150)), Duration::ZERO);
        assert_eq!(with(Some(25_000)), AFTER_THE_ANSWER);
        assert_eq!(with(None), AFTER_THE_ANSWER);
    }
}
