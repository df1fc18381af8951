//! Step 3 of a request: whether the key may ask so much. Only `tools/call` counts, so that a client's
//! handshake and its lists cost no write; a batch counts every call in it.
//!
//! Round trips: the count needs the key's own limit, which stands in the key's record. An instance
//! remembers the limit of every key that has called a tool in it, and asks for the count at the same time as
//! for the record ([`Limiter::count_early`]); the record judges afterwards. For that the body is read
//! before the key is known to be good, and only for keys that were good a moment ago. The first call of
//! a key in an instance counts after the record is read, so a key that does not exist never makes an
//! item in the store. When an operator has changed a key's limit, the early count was a wrong guess
//! and the key's next call in each instance counts again, under the new limit.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use raglan_core::clock::Timestamp;
use raglan_core::key::KeyHash;
use raglan_core::key_record::RateLimit;
use raglan_core::limits::{Bucket, Calls, Limits, Remaining, epoch_us, next_midnight};
use raglan_core::tool::Tool;
use raglan_store::limits::{Count, Meter};
use raglan_store::{MeterStore, StoreError};
use raglan_texts::{Language, text};
use serde_json::{Map, Value};

use crate::authenticate::Caller;
use crate::body::RequestBody;
use crate::config::LimiterFailure;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// A caller waits no longer for the count than this; the store's own patience is for things that a
/// call cannot do without.
const PATIENCE: Duration = Duration::from_secs(2);
/// Keys that an instance remembers; beyond that it begins anew.
const REMEMBERED_MAX: usize = 4096;
/// For a key whose item takes no more writes.
const THROTTLED_WAIT_SECONDS: u64 = 1;

/// The tool calls of one body.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCalls {
    /// How many of which.
    pub calls: Calls,
    /// Name and arguments of the first one, for the audit trail.
    pub first: (String, Map<String, Value>),
}

impl ToolCalls {
    /// The tool calls of a body; `None` when there are none. It is the same JSON that the protocol layer
    /// judges, so nobody can show two faces.
    #[must_use]
    pub fn of(body: &Value) -> Option<Self> {
        let messages = match body {
            Value::Array(messages) => messages.as_slice(),
            message => std::slice::from_ref(message),
        };
        let mut found: Option<Self> = None;
        for message in messages {
            if message.get("method").and_then(Value::as_str) != Some("tools/call") {
                continue;
            }
            let Some(name) = message.pointer("/params/name").and_then(Value::as_str) else {
                continue;
            };
            let found = found.get_or_insert_with(|| {
                let arguments = message
                    .pointer("/params/arguments")
                    .and_then(Value::as_object);
                Self {
                    calls: Calls::default(),
                    first: (name.to_owned(), arguments.cloned().unwrap_or_default()),
                }
            });
            found.calls.add(name);
        }
        found
    }
}

/// What counting gave, and under which limit.
#[derive(Debug)]
pub struct Counted {
    /// What was counted.
    pub found: ToolCalls,
    rate: RateLimit,
    result: Result<Count, StoreError>,
}

/// What a call may use up.
#[derive(Debug, Default)]
pub struct Allowance {
    /// The tools whose daily quota is used up.
    pub used_up: BTreeMap<Tool, DailyQuotaUsedUp>,
    /// Whether the call was let through although it could not be counted.
    pub uncounted: bool,
    told: Option<Told>,
}

/// A tool was called more often today than the key may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the daily quota of {quota} calls of {tool} is used up until {resets_at}")]
pub struct DailyQuotaUsedUp {
    /// The tool.
    pub tool: Tool,
    /// Calls a day.
    pub quota: u64,
    /// The next midnight in UTC.
    pub resets_at: Timestamp,
}

impl DailyQuotaUsedUp {
    /// What the caller is told.
    #[must_use]
    pub fn told(&self, language: Language) -> String {
        let Self {
            tool,
            quota,
            resets_at,
        } = self;
        text!(
            language,
            "This key may call `{tool}` {quota} times a day, and that is used up. The count begins \
             anew at {resets_at}; until then calling again will not help.",
            tool,
            quota,
            resets_at
        )
    }
}

/// Why a call may not come.
#[derive(Debug)]
pub enum Refused {
    /// The key asks too much.
    Limited(Told),
    /// The count could not be asked for.
    Unavailable(StoreError),
}

/// A limit and what is left of it, for the caller.
#[derive(Debug, Clone, Copy)]
pub struct Told {
    bucket: Bucket,
    remaining: Remaining,
}

impl Told {
    /// Seconds until the call may be repeated.
    #[must_use]
    pub const fn retry_after_seconds(&self) -> u64 {
        self.remaining.reset_seconds
    }

    /// Writes `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10, §3 and §4).
    /// The quota is the burst, its window the time in which an empty bucket becomes full.
    pub fn write(&self, headers: &mut HeaderMap) {
        let (burst, window) = (self.bucket.burst(), self.bucket.window_seconds());
        let Remaining {
            calls,
            reset_seconds,
        } = self.remaining;
        let fields = [
            (
                RATE_LIMIT_POLICY,
                format!("\"default\";q={burst};w={window}"),
            ),
            (
                RATE_LIMIT,
                format!("\"default\";r={calls};t={reset_seconds}"),
            ),
        ];
        for (name, value) in fields {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
    }
}

impl Allowance {
    /// Tells the caller what is left, in the answer's headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        if let Some(told) = self.told {
            told.write(headers);
        }
    }
}

/// Counts the tool calls of every key.
#[derive(Debug)]
pub struct Limiter {
    meters: MeterStore,
    defaults: Limits,
    on_failure: LimiterFailure,
    remembered: Mutex<HashMap<KeyHash, Remembered>>,
}

#[derive(Debug, Clone, Copy)]
struct Remembered {
    rate: RateLimit,
    meter: Meter,
}

impl Limiter {
    /// A limiter over the counting items. `defaults` are for keys that have no limits of their own.
    #[must_use]
    pub fn new(meters: MeterStore, defaults: Limits, on_failure: LimiterFailure) -> Self {
        Self {
            meters,
            defaults,
            on_failure,
            remembered: Mutex::default(),
        }
    }

    /// Whether the key has called a tool in this instance.
    #[must_use]
    pub fn knows(&self, key: &KeyHash) -> bool {
        self.remembered().contains_key(key)
    }

    /// The key does not work any more.
    pub fn forget(&self, key: &KeyHash) {
        self.remembered().remove(key);
    }

    /// Counts the calls of a body under the limit that the key had the last time. `None` when the key
    /// is not remembered or there is nothing to count.
    pub async fn count_early(
        &self,
        key: &KeyHash,
        body: &RequestBody,
        now: Timestamp,
    ) -> Option<Counted> {
        let Remembered { rate, meter } = *self.remembered().get(key)?;
        let found = ToolCalls::of(body.json()?)?;
        let counting = self
            .meters
            .count_if_limit_is(key, meter, &found.calls, rate, now);
        let result = Box::pin(in_time(counting)).await.transpose()?;
        Some(self.counted(key, rate, found, result))
    }

    /// Decides about the calls of a known caller. `early` is what [`Limiter::count_early`] gave.
    ///
    /// # Errors
    /// [`Refused`], with the calls that are refused.
    pub async fn judge(
        &self,
        caller: &Caller,
        body: &RequestBody,
        early: Option<Counted>,
        now: Timestamp,
    ) -> Result<Allowance, (Refused, ToolCalls)> {
        let rate = caller.rate_limit.unwrap_or(self.defaults.rate);
        let counted = match early {
            Some(counted) if counted.rate == rate => counted,
            _ => match body.json().and_then(ToolCalls::of) {
                // Boxed, because most requests have nothing to count.
                Some(found) => Box::pin(self.count(&caller.key_hash, rate, found, now)).await,
                None => return Ok(Allowance::default()),
            },
        };
        let calls = &counted.found.calls;
        self.decide(caller, rate, calls, counted.result, now)
            .map_err(|refused| (refused, counted.found.clone()))
    }

    fn decide(
        &self,
        caller: &Caller,
        rate: RateLimit,
        calls: &Calls,
        result: Result<Count, StoreError>,
        now: Timestamp,
    ) -> Result<Allowance, Refused> {
        let bucket = Bucket::new(rate);
        match result {
            Ok(count) => {
                let told = bucket.map(|bucket| Told {
                    bucket,
                    remaining: bucket.remaining(count.meter.full_at_us, epoch_us(now)),
                });
                match (count.today, told) {
                    (None, Some(mut told)) => {
                        let full_at_us = count.meter.full_at_us;
                        told.remaining.reset_seconds =
                            told.bucket
                                .wait_seconds(full_at_us, epoch_us(now), calls.total);
                        Err(Refused::Limited(told))
                    }
                    (today, told) => Ok(Allowance {
                        used_up: self.used_up(caller, calls, &today.unwrap_or_default(), now),
                        uncounted: false,
                        told,
                    }),
                }
            }
            // The key's own item is overrun: letting calls through would reward it.
            Err(StoreError::Throttled { .. } | StoreError::Conflict { .. })
                if let Some(bucket) = bucket =>
            {
                let key_id = &caller.key_id;
                tracing::warn!(%key_id, "a key calls faster than its calls can be counted");
                let remaining = Remaining {
                    calls: 0,
                    reset_seconds: THROTTLED_WAIT_SECONDS,
                };
                Err(Refused::Limited(Told { bucket, remaining }))
            }
            Err(error) => {
                let closed = self.on_failure == LimiterFailure::Closed
                    || calls.by_tool.contains_key(&Tool::Ask);
                if closed {
                    return Err(Refused::Unavailable(error));
                }
                tracing::error!(
                    marker = "LIMITER_UNAVAILABLE", key_id = %caller.key_id, %error,
                    "a call was let through without being counted"
                );
                Ok(Allowance {
                    uncounted: true,
                    ..Allowance::default()
                })
            }
        }
    }

    async fn count(
        &self,
        key: &KeyHash,
        rate: RateLimit,
        found: ToolCalls,
        now: Timestamp,
    ) -> Counted {
        let seen = self.remembered().get(key).map(|known| known.meter);
        let counting = self
            .meters
            .count(key, seen.unwrap_or_default(), &found.calls, rate, now);
        let result = in_time(counting).await;
        self.counted(key, rate, found, result)
    }

    fn counted(
        &self,
        key: &KeyHash,
        rate: RateLimit,
        found: ToolCalls,
        result: Result<Count, StoreError>,
    ) -> Counted {
        if let Ok(count) = &result {
            self.remember(key, rate, count.meter);
        }
        Counted {
            found,
            rate,
            result,
        }
    }

    fn used_up(
        &self,
        caller: &Caller,
        calls: &Calls,
        today: &BTreeMap<Tool, u64>,
        now: Timestamp,
    ) -> BTreeMap<Tool, DailyQuotaUsedUp> {
        let mut used_up = BTreeMap::new();
        for &tool in calls.by_tool.keys() {
            let quota = self.defaults.daily_quota(&caller.daily_quotas, tool);
            if let Some(quota) = quota.filter(|quota| today.get(&tool) > Some(quota)) {
                let resets_at = next_midnight(now);
                used_up.insert(
                    tool,
                    DailyQuotaUsedUp {
                        tool,
                        quota,
                        resets_at,
                    },
                );
            }
        }
        used_up
    }

    fn remember(&self, key: &KeyHash, rate: RateLimit, meter: Meter) {
        let mut remembered = self.remembered();
        if remembered.len() >= REMEMBERED_MAX && !remembered.contains_key(key) {
            remembered.clear();
        }
        let new = Remembered { rate, meter };
        let known = remembered.entry(key.clone()).or_insert(new);
        // Answers can arrive out of order; under one limit the bucket's number only ever rises.
        if known.rate != rate || meter.full_at_us >= known.meter.full_at_us {
            *known = new;
        }
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<KeyHash, Remembered>> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

async fn in_time<T>(
    counting: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(PATIENCE, counting).await {
        Ok(result) => result,
        Err(_elapsed) => Err(StoreError::Unavailable {
            operation: "UpdateItem",
            resource: "the state table".to_owned(),
            cause: format!("no answer within {PATIENCE:?}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_tool_calls_are_found_each_of_a_batch_included() {
        let call = |name: &str| json!({ "method": "tools/call", "params": { "name": name } });
        let batch = json!([call("ask"), { "method": "ping" }, call("nothing"), call("ask")]);
        let calls = ToolCalls::of(&batch).unwrap();
        assert_eq!(calls.calls.total, 3);
        assert_eq!(calls.calls.by_tool, BTreeMap::from([(Tool::Ask, 2)]));
        assert_eq!(calls.first, ("ask".to_owned(), Map::new()));
        for none in [
            json!({ "method": "tools/list" }),
            json!({ "method": "tools/call" }),
            json!([]),
            json!("tools/call"),
        ] {
            assert_eq!(ToolCalls::of(&none), None, "{none}");
        }
    }

    #[test]
    fn a_member_that_is_there_twice_cannot_hide_a_call() {
        let text = r#"{"method":"ping","method":"tools/call","params":{"name":"ask"}}"#;
        let body = RequestBody::new(text.into(), text.len());
        assert_eq!(ToolCalls::of(body.json().unwrap()).unwrap().calls.total, 1);
    }

    proptest! {
        #[test]
        fn no_body_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let body = RequestBody::new(bytes.into(), 200);
            let _ = body.json().and_then(ToolCalls::of);
        }
    }
}
