//! What operators are shown about keys: never a key, never a hash.

use std::collections::BTreeMap;

use raglan_core::audit::privacy::TextPolicy;
use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::Timestamp;
use raglan_core::key_record::{KeyRecord, RateLimit, ScopeKind, Standing};
use raglan_core::tool::Tool;
use serde::Serialize;

use crate::language::text;
use crate::terminal::{labelled, table};

/// Whether a key works, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It works.
    Active,
    /// It was replaced, and works for a while yet.
    InGrace,
    /// It is switched off.
    Disabled,
    /// It reached its end.
    Expired,
    /// It was revoked.
    Revoked,
    /// It was replaced, and its grace is over.
    Replaced,
}

impl State {
    /// At that moment.
    #[must_use]
    pub fn of(record: &KeyRecord, now: Timestamp) -> Self {
        match record.check(now) {
            Ok(()) if record.replaced_by.is_some() => Self::InGrace,
            Ok(()) => Self::Active,
            Err(Standing::Disabled) => Self::Disabled,
            Err(Standing::Expired) => Self::Expired,
            Err(Standing::Revoked) => Self::Revoked,
            Err(Standing::Replaced) => Self::Replaced,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Active => text!("active"),
            Self::InGrace => text!("in grace"),
            Self::Disabled => text!("disabled"),
            Self::Expired => text!("expired"),
            Self::Revoked => text!("revoked"),
            Self::Replaced => text!("replaced"),
        }
    }
}

/// A key as JSON. The fields are stable: scripts read them.
#[derive(Debug, Serialize)]
pub struct KeyView<'a> {
    key_id: &'a str,
    name: &'a str,
    fingerprint: &'a str,
    state: State,
    owner: Option<&'a str>,
    tools: Vec<Tool>,
    scope: ScopeKind,
    kb_ids: Vec<&'a KnowledgeBaseId>,
    enabled: bool,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    replaced_by: Option<&'a str>,
    grace_ends_at: Option<Timestamp>,
    rate_limit: Option<RateLimit>,
    daily_quotas: &'a BTreeMap<String, u64>,
    audit_text: Option<TextPolicy>,
}

impl<'a> KeyView<'a> {
    /// At that moment.
    #[must_use]
    pub fn of(record: &'a KeyRecord, now: Timestamp) -> Self {
        Self {
            key_id: &record.key_id,
            name: &record.name,
            fingerprint: &record.fingerprint,
            state: State::of(record, now),
            owner: record.owner.as_deref(),
            tools: record.tools.iter().copied().collect(),
            scope: record.scope,
            kb_ids: record.kb_ids.iter().collect(),
            enabled: record.enabled,
            created_at: record.created_at,
            expires_at: record.expires_at,
            revoked_at: record.revoked_at,
            replaced_by: record.replaced_by.as_deref(),
            grace_ends_at: record.grace_ends_at,
            rate_limit: record.rate_limit,
            daily_quotas: &record.daily_quotas,
            audit_text: record.audit_text,
        }
    }
}

/// Keys as a table.
#[must_use]
pub fn list(records: &[KeyRecord], now: Timestamp) -> String {
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|record| {
            vec![
                record.key_id.clone(),
                record.fingerprint.clone(),
                State::of(record, now).name().to_owned(),
                record
                    .owner
                    .clone()
                    .unwrap_or_else(|| text!("(system)").to_owned()),
                tools(record),
                scope(record),
                ends(record).map_or_else(|| text!("never").to_owned(), minute),
                record.name.clone(),
            ]
        })
        .collect();
    let heading = [
        text!("KEY"),
        text!("FINGERPRINT"),
        text!("STATE"),
        text!("OWNER"),
        text!("TOOLS"),
        text!("KNOWLEDGE BASES"),
        text!("ENDS (UTC)"),
        text!("NAME"),
    ];
    table(&heading, &rows)
}

/// One key in lines.
#[must_use]
pub fn describe(record: &KeyRecord, now: Timestamp) -> String {
    let mut lines = vec![
        (text!("key"), record.key_id.clone()),
        (text!("name"), record.name.clone()),
        (text!("fingerprint"), record.fingerprint.clone()),
        (text!("state"), State::of(record, now).name().to_owned()),
        (
            text!("owner"),
            record
                .owner
                .clone()
                .unwrap_or_else(|| text!("none (system key)").to_owned()),
        ),
        (text!("tools"), tools(record)),
        (text!("knowledge bases"), scope(record)),
        (text!("created"), moment(record.created_at)),
        (
            text!("expires"),
            record
                .expires_at
                .map_or_else(|| text!("never").to_owned(), moment),
        ),
    ];
    if let Some(at) = record.revoked_at {
        lines.push((text!("revoked"), moment(at)));
    }
    if let Some(successor) = &record.replaced_by {
        lines.push((text!("replaced by"), successor.clone()));
    }
    if let (State::InGrace, Some(at)) = (State::of(record, now), record.grace_ends_at) {
        lines.push((text!("works until"), moment(at)));
    }
    let rate = record.rate_limit.map_or_else(
        || text!("the deployment's default").to_owned(),
        |limit| {
            text!(
                "{requests_per_minute} requests a minute, {burst} at once",
                requests_per_minute = limit.requests_per_minute,
                burst = limit.burst
            )
        },
    );
    lines.push((text!("rate limit"), rate));
    for (tool, calls) in &record.daily_quotas {
        lines.push((
            text!("daily quota"),
            text!("{calls} calls of {tool}", calls, tool),
        ));
    }
    labelled(&lines)
}

fn tools(record: &KeyRecord) -> String {
    if record.tools.len() == Tool::ALL.len() {
        return text!("all").to_owned();
    }
    let names: Vec<&str> = record.tools.iter().map(|tool| tool.name()).collect();
    none_or(names.join(","))
}

fn scope(record: &KeyRecord) -> String {
    match (record.scope, &record.owner) {
        (ScopeKind::None, _) => text!("none").to_owned(),
        (ScopeKind::All, None) => text!("all").to_owned(),
        (ScopeKind::All, Some(owner)) => text!("all of {owner}", owner),
        (ScopeKind::List, _) => {
            let ids: Vec<&str> = record.kb_ids.iter().map(KnowledgeBaseId::as_str).collect();
            none_or(ids.join(","))
        }
    }
}

fn none_or(text: String) -> String {
    if text.is_empty() {
        text!("none").to_owned()
    } else {
        text
    }
}

/// The first moment at which it does not work any more.
fn ends(record: &KeyRecord) -> Option<Timestamp> {
    [record.revoked_at, record.grace_ends_at, record.expires_at]
        .into_iter()
        .flatten()
        .min()
}

/// `2027-01-31 12:00 UTC`
#[must_use]
pub fn moment(moment: Timestamp) -> String {
    format!("{} UTC", minute(moment))
}

/// `2027-01-31 12:00`
#[must_use]
pub fn minute(moment: Timestamp) -> String {
    moment
        .to_string()
        .chars()
        .take(16)
        .collect::<String>()
        .replace('T', " ")
}
