//! How much keys are used, from what is counted anyway ([`raglan_store::usage`] says how exactly).

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use raglan_core::clock::Timestamp;
use raglan_core::key_record::KeyRecord;
use raglan_core::life_cycle;
use raglan_core::tool::Tool;
use raglan_store::usage::{Usage, UsageStore};
use serde::Serialize;

use super::arguments::UsageArguments;
use super::find::find;
use super::view::{minute, moment};
use crate::Outcome;
use crate::language::text;
use crate::session::{Items, Session};
use crate::terminal::{labelled, table};

/// So many keys are asked for at the same time.
const PARALLEL_READS: usize = 16;

/// The usage of one key as JSON. The fields are stable: scripts read them.
#[derive(Debug, Serialize)]
struct UsageView<'a> {
    key_id: &'a str,
    name: &'a str,
    owner: Option<&'a str>,
    last_used_at: Option<Timestamp>,
    call_count: u64,
    /// The day of `calls_of_last_day`: the last one on which the key was used.
    last_day: Option<String>,
    calls_of_last_day: BTreeMap<Tool, u64>,
}

/// `raglan key usage`
pub(super) async fn usage(
    session: &mut Session<'_>,
    arguments: &UsageArguments,
) -> anyhow::Result<Outcome> {
    let keys = session.target.keys()?;
    let client = session.target.clients().dynamodb.clone();
    let usages = UsageStore::new(client, session.target.state_table()?);
    if let Some(named) = &arguments.key {
        let record = find(&keys, session.console, named).await?.record;
        let usage = usages.of(&record.key_hash).await?;
        session.show(&view(&record, usage.as_ref()), || {
            describe(&record, usage.as_ref())
        })?;
        return Ok(Outcome::Done);
    }
    let now = session.clock.now();
    let mut records = keys.list().await?;
    records.retain(|record| arguments.all || life_cycle::ending(record, now).is_none());
    let mut used: Vec<(KeyRecord, Option<Usage>)> = stream::iter(records)
        .map(async |record| {
            let usage = usages.of(&record.key_hash).await?;
            anyhow::Ok((record, usage))
        })
        .buffer_unordered(PARALLEL_READS)
        .try_collect()
        .await?;
    // The most recently used first, those that nobody uses last.
    used.sort_by_key(|(record, usage)| {
        let last = usage.as_ref().map(|usage| usage.last_used_at);
        (std::cmp::Reverse(last), record.key_id.clone())
    });
    let items = used
        .iter()
        .map(|(record, usage)| view(record, usage.as_ref()))
        .collect();
    session.show(&Items { items }, || {
        let rows: Vec<_> = used
            .iter()
            .map(|(record, usage)| row(record, usage.as_ref()))
            .collect();
        table(
            &[
                text!("KEY"),
                text!("LAST USED (UTC)"),
                text!("CALLS"),
                text!("ON THAT DAY"),
                text!("NAME"),
            ],
            &rows,
        )
    })?;
    Ok(Outcome::Done)
}

fn view<'a>(record: &'a KeyRecord, usage: Option<&Usage>) -> UsageView<'a> {
    UsageView {
        key_id: &record.key_id,
        name: &record.name,
        owner: record.owner.as_deref(),
        last_used_at: usage.map(|usage| usage.last_used_at),
        call_count: usage.map_or(0, |usage| usage.call_count),
        last_day: usage.map(|usage| usage.day.day()),
        calls_of_last_day: usage.map(|usage| usage.by_tool.clone()).unwrap_or_default(),
    }
}

fn row(record: &KeyRecord, usage: Option<&Usage>) -> Vec<String> {
    vec![
        record.key_id.clone(),
        usage.map_or_else(
            || text!("never").to_owned(),
            |usage| minute(usage.last_used_at),
        ),
        usage.map_or(0, |usage| usage.call_count).to_string(),
        usage.map(by_tool).unwrap_or_default(),
        record.name.clone(),
    ]
}

fn describe(record: &KeyRecord, usage: Option<&Usage>) -> String {
    let mut lines = vec![
        (text!("key"), record.key_id.clone()),
        (text!("name"), record.name.clone()),
    ];
    match usage {
        None => lines.push((text!("last used"), text!("never").to_owned())),
        Some(usage) => lines.extend([
            (text!("last used"), moment(usage.last_used_at)),
            (text!("calls"), usage.call_count.to_string()),
            (text!("on that day"), by_tool(usage)),
        ]),
    }
    labelled(&lines)
}

fn by_tool(usage: &Usage) -> String {
    let calls = usage
        .by_tool
        .iter()
        .map(|(tool, calls)| format!("{tool} {calls}"));
    calls.collect::<Vec<_>>().join(", ")
}
