//! What surrounds the work of `ask`: its idempotency key and the number of questions of one key that
//! may be worked on at the same time. Both are given back however the work ends, panics included; what
//! is cut off with the whole function ends by itself a moment after the call's time.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures::FutureExt as _;
use raglan_core::clock::Timestamp;
use raglan_core::ids;
use raglan_core::random::{Random, RandomUnavailable};
use raglan_core::tool::Tool;
use raglan_rag::backend::BackendError;
use raglan_store::idempotency::{Claim, Claimed, KeyedCall};
use raglan_store::leases::Lease;
use raglan_store::sessions::NewTurn;
use raglan_store::{IdempotencyStore, LeaseStore, StoreError};
use raglan_texts::{Language, text};
use serde_json::{Map, Value};

use crate::tools::{ToolCall, ToolError, ToolOutput};

/// The argument's name.
pub const IDEMPOTENCY_KEY: &str = "idempotency_key";
/// Longest idempotency key, in characters.
pub const IDEMPOTENCY_KEY_MAX_CHARS: usize = 128;

/// Left of a call's time for giving back what it holds.
const RESERVED_FOR_SETTLING: Duration = Duration::from_millis(200);
/// What a call holds is held for this long after its time, in case that it is not given back.
const HELD_ON_SECONDS: i64 = 3;

/// Why a question is not worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AskRefused {
    /// The idempotency key was used for a call with other arguments.
    #[error("the idempotency key belongs to a call with other arguments")]
    OtherArguments,
    /// The same call is being worked on.
    #[error("the same call is being worked on")]
    InProgress,
    /// As many questions of this key are being worked on as may be.
    #[error("the key has {0} questions at work already")]
    TooManyAtOnce(u32),
}

impl AskRefused {
    /// What the caller is told.
    #[must_use]
    pub fn told(self, language: Language) -> String {
        match self {
            Self::OtherArguments => text!(
                language,
                "This `idempotency_key` belongs to a call with other arguments. Use a new key for a \
                 new question, or send the first call's arguments again."
            )
            .to_owned(),
            Self::InProgress => text!(
                language,
                "The same call is being worked on. Try again in a few seconds."
            )
            .to_owned(),
            Self::TooManyAtOnce(count) => text!(
                language,
                "This key has {count} questions at work, and may not have more at the same time. Try \
                 again when one of them is answered.",
                count
            ),
        }
    }
}

/// What became of a question.
#[derive(Debug)]
pub struct Asked {
    /// The result.
    pub output: ToolOutput,
    /// What it adds to a conversation.
    pub turn: Option<NewTurn>,
}

/// Admits questions.
#[derive(Debug)]
pub struct AskGate {
    results: IdempotencyStore,
    leases: LeaseStore,
    at_once: u32,
}

#[derive(Default)]
struct Held {
    claim: Option<Claim>,
    lease: Option<Lease>,
}

impl AskGate {
    /// A gate that lets `at_once` questions of a key through at the same time; 0 is any number.
    #[must_use]
    pub const fn new(results: IdempotencyStore, leases: LeaseStore, at_once: u32) -> Self {
        Self {
            results,
            leases,
            at_once,
        }
    }

    /// Does `work` for this call, or gives the result of the same call before. What the work adds to a
    /// conversation is written before the answer leaves, at the same time as the rest that is settled.
    ///
    /// # Errors
    /// [`ToolError`], that of `work` included.
    pub async fn pass(
        &self,
        call: &ToolCall<'_>,
        arguments: &Map<String, Value>,
        work: impl AsyncFnOnce(&ToolCall<'_>) -> Result<Asked, ToolError>,
    ) -> Result<ToolOutput, ToolError> {
        let now = call.services.clock.now();
        let time_left_seconds = i64::try_from(call.time_left().as_secs()).unwrap_or(i64::MAX);
        let until = now.plus_seconds(time_left_seconds.saturating_add(HELD_ON_SECONDS));
        let mut held = Held::default();
        if let Some(key) = idempotency_key(arguments) {
            match self.claim(call, key, arguments, now, until).await? {
                Claimed::New(claim) => held.claim = Some(claim),
                Claimed::Done(result) => return replay(call, &result).await,
                Claimed::InProgress => return Err(AskRefused::InProgress.into()),
                Claimed::OtherArguments => return Err(AskRefused::OtherArguments.into()),
            }
        }
        match self.lease(call, now, until).await {
            Ok(lease) => held.lease = lease,
            Err(error) => {
                self.settle(call, held, None).await;
                return Err(error);
            }
        }

        let engines_until = call.engines_until - RESERVED_FOR_SETTLING.min(call.time_left() / 4);
        let inner = ToolCall {
            engines_until,
            traceparent: call.traceparent.clone(),
            ..*call
        };
        let work = AssertUnwindSafe(work(&inner)).catch_unwind();
        let outcome = match tokio::time::timeout_at(call.engines_until, work).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Ok(Err(BackendError::TimedOut(inner.time_left()).into())),
        };
        let asked = match outcome {
            Ok(Ok(asked)) => asked,
            failed => {
                self.settle(call, held, None).await;
                return match failed {
                    Ok(result) => result.map(|asked| asked.output),
                    Err(panic) => resume_unwind(panic),
                };
            }
        };
        let Asked { mut output, turn } = asked;
        let has_turn = turn.is_some();
        let is_kept = self.settle(call, held, Some((&output, turn))).await;
        if has_turn && !is_kept {
            let warning = text!(
                call.services.language,
                "This turn could not be kept: the next question of this session will not know of it."
            );
            warn(&mut output.structured, warning);
        }
        Ok(output)
    }

    async fn claim(
        &self,
        call: &ToolCall<'_>,
        idempotency_key: &str,
        arguments: &Map<String, Value>,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Claimed, ToolError> {
        let mut others = arguments.clone();
        others.remove(IDEMPOTENCY_KEY);
        let arguments = canonical(&Value::Object(others)).to_string();
        let keyed = KeyedCall {
            key: &call.caller.key_hash,
            tool: Tool::Ask,
            idempotency_key,
            arguments: &arguments,
        };
        let claim_id = ids::time_sortable(now, call.services.random.as_ref())?;
        Ok(self.results.claim(keyed, &claim_id, now, until).await?)
    }

    async fn lease(
        &self,
        call: &ToolCall<'_>,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Option<Lease>, ToolError> {
        if self.at_once == 0 {
            return Ok(None);
        }
        let guess = random_number(call.services.random.as_ref())?;
        let key = &call.caller.key_hash;
        let lease = self
            .leases
            .take(key, self.at_once, guess, now, until)
            .await?;
        lease
            .map(Some)
            .ok_or_else(|| AskRefused::TooManyAtOnce(self.at_once).into())
    }

    /// Gives back what the call holds, and keeps what came of it. A failure here costs nobody's answer: it
    /// is logged, and what was held ends by itself. False when a turn could not be kept.
    async fn settle(
        &self,
        call: &ToolCall<'_>,
        held: Held,
        done: Option<(&ToolOutput, Option<NewTurn>)>,
    ) -> bool {
        // Boxed, because the SDK's futures are large and would be part of every call's.
        let place = Box::pin(async {
            match &held.lease {
                Some(lease) => self.leases.give_back(lease).await,
                None => Ok(()),
            }
        });
        let results = Box::pin(async {
            match (&held.claim, done) {
                (Some(claim), Some((output, turn))) => self.keep(call, claim, output, turn).await,
                (Some(claim), None) => self.results.free(claim).await,
                (None, Some((_, Some(turn)))) => call.services.sessions.append(turn).await,
                (None, _) => Ok(()),
            }
        });
        // A store that hangs must not cost the answer that is there.
        let time = call.time_left().max(RESERVED_FOR_SETTLING);
        let settled = async { tokio::join!(place, results) };
        let Ok((place, results)) = tokio::time::timeout(time, settled).await else {
            tracing::warn!("what a question held was not given back or kept in time");
            return false;
        };
        // Whoever took the claim over does the same work, and keeps its turn.
        let is_kept = matches!(results, Ok(()) | Err(StoreError::Conflict { .. }));
        for error in [place.err(), results.err()].into_iter().flatten() {
            tracing::warn!(%error, "something that a question held was not given back or kept");
        }
        is_kept
    }

    /// Keeps a result for its idempotency key, together with its turn.
    async fn keep(
        &self,
        call: &ToolCall<'_>,
        claim: &Claim,
        output: &ToolOutput,
        turn: Option<NewTurn>,
    ) -> Result<(), StoreError> {
        let Ok(text) = serde_json::to_string(output) else {
            return self.results.free(claim).await;
        };
        match self.results.keep(claim, &text, turn.clone()).await {
            Err(error @ StoreError::TooLarge { .. }) => {
                tracing::warn!(%error, "a result cannot be kept for its idempotency key");
                self.results.free(claim).await?;
                match turn {
                    Some(turn) => call.services.sessions.append(turn).await,
                    None => Ok(()),
                }
            }
            kept => kept,
        }
    }
}

/// Adds a warning to a result.
fn warn(structured: &mut Map<String, Value>, warning: &str) {
    let warnings = structured
        .entry("warnings")
        .or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(warnings) = warnings {
        warnings.push(warning.into());
    }
}

/// The result of the same call before. What the key may see can have become less since then.
async fn replay(call: &ToolCall<'_>, kept: &str) -> Result<ToolOutput, ToolError> {
    let mut output: ToolOutput =
        serde_json::from_str(kept).map_err(|_| ToolError::UnreadableResult)?;
    let scope = call.scope().await?;
    for knowledge_base in &output.knowledge_bases {
        scope.find(knowledge_base)?;
    }
    output.structured.insert("replayed".to_owned(), true.into());
    Ok(output)
}

/// The idempotency key, if it is one; the tool itself complains about what is none.
fn idempotency_key(arguments: &Map<String, Value>) -> Option<&str> {
    let key = arguments.get(IDEMPOTENCY_KEY)?.as_str()?;
    let fits = key.chars().nth(IDEMPOTENCY_KEY_MAX_CHARS).is_none() && !key.trim().is_empty();
    fits.then_some(key)
}

/// The value with the members of all objects in one order, so that equal arguments are equal texts.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(canonical).collect(),
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            let members = sorted.into_iter();
            Value::Object(
                members
                    .map(|(name, value)| (name.clone(), canonical(value)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

fn random_number(random: &dyn Random) -> Result<u32, RandomUnavailable> {
    let mut bytes = [0; 4];
    random.fill(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_arguments_does_not_matter_and_their_values_do() {
        let one = json!({ "a": 1, "b": { "c": [1, { "e": 2, "d": 3 }] } });
        let same = json!({ "b": { "c": [1, { "d": 3, "e": 2 }] }, "a": 1 });
        let other = json!({ "b": { "c": [{ "d": 3, "e": 2 }, 1] }, "a": 1 });
        let text = |value| canonical(value).to_string();
        assert_eq!(text(&one), text(&same));
        assert_ne!(text(&one), text(&other));
    }

    #[test]
    fn what_is_no_idempotency_key_claims_nothing() {
        let key = |value: Value| {
            let arguments = Map::from_iter([(IDEMPOTENCY_KEY.to_owned(), value)]);
            idempotency_key(&arguments).map(ToOwned::to_owned)
        };
        assert_eq!(key("知".repeat(128).into()), Some("知".repeat(128)));
        for none in [
            json!("x".repeat(129)),
            json!(""),
            json!(" "),
            json!(7),
            json!(null),
        ] {
            assert_eq!(key(none.clone()), None, "{none}");
        }
    }
}
