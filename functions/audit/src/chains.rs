//! Storing the records of one batch, chain by chain. Whatever goes wrong with one record, or with one
//! chain, is no other's failure.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use futures::stream::{self, StreamExt as _};
use futures::{FutureExt as _, TryFutureExt as _};
use raglan_store::audit_append::Stored;
use raglan_store::{AuditRecord, StoreError};

/// So many chains are written to at the same time.
const CHAINS_AT_ONCE: usize = 16;

/// How a record was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It was stored.
    New,
    /// It was stored before: it was delivered twice.
    AlreadyThere,
    /// It is no event, and lies in the dead-letter queue.
    SetAside,
}

impl From<Stored> for Done {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::New => Self::New,
            Stored::AlreadyThere => Self::AlreadyThere,
        }
    }
}

/// Why a record is not settled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotStored {
    /// The table, or the dead-letter queue.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The platform ends the run.
    #[error("the time for it was over")]
    OutOfTime,
    /// The program.
    #[error("the program failed while it handled this record")]
    Panic,
}

/// What became of one record.
pub type Settled = Result<Done, NotStored>;

/// Hands the records of each chain to `append`, which returns a result for each of them. Returns the
/// results by the records' numbers.
pub async fn store<'a, F>(
    records: impl IntoIterator<Item = (usize, &'a AuditRecord)>,
    append: impl Fn(Vec<&'a AuditRecord>) -> F,
) -> BTreeMap<usize, Settled>
where
    F: Future<Output = Vec<Result<Stored, StoreError>>>,
{
    let mut chains: BTreeMap<String, Vec<(usize, &AuditRecord)>> = BTreeMap::new();
    for (n, record) in records {
        let chain = chains.entry(record.event().partition()).or_default();
        chain.push((n, record));
    }
    let mut writing = Vec::with_capacity(chains.len());
    for chain in chains.into_values() {
        writing.push(store_chain(chain, &append));
    }
    let settled: Vec<_> = stream::iter(writing)
        .buffer_unordered(CHAINS_AT_ONCE)
        .collect()
        .await;
    settled.into_iter().flatten().collect()
}

async fn store_chain<'a, F>(
    chain: Vec<(usize, &'a AuditRecord)>,
    append: &impl Fn(Vec<&'a AuditRecord>) -> F,
) -> Vec<(usize, Settled)>
where
    F: Future<Output = Vec<Result<Stored, StoreError>>>,
{
    let (numbers, records): (Vec<_>, Vec<_>) = chain.iter().copied().unzip();
    if let Ok(results) = guarded(append, records).await {
        return numbers.into_iter().zip(results).collect();
    }
    // One of them, and nobody knows which: each one alone.
    let mut settled = Vec::with_capacity(chain.len());
    for (n, record) in chain {
        let alone = guarded(append, vec![record]).map_ok(|mut results| results.pop());
        let result = alone.await.ok().flatten().unwrap_or(Err(NotStored::Panic));
        settled.push((n, result));
    }
    settled
}

/// What a panic leaves half-done belongs to these records alone: a transaction is made or not made.
async fn guarded<'a, F>(
    append: &impl Fn(Vec<&'a AuditRecord>) -> F,
    records: Vec<&'a AuditRecord>,
) -> Result<Vec<Settled>, NotStored>
where
    F: Future<Output = Vec<Result<Stored, StoreError>>>,
{
    let running = AssertUnwindSafe(async { append(records).await }).catch_unwind();
    let results = running.await.map_err(|_| NotStored::Panic)?;
    Ok(results
        .into_iter()
        .map(|result| Ok(result?.into()))
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(id: &str, key: &str) -> AuditRecord {
        let event = json!({
            "schema_version": 2, "event_id": id, "at": "2026-11-30T08:15:00.000Z",
            "request_id": "r", "decision": "allowed", "http_status": 200, "key_id": key,
            "duration_ms": 3,
        });
        AuditRecord::parse(&event.to_string()).unwrap()
    }

    fn numbered(records: &[AuditRecord]) -> impl Iterator<Item = (usize, &AuditRecord)> {
        records.iter().enumerate()
    }

    #[tokio::test]
    async fn the_records_of_a_chain_are_stored_together_and_in_their_order() {
        let records = [
            record("e1", "key-1"),
            record("e2", "key-2"),
            record("e3", "key-1"),
        ];
        let calls = std::sync::Mutex::new(Vec::new());
        let settled = store(numbered(&records), async |chain: Vec<&AuditRecord>| {
            let ids = chain.iter().map(|record| record.event().event_id.clone());
            calls.lock().unwrap().push(ids.collect::<Vec<_>>());
            vec![Ok(Stored::New); chain.len()]
        })
        .await;
        let calls = calls.into_inner().unwrap();
        assert_eq!(calls, [vec!["e1", "e3"], vec!["e2"]]);
        assert_eq!(settled.keys().collect::<Vec<_>>(), [&0, &1, &2]);
    }

    #[tokio::test]
    async fn a_panic_in_one_record_is_that_records_failure() {
        let records = [
            record("good", "key-1"),
            record("bad", "key-1"),
            record("other", "key-1"),
            record("elsewhere", "key-2"),
        ];
        let settled = store(numbered(&records), async |chain: Vec<&AuditRecord>| {
            let is_bad = |record: &&AuditRecord| record.event().event_id == "bad";
            assert!(!chain.iter().any(is_bad));
            vec![Ok(Stored::New); chain.len()]
        })
        .await;
        let failed = |n: &usize| settled[n] == Err(NotStored::Panic);
        assert_eq!((0..4).filter(failed).collect::<Vec<_>>(), [1]);
    }

    #[tokio::test]
    async fn a_result_belongs_to_its_record() {
        let records = [record("e1", "key-1"), record("e2", "key-1")];
        let conflict = StoreError::Conflict {
            operation: "TransactWriteItems",
            resource: "audit".to_owned(),
        };
        let settled = store(numbered(&records), async |_| {
            vec![Ok(Stored::AlreadyThere), Err(conflict.clone())]
        })
        .await;
        assert_eq!(settled[&0], Ok(Done::AlreadyThere));
        assert_eq!(settled[&1], Err(NotStored::Store(conflict)));
    }
}
