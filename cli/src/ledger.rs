//! Changes by operators, written down: nothing is changed before the audit queue has taken the intent,
//! and the outcome follows.

use futures::future::LocalBoxFuture;
use raglan_core::audit::{Administration, AuditEvent, Decision, EventPhase, Phase, SCHEMA_VERSION};
use raglan_core::clock::Clock;
use raglan_core::ids;
use raglan_core::random::{Random, RandomUnavailable};
use raglan_store::{AuditQueue, StoreError};
use serde_json::Value;

use crate::Outcome;
use crate::failure::{Failure, of_change};
use crate::language::text;
use crate::target::Target;
use crate::terminal::Console;

/// One change to one thing.
#[derive(Debug, Clone)]
pub struct Change {
    /// `key.create`, `knowledge_base.move`, …
    pub action: &'static str,
    /// To what.
    pub subject: Subject,
    /// What exactly, as JSON: never a key.
    pub details: Value,
}

/// What is changed.
#[derive(Debug, Clone)]
pub enum Subject {
    /// A key.
    Key {
        /// Its identifier.
        key_id: String,
        /// Its owner.
        owner: Option<String>,
    },
    /// A knowledge base.
    KnowledgeBase {
        /// Its identifier.
        kb_id: String,
        /// Its owner.
        owner: Option<String>,
    },
}

/// What to do when a change cannot be written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenUnrecorded {
    /// Do not make it.
    Refuse,
    /// Make it and show the event to the operator. Only for changes that take rights away: closing a
    /// leaked key must not wait for a queue.
    Proceed,
}

/// Writes down what one operator does.
pub struct Ledger<'a> {
    queue: Option<AuditQueue>,
    operator: String,
    when_unrecorded: WhenUnrecorded,
    clock: &'a dyn Clock,
    random: &'a dyn Random,
}

impl<'a> Ledger<'a> {
    /// Finds out who the operator is.
    ///
    /// # Errors
    /// [`Failure::Refused`] when nobody can say that, or when there is no queue to write to, unless
    /// `when_unrecorded` lets the change go on.
    pub async fn open(
        target: &Target,
        when_unrecorded: WhenUnrecorded,
        clock: &'a dyn Clock,
        random: &'a dyn Random,
    ) -> anyhow::Result<Self> {
        let refuse = when_unrecorded == WhenUnrecorded::Refuse;
        let operator = match target.operator().await {
            Ok(operator) => operator,
            Err(error) if refuse => return Err(unrecorded(&format!("{error:#}")).into()),
            Err(_) => "unknown".to_owned(),
        };
        let queue = match target.audit_queue() {
            Ok(queue) => Some(queue),
            Err(error) if refuse => return Err(unrecorded(&error.to_string()).into()),
            Err(_) => None,
        };
        Ok(Self {
            queue,
            operator,
            when_unrecorded,
            clock,
            random,
        })
    }

    /// Makes changes that belong together: writes the intents, does `work`, writes the outcomes.
    /// `Incomplete` when the work is done and an event is missing from the trail; the event is shown
    /// then, so that nothing is lost silently.
    ///
    /// # Errors
    /// [`Failure::Refused`] before anything is changed when the intents cannot be written, and when
    /// `work` lost a race; otherwise the failure of `work`.
    pub async fn make(
        &self,
        console: &mut Console,
        changes: &[Change],
        work: LocalBoxFuture<'_, Result<(), StoreError>>,
    ) -> anyhow::Result<Outcome> {
        let request_id = ids::time_sortable(self.clock.now(), self.random)?;
        let event = |change, phase, class| self.event(&request_id, change, phase, class);
        let mut outcome = Outcome::Done;
        for change in changes {
            let intent = event(change, Phase::Intent, None)?;
            if let Err(cause) = self.send(&intent).await {
                if self.when_unrecorded == WhenUnrecorded::Refuse {
                    return Err(unrecorded(&cause).into());
                }
                outcome = Outcome::Incomplete;
            }
        }
        let worked = match work.await {
            Err(error @ StoreError::Unavailable { .. }) => {
                // The answer may have been lost after the change: the intent alone says just that.
                console.note(text!(
                    "It is not known whether the change was made: look, then repeat it."
                ));
                return Err(error.into());
            }
            worked => worked,
        };
        let (phase, class) = match &worked {
            Ok(()) => (Phase::Done, None),
            Err(error) => (Phase::Failed, Some(error.class())),
        };
        for change in changes {
            let event = event(change, phase, class)?;
            if let Err(cause) = self.send(&event).await {
                outcome = Outcome::Incomplete;
                console.note(text!(
                    "not in the audit trail ({cause}); keep this event:",
                    cause
                ));
                console.note(serde_json::to_string(&event).unwrap_or_default());
            }
        }
        worked.map_err(of_change)?;
        Ok(outcome)
    }

    async fn send(&self, event: &AuditEvent) -> Result<(), String> {
        let queue = self
            .queue
            .as_ref()
            .ok_or(text!("there is no audit queue"))?;
        let sent = Box::pin(queue.send(event)).await;
        sent.map_err(|error| error.to_string())
    }

    fn event(
        &self,
        request_id: &str,
        change: &Change,
        phase: Phase,
        error_class: Option<&str>,
    ) -> Result<AuditEvent, RandomUnavailable> {
        let now = self.clock.now();
        let (key_id, owner, subject) = match &change.subject {
            Subject::Key { key_id, owner } => (Some(key_id.clone()), owner, key_id.clone()),
            Subject::KnowledgeBase { kb_id, owner } => (None, owner, format!("kb:{kb_id}")),
        };
        let parameters = change.details.to_string();
        Ok(AuditEvent {
            schema_version: SCHEMA_VERSION,
            event_id: ids::time_sortable(now, self.random)?,
            at: now,
            request_id: request_id.to_owned(),
            phase: match phase {
                Phase::Intent => EventPhase::Intent,
                Phase::Done | Phase::Failed => EventPhase::Outcome,
            },
            batch_element: None,
            trace_id: None,
            decision: Decision::Allowed,
            http_status: 0,
            method: None,
            tool: None,
            key_id,
            key_fingerprint: None,
            owner: owner.clone(),
            source_ip: None,
            user_agent: Some(concat!("raglan/", env!("CARGO_PKG_VERSION")).to_owned()),
            protocol_version: None,
            error_class: error_class.map(ToOwned::to_owned),
            duration_ms: 0,
            params_bytes: Some(parameters.len() as u64),
            parameters: Some(parameters),
            knowledge_bases: Vec::new(),
            result_count: None,
            guard_findings: std::collections::BTreeMap::new(),
            cut: std::collections::BTreeSet::new(),
            administration: Some(Administration {
                action: change.action.to_owned(),
                operator: self.operator.clone(),
                subject,
                phase,
            }),
        })
    }
}

fn unrecorded(cause: &str) -> Failure {
    Failure::Refused(text!(
        "nothing was changed, because the audit trail cannot be told of it: {cause}",
        cause
    ))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::failure::outcome_of;
    use crate::testing::World;

    /// The phases and error classes in the trail after a change whose work ended so.
    async fn trail_after(error: StoreError) -> (Outcome, Vec<(Phase, Option<String>)>) {
        let world = World::start().await;
        let ledger = Ledger::open(
            &world.target,
            WhenUnrecorded::Refuse,
            world.clock.as_ref(),
            &world.random,
        );
        let change = Change {
            action: "key.grant",
            subject: Subject::Key {
                key_id: "key-1".to_owned(),
                owner: None,
            },
            details: Value::Null,
        };
        let work = async { Err(error) }.boxed_local();
        let ledger = ledger.await.unwrap();
        let made = ledger
            .make(&mut Console::standard(), &[change], work)
            .await
            .unwrap_err();
        let phases = world.trail().await.into_iter().map(|event| {
            let phase = event.administration.map(|change| change.phase);
            (phase.unwrap(), event.error_class)
        });
        let mut phases: Vec<_> = phases.collect();
        phases.sort_by_key(|(phase, _)| phase.name());
        (outcome_of(&made), phases)
    }

    #[tokio::test]
    async fn a_change_that_lost_a_race_is_written_down_as_failed() {
        let conflict = StoreError::Conflict {
            operation: "PutItem",
            resource: "keys".to_owned(),
        };
        let (outcome, trail) = trail_after(conflict).await;
        assert_eq!(outcome, Outcome::Refused);
        let failed = (Phase::Failed, Some("store_conflict".to_owned()));
        assert_eq!(trail, [failed, (Phase::Intent, None)]);
    }

    #[tokio::test]
    async fn a_change_whose_answer_was_lost_is_not_called_done_or_failed() {
        let lost = StoreError::Unavailable {
            operation: "PutItem",
            resource: "keys".to_owned(),
            cause: "timeout".to_owned(),
        };
        let (outcome, trail) = trail_after(lost).await;
        assert_eq!(outcome, Outcome::Failed);
        assert_eq!(trail, [(Phase::Intent, None)]);
    }
}
