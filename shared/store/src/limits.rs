//! The state table's item that counts a key's tool calls, for all instances together.
//!
//! One item a key holds the token bucket ([`raglan_core::limits::Bucket`]), the calls of the current
//! UTC day by tool, and what [`crate::usage`] tells operators. A call is one conditional `UpdateItem`:
//! the bucket's number is moved by an *addition in the store*, so any number of callers at the same
//! time are all counted, and the condition refuses whoever finds the bucket empty. What is refused
//! changes nothing.
//!
//! The addition has two more shapes, because an update expression knows no maximum: from a full
//! bucket, and under a limit that an operator has just changed, the count begins at the present; on a
//! new day the day's counters begin anew. Which shape
//! fits is taken from the item as it was last seen, and the condition checks it. When the item has
//! moved on since, the refused write brings the present item along and a second write follows. So a
//! call costs one write as a rule, two when another instance has filled or emptied the bucket
//! meanwhile; a counter (`ADD` to the current window) would always be one, but lets two bursts through
//! at the border of two windows.
//!
//! Under one limit the bucket's number only ever rises, so an item that was seen empty refuses without a write. One
//! item takes about 1,000 writes a second (the limit of a DynamoDB partition); beyond that DynamoDB
//! throttles the key's own item, and other keys are not affected. The caller of this module should
//! treat [`StoreError::Throttled`] as "too many calls of this key".

use std::collections::BTreeMap;
use std::fmt::Write as _;

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemInput;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use raglan_aws::{Answer, DynamoDb, ServiceClient};
use raglan_core::clock::Timestamp;
use raglan_core::key::KeyHash;
use raglan_core::key_record::RateLimit;
use raglan_core::limits::{Bucket, Calls, Fill, day_number, epoch_us};
use raglan_core::tool::Tool;
use serde::Deserialize;

use crate::error::StoreError;
use crate::item_json::{Record, usual};
use crate::meter_item::{FULL_AT, LIMIT, MeterItem, counter, limit_text};
use crate::table::{Item, text};

const PARTITION: &str = "partition";
const SORT: &str = "sort";
const METER: &str = "meter";
pub(crate) const LAST_USED: &str = "last_used_ms";
pub(crate) const CALL_COUNT: &str = "call_count";
/// The item of a key that is not used for this long is deleted.
const KEPT_SECONDS: i64 = 400 * 86_400;
/// Writes for one call, at most. Each one after the first means that somebody else changed the item's
/// shape in between, and nobody can do that often.
const WRITES_MAX: usize = 5;

/// The counting items.
#[derive(Debug, Clone)]
pub struct MeterStore {
    client: ServiceClient<DynamoDb>,
    table: String,
}

/// A key's item as it was last seen. The default stands for "never seen".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meter {
    /// When the bucket is full again, in microseconds since 1970.
    pub full_at_us: i64,
    /// Number of the UTC day that the day's counters belong to.
    pub day: i64,
    /// The limit that `full_at_us` was counted under.
    pub limit: Option<RateLimit>,
}

/// What came of counting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// The key's item after it.
    pub meter: Meter,
    /// The calls of this day by tool, these included; `None` when the bucket is empty and nothing was
    /// counted.
    pub today: Option<BTreeMap<Tool, u64>>,
    /// Writes that it took, 0 to 5.
    pub writes: usize,
}

impl MeterStore {
    /// The counting items of the state table of that name.
    #[must_use]
    pub fn new(client: ServiceClient<DynamoDb>, table: impl Into<String>) -> Self {
        Self {
            client,
            table: table.into(),
        }
    }

    /// Counts calls of a key, all or none of them, under this limit; 0 a minute refuses none. `seen` is
    /// the item as it was last seen; what is out of date in it costs a second write and nothing else.
    /// When the item was counted under another limit, the bucket begins full under this one.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was counted then, as far as can be known.
    pub async fn count(
        &self,
        key: &KeyHash,
        seen: Meter,
        calls: &Calls,
        limit: RateLimit,
        now: Timestamp,
    ) -> Result<Count, StoreError> {
        let counted = self.count_under(key, seen, calls, limit, true, now).await?;
        counted.ok_or_else(|| self.conflict())
    }

    /// The same for a limit that is a guess: `None`, and nothing counted, when the item was counted
    /// under another one.
    ///
    /// # Errors
    /// [`StoreError`], as for [`MeterStore::count`].
    pub async fn count_if_limit_is(
        &self,
        key: &KeyHash,
        seen: Meter,
        calls: &Calls,
        limit: RateLimit,
        now: Timestamp,
    ) -> Result<Option<Count>, StoreError> {
        self.count_under(key, seen, calls, limit, false, now).await
    }

    async fn count_under(
        &self,
        key: &KeyHash,
        seen: Meter,
        calls: &Calls,
        limit: RateLimit,
        may_change_limit: bool,
        now: Timestamp,
    ) -> Result<Option<Count>, StoreError> {
        let bucket = Bucket::new(limit);
        let mut meter = seen;
        for writes in 0..WRITES_MAX {
            let now_us = epoch_us(now);
            let changed = meter.limit.is_some_and(|of_item| of_item != limit);
            if changed && !may_change_limit {
                return Ok(None);
            }
            // Under a new limit the bucket is full, whatever was counted before.
            let full_at_us = if changed { 0 } else { meter.full_at_us };
            let fill = match bucket {
                Some(bucket) => bucket.fill(full_at_us, now_us, calls.total),
                None if full_at_us <= now_us => Fill::Full,
                None => Fill::Partial,
            };
            if fill == Fill::Empty {
                return Ok(Some(Count {
                    meter,
                    today: None,
                    writes,
                }));
            }
            let shape = Shape {
                full: fill == Fill::Full,
                may_change_limit,
                new_day: meter.day < day_number(now),
            };
            match self.write(key, shape, calls, limit, now).await? {
                Written::Counted(MeterItem { meter, today }) => {
                    return Ok(Some(Count {
                        meter,
                        today: Some(today),
                        writes: writes + 1,
                    }));
                }
                Written::OutOfDate(item) => meter = item.meter,
            }
        }
        Err(self.conflict())
    }

    fn conflict(&self) -> StoreError {
        StoreError::Conflict {
            operation: "UpdateItem",
            resource: self.table.clone(),
        }
    }

    async fn write(
        &self,
        key: &KeyHash,
        shape: Shape,
        calls: &Calls,
        limit: RateLimit,
        now: Timestamp,
    ) -> Result<Written, StoreError> {
        let bucket = Bucket::new(limit);
        let now_us = epoch_us(now);
        let cost_us = bucket.map_or(0, |bucket| bucket.cost_us(calls.total));
        let latest_us = bucket.map_or(i64::MAX, |bucket| bucket.latest_us(now_us, calls.total));
        let mut request = UpdateItemInput::builder()
            .table_name(&self.table)
            .set_key(Some(state_key(key, METER)))
            .update_expression(shape.update(calls))
            .condition_expression(shape.condition())
            .expression_attribute_values(":now_us", number(now_us))
            .expression_attribute_values(":today", number(day_number(now)))
            .expression_attribute_values(":now_ms", number(now.epoch_ms()))
            .expression_attribute_values(":expires", number(now.epoch_seconds() + KEPT_SECONDS))
            .expression_attribute_values(":total", number(calls.total))
            .expression_attribute_values(":limit", text(limit_text(limit)))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        request = if shape.full {
            request.expression_attribute_values(":full_at", number(now_us + cost_us))
        } else {
            request
                .expression_attribute_values(":cost", number(cost_us))
                .expression_attribute_values(":latest", number(latest_us))
        };
        for (tool, count) in &calls.by_tool {
            request = request.expression_attribute_values(format!(":{tool}"), number(*count));
        }
        let of_item = |item: Option<&Item>| item.map(MeterItem::from).unwrap_or_default();
        match self.client.send_with_reader(request.build(), usual).await {
            Ok(Answer::Read(Updated {
                attributes: Record(item),
            })) => Ok(Written::Counted(item)),
            Ok(Answer::Output(output)) => Ok(Written::Counted(of_item(output.attributes()))),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                    Ok(Written::OutOfDate(of_item(failed.item())))
                }
                _ => Err(StoreError::of_call("UpdateItem", &self.table, &error)),
            },
        }
    }
}

enum Written {
    Counted(MeterItem),
    OutOfDate(MeterItem),
}

/// The usual answer to `UpdateItem`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Updated {
    attributes: Record<MeterItem>,
}

/// What the write takes the item for.
#[derive(Clone, Copy)]
struct Shape {
    /// The bucket is full: the count begins at the present.
    full: bool,
    /// A bucket of another limit counts as full.
    may_change_limit: bool,
    /// The day's counters belong to an earlier day.
    new_day: bool,
}

impl Shape {
    fn update(self, calls: &Calls) -> String {
        let mut set = format!(
            "SET {LAST_USED} = :now_ms, expires_at = :expires, {LIMIT} = :limit, {FULL_AT} = "
        );
        set.push_str(if self.full {
            ":full_at"
        } else {
            "full_at_us + :cost"
        });
        let mut add = format!(" ADD {CALL_COUNT} :total");
        let mut remove = Vec::new();
        if self.new_day {
            set.push_str(", quota_day = :today");
        }
        for tool in Tool::ALL {
            let counter = counter(tool);
            // Writing to a string cannot fail.
            let _ = match (calls.by_tool.contains_key(&tool), self.new_day) {
                (true, true) => write!(set, ", {counter} = :{tool}"),
                (true, false) => write!(add, ", {counter} :{tool}"),
                (false, true) => {
                    remove.push(counter);
                    Ok(())
                }
                (false, false) => Ok(()),
            };
        }
        if !remove.is_empty() {
            let _ = write!(add, " REMOVE {}", remove.join(", "));
        }
        set + &add
    }

    fn condition(self) -> String {
        let bucket = match (self.full, self.may_change_limit) {
            (true, true) => {
                "(attribute_not_exists(full_at_us) OR full_at_us <= :now_us OR rate_limit <> :limit)"
            }
            (true, false) => {
                "(attribute_not_exists(full_at_us) OR (full_at_us <= :now_us AND rate_limit = :limit))"
            }
            (false, _) => "full_at_us > :now_us AND full_at_us <= :latest AND rate_limit = :limit",
        };
        let day = if self.new_day {
            "(attribute_not_exists(quota_day) OR quota_day < :today)"
        } else {
            // An instance whose clock is behind counts for the day that has begun elsewhere.
            "quota_day >= :today"
        };
        format!("{bucket} AND {day}")
    }
}

/// The key of one of the items that the state table has for an API key.
pub(crate) fn state_key(key: &KeyHash, sort: &str) -> Item {
    Item::from([
        (PARTITION.to_owned(), text(format!("key#{}", key.as_str()))),
        (SORT.to_owned(), text(sort)),
    ])
}

/// The key of the item that counts.
pub(crate) fn meter_key(key: &KeyHash) -> Item {
    state_key(key, METER)
}

/// A whole number.
pub(crate) fn number(value: impl std::fmt::Display) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use raglan_core::clock::{Clock, SystemClock};

    use super::*;
    use crate::testing::{Key, create_table, key_record, local_dynamodb, scripted};
    use crate::usage::UsageStore;

    const NOW: Timestamp = Timestamp::from_epoch_seconds(1_800_000_000);

    async fn store() -> MeterStore {
        let client = local_dynamodb().await;
        create_table(&client, "state", &Key::of(PARTITION, Some(SORT)), None).await;
        MeterStore::new(client, "state")
    }

    fn limit(requests_per_minute: u32, burst: u32) -> RateLimit {
        RateLimit {
            requests_per_minute,
            burst,
        }
    }

    fn calls(tools: &[&str]) -> Calls {
        let mut calls = Calls::default();
        for tool in tools {
            calls.add(tool);
        }
        calls
    }

    #[tokio::test]
    async fn a_burst_passes_and_the_next_call_changes_nothing() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let mut seen = Meter::default();
        for n in 1..=3 {
            let count = store
                .count(&key, seen, &calls(&["ask"]), limit(60, 3), NOW)
                .await
                .unwrap();
            assert_eq!(count.today, Some(BTreeMap::from([(Tool::Ask, n)])));
            assert_eq!(count.writes, 1);
            seen = count.meter;
        }
        // Whoever has not seen the item asks the store; whoever has does not.
        for (seen, writes) in [(Meter::default(), 1), (seen, 0)] {
            let count = store
                .count(&key, seen, &calls(&["ask"]), limit(60, 3), NOW)
                .await
                .unwrap();
            assert_eq!((count.today, count.writes), (None, writes));
        }
        let usage = UsageStore::new(store.client.clone(), "state");
        let usage = usage.of(&key).await.unwrap().unwrap();
        assert_eq!(usage.call_count, 3);

        let later = NOW.plus_seconds(1);
        let count = store
            .count(&key, seen, &calls(&["ask"]), limit(60, 3), later)
            .await
            .unwrap();
        assert_eq!(count.today, Some(BTreeMap::from([(Tool::Ask, 4)])));
    }

    #[tokio::test]
    async fn the_days_counters_begin_anew_at_midnight_and_the_bucket_does_not() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let evening = Timestamp::parse("2026-11-30T23:59:59.900Z").unwrap();
        let both = calls(&["ask", "retrieve", "no_such_tool"]);
        let first = store
            .count(&key, Meter::default(), &both, limit(60, 4), evening)
            .await
            .unwrap();
        assert_eq!(first.today.unwrap().len(), 2);

        let midnight = Timestamp::parse("2026-12-01").unwrap();
        let next = store
            .count(
                &key,
                first.meter,
                &calls(&["retrieve"]),
                limit(60, 4),
                midnight,
            )
            .await
            .unwrap();
        assert_eq!(next.today, Some(BTreeMap::from([(Tool::Retrieve, 1)])));
        let late = store
            .count(
                &key,
                next.meter,
                &calls(&["retrieve"]),
                limit(60, 4),
                midnight,
            )
            .await
            .unwrap();
        assert_eq!(late.today, None);

        // An instance whose clock is behind counts for the new day and does not reset it.
        let behind = store
            .count(
                &key,
                next.meter,
                &calls(&["retrieve"]),
                limit(60, 9),
                evening,
            )
            .await
            .unwrap();
        assert_eq!(behind.today, Some(BTreeMap::from([(Tool::Retrieve, 2)])));
    }

    #[tokio::test]
    async fn without_a_bucket_calls_are_counted_and_never_refused() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        for n in 1..=50 {
            let count = store
                .count(&key, Meter::default(), &calls(&["ask"]), limit(0, 0), NOW)
                .await
                .unwrap();
            assert_eq!(count.today, Some(BTreeMap::from([(Tool::Ask, n)])));
        }
    }

    #[tokio::test]
    async fn a_changed_limit_acts_on_the_next_call_and_a_guess_never_changes_it() {
        let store = store().await;
        let key = key_record("key-1", 1).key_hash;
        let one = calls(&["ask"]);
        let (strict, generous) = (limit(1, 1), limit(600, 2));
        let first = store.count(&key, Meter::default(), &one, strict, NOW);
        let seen = first.await.unwrap().meter;
        for seen in [seen, Meter::default()] {
            let refused = store.count(&key, seen, &one, strict, NOW).await.unwrap();
            assert_eq!(refused.today, None);
            let guess = store.count_if_limit_is(&key, seen, &one, generous, NOW);
            assert_eq!(guess.await, Ok(None));
        }
        let raised = store.count(&key, seen, &one, generous, NOW).await.unwrap();
        assert_eq!(raised.today, Some(BTreeMap::from([(Tool::Ask, 2)])));
        // Another instance still believes in the strict limit.
        for seen in [seen, Meter::default()] {
            let later = NOW.plus_seconds(90);
            let guess = store.count_if_limit_is(&key, seen, &one, strict, later);
            assert_eq!(guess.await, Ok(None));
        }
        let known = store.count_if_limit_is(&key, raised.meter, &one, generous, NOW);
        let count = known.await.unwrap().unwrap();
        assert_eq!((count.today.unwrap()[&Tool::Ask], count.writes), (3, 1));
    }

    /// Lets callers call for `seconds`; gives calls that passed, refused ones, writes and the time in
    /// microseconds that the callers really took.
    async fn contend(callers: usize, seconds: i64) -> (usize, usize, usize, i64) {
        let store = Arc::new(store().await);
        let key = key_record("key-1", 1).key_hash;
        let counters: Arc<[AtomicUsize; 3]> = Arc::default();
        let began = SystemClock.now();
        let tasks = (0..callers).map(|_| {
            let (store, key, counters) = (Arc::clone(&store), key.clone(), Arc::clone(&counters));
            tokio::spawn(async move {
                // Every caller is an instance of its own, which remembers what it has seen itself.
                let mut seen = Meter::default();
                loop {
                    let now = SystemClock.now();
                    if now.epoch_ms() >= began.epoch_ms() + seconds * 1000 {
                        return;
                    }
                    let one = calls(&["retrieve"]);
                    let count = store.count(&key, seen, &one, limit(120, 40), now);
                    let count = count.await.unwrap();
                    seen = count.meter;
                    counters[usize::from(count.today.is_none())].fetch_add(1, Ordering::SeqCst);
                    counters[2].fetch_add(count.writes, Ordering::SeqCst);
                    if count.writes == 0 {
                        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    }
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let took_us = epoch_us(SystemClock.now()) - epoch_us(began);
        let [passed, refused, writes] = [0, 1, 2].map(|at| counters[at].load(Ordering::SeqCst));
        let usage = UsageStore::new(store.client.clone(), "state");
        let usage = usage.of(&key).await.unwrap().unwrap();
        assert_eq!(usage.call_count, passed as u64);
        (passed, refused, writes, took_us)
    }

    fn assert_within_budget(passed: usize, took_us: i64) {
        let budget = took_us / Bucket::new(limit(120, 40)).unwrap().token_us() + 40;
        assert!(
            i64::try_from(passed).unwrap() <= budget,
            "{passed} of {budget}"
        );
        assert!(passed >= 40, "a full bucket gives its burst: {passed}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sixty_four_callers_at_once_never_exceed_the_budget_of_their_key() {
        let (passed, _, _, took_us) = contend(64, 2).await;
        assert_within_budget(passed, took_us);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "ten seconds of load; prints the figures"]
    async fn sixty_four_callers_for_ten_seconds() {
        let (passed, refused, writes, took_us) = contend(64, 10).await;
        println!("passed {passed}, refused {refused}, writes {writes}, {took_us} us");
        assert_within_budget(passed, took_us);
    }

    #[tokio::test]
    async fn what_an_item_does_not_say_is_nothing() {
        let usual_answer = r#"{"Attributes":{"full_at_us":{"N":"5"},"quota_day":{"N":"7"},
            "rate_limit":{"S":"60/3"},"today_ask":{"N":"2"},"today_retrieve":{"N":"0"}}}"#;
        let meter = Meter {
            full_at_us: 5,
            day: 7,
            limit: Some(limit(60, 3)),
        };
        let rows = [
            (usual_answer, true, meter, 2),
            (
                r#"{"Attributes":{"rate_limit":{"N":"60"},"today_ask":{"N":"1"}}}"#,
                false,
                Meter::default(),
                1,
            ),
            ("{}", false, Meter::default(), 0),
        ];
        for (answer, is_usual, meter, asked) in rows {
            let read = usual::<Updated>(answer.as_bytes());
            assert_eq!(read.is_some(), is_usual, "{answer}");
            let server = scripted(vec![(200, answer.to_owned())]).await;
            let client = crate::testing::clients_at(&server.url).dynamodb;
            let store = MeterStore::new(client, "state");
            let key = key_record("key-1", 1).key_hash;
            let one = calls(&["ask"]);
            let count = store.count(&key, Meter::default(), &one, limit(60, 3), NOW);
            let count = count.await.unwrap();
            assert_eq!(count.meter, meter, "{answer}");
            let today = count.today.unwrap();
            assert_eq!(today.get(&Tool::Ask).copied().unwrap_or(0), asked);
            assert!(!today.contains_key(&Tool::Retrieve));
        }
    }

    #[tokio::test]
    async fn an_item_that_takes_no_more_writes_is_told_apart() {
        let body = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException"}"#;
        let server = scripted(vec![(400, body.to_owned()); 3]).await;
        let client = crate::testing::clients_at(&server.url).dynamodb;
        let store = MeterStore::new(client, "state");
        let error = store
            .count(
                &key_record("key-1", 1).key_hash,
                Meter::default(),
                &calls(&["ask"]),
                limit(60, 3),
                NOW,
            )
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::Throttled { .. }), "{error}");
    }
}
