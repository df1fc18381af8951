//! Keeps the instance awake until the audit events are on the queue and a published index has been looked
//! at, by an internal Lambda extension.
//!
//! Lambda freezes an instance when the runtime *and* every extension have asked for their next event, and
//! hands the answer to the caller before that, as soon as the runtime has posted it. So the extension
//! asks for its next event only when nothing waits in the outbox any more. Source: AWS Lambda Developer
//! Guide, "Using the Lambda Extensions API to create extensions".

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use raglan_core::clock::{Clock as _, SystemClock};
use raglan_index_store::Background;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::AuditMode;
use crate::extensions_api::{self, Event, ExtensionsApiError, Invocation, Registration};
use crate::trail::Trail;

/// The extension's name; no other one of the function may have it.
const NAME: &str = "raglan-audit";
/// An Extensions API answers at once; an emulator that has none may say nothing.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(1);
/// A deadline that is further away or past is none: `cargo lambda watch` sends a duration where Lambda
/// sends a moment.
const LONGEST_CALL: Duration = Duration::from_mins(15);
/// How long the extension waits for an answer that has no usable deadline.
const USUAL_CALL: Duration = Duration::from_secs(30);

/// How long the instance is kept from other calls for what engines go on with; then that goes on with
/// the next call.
const LONGEST_BACKGROUND: Duration = Duration::from_secs(10);
/// Left of the platform's time for asking for the next event.
const RESERVED_FOR_THE_END: Duration = Duration::from_secs(1);

/// There is no Extensions API, or it refuses.
#[derive(Debug, thiserror::Error)]
pub enum NoExtension {
    /// It answered with an error.
    #[error(transparent)]
    Refused(#[from] ExtensionsApiError),
    /// It did not answer.
    #[error("no answer")]
    NoAnswer,
}

/// What the runtime tells the extension.
#[derive(Debug, Clone)]
pub struct Answers {
    /// The request whose answer was posted last.
    last: watch::Sender<String>,
    /// Wakes the delivery.
    posted: Arc<Notify>,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            last: watch::Sender::new(String::new()),
            posted: Arc::default(),
        }
    }
}

impl Answers {
    /// The answer to this request was posted.
    pub fn post(&self, request_id: String) {
        self.last.send_replace(request_id);
        self.posted.notify_one();
    }

    async fn wait_for(&self, request_id: &str) {
        // The sender lives as long as `self`.
        let _ = self
            .last
            .subscribe()
            .wait_for(|last| last == request_id)
            .await;
    }
}

/// Registers the extension. The future that comes back runs it as long as the process lives.
///
/// # Errors
/// [`NoExtension`]; the events have to be sent before the answer then.
pub async fn register(
    trail: Arc<Trail>,
    background: Option<Background>,
    answers: Answers,
) -> Result<BoxFuture<'static, ()>, NoExtension> {
    let registered = timeout(REGISTER_TIMEOUT, extensions_api::register(NAME))
        .await
        .map_err(|_elapsed| NoExtension::NoAnswer)??;
    if trail.mode() == AuditMode::Deferred {
        trail.defer();
    }
    Ok(Box::pin(async move {
        tokio::select! {
            ended = follow(&registered, &trail, background.as_ref(), &answers) => {
                tracing::error!(?ended, "the Lambda extension ended");
            }
            () = deliver_after_answers(&trail, &answers) => {}
        }
        // Nobody keeps the process awake any more.
        trail.stop_deferring();
        trail.deliver_waiting().await;
    }))
}

/// Stays awake for every invocation, as long as the platform tells of them.
async fn follow(
    registration: &Registration,
    trail: &Trail,
    background: Option<&Background>,
    answers: &Answers,
) -> ExtensionsApiError {
    loop {
        match registration.next().await {
            Ok(Event::Invocation(invocation)) => {
                stay_awake(trail, background, answers, &invocation).await;
            }
            Ok(Event::Other) => {}
            Err(error) => return error,
        }
    }
}

/// Sends what waits after every answer.
async fn deliver_after_answers(trail: &Trail, answers: &Answers) {
    loop {
        answers.posted.notified().await;
        trail.deliver_waiting().await;
    }
}

/// Ends when the invocation is answered, its events are delivered, and what engines went on with is done.
async fn stay_awake(
    trail: &Trail,
    background: Option<&Background>,
    answers: &Answers,
    invocation: &Invocation,
) {
    let now_ms = SystemClock.now().epoch_ms();
    let left = i64::try_from(invocation.deadline_ms)
        .ok()
        .and_then(|deadline_ms| u64::try_from(deadline_ms - now_ms).ok())
        .map(Duration::from_millis)
        .filter(|left| *left <= LONGEST_CALL);
    let until = Instant::now() + left.unwrap_or(USUAL_CALL);
    // What is never answered must not keep the extension for ever.
    let _ = timeout_at(until, answers.wait_for(&invocation.request_id)).await;
    trail.delivered().await;
    if let Some(background) = background {
        // Past its deadline the platform would end the process.
        let left = until.saturating_duration_since(Instant::now());
        let longest = left.saturating_sub(RESERVED_FOR_THE_END);
        background
            .idle_within(longest.min(LONGEST_BACKGROUND))
            .await;
    }
}
