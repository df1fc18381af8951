//! What operators are shown about keys: never a key, never a hash.

use std::collections::BTreeMap;

use raglan_core::audit::privacy::TextPolicy;
use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::Timestamp;
use raglan_core::key_record::{KeyRecord, RateLimit, ScopeKind, Standing};
use raglan_core::tool::Tool;
use serde::Serialize;

use crate::terminal::table;

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

    const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::InGrace => "in grace",
            Self::Disabled => "disabled",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Replaced => "replaced",
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
                    .unwrap_or_else(|| "(system)".to_owned()),
                tools(record),
                scope(record),
                ends(record).map_or_else(|| "never".to_owned(), minute),
                record.name.clone(),
            ]
        })
        .collect();
    let heading = [
        "KEY",
        "FINGERPRINT",
        "STATE",
        "OWNER",
        "TOOLS",
        "KNOWLEDGE BASES",
        "ENDS (UTC)",
        "NAME",
    ];
    table(&heading, &rows)
}

/// One key in lines.
#[must_use]
pub fn describe(record: &KeyRecord, now: Timestamp) -> String {
    let mut lines = vec![
        ("key", record.key_id.clone()),
        ("name", record.name.clone()),
        ("fingerprint", record.fingerprint.clone()),
        ("state", State::of(record, now).name().to_owned()),
        (
            "owner",
            record
                .owner
                .clone()
                .unwrap_or_else(|| "none (system key)".to_owned()),
        ),
        ("tools", tools(record)),
        ("knowledge bases", scope(record)),
        ("created", moment(record.created_at)),
        (
            "expires",
            record.expires_at.map_or_else(|| "never".to_owned(), moment),
        ),
    ];
    if let Some(at) = record.revoked_at {
        lines.push(("revoked", moment(at)));
    }
    if let Some(successor) = &record.replaced_by {
        lines.push(("replaced by", successor.clone()));
    }
    if let (State::InGrace, Some(at)) = (State::of(record, now), record.grace_ends_at) {
        lines.push(("works until", moment(at)));
    }
    let rate = record.rate_limit.map_or_else(
        || "the deployment's default".to_owned(),
        |limit| {
            format!(
                "{} requests a minute, {} at once",
                limit.requests_per_minute, limit.burst
            )
        },
    );
    lines.push(("rate limit", rate));
    for (tool, calls) in &record.daily_quotas {
        lines.push(("daily quota", format!("{calls} calls of {tool}")));
    }
    let lines: Vec<String> = lines
        .into_iter()
        .map(|(name, value)| format!("{name:<16} {value}"))
        .collect();
    lines.join("\n")
}

fn tools(record: &KeyRecord) -> String {
    if record.tools.len() == Tool::ALL.len() {
        return "all".to_owned();
    }
    let names: Vec<&str> = record.tools.iter().map(|tool| tool.name()).collect();
    none_or(names.join(","))
}

fn scope(record: &KeyRecord) -> String {
    match (record.scope, &record.owner) {
        (ScopeKind::None, _) => "none".to_owned(),
        (ScopeKind::All, None) => "all".to_owned(),
        (ScopeKind::All, Some(owner)) => format!("all of {owner}"),
        (ScopeKind::List, _) => {
            let ids: Vec<&str> = record.kb_ids.iter().map(KnowledgeBaseId::as_str).collect();
            none_or(ids.join(","))
        }
    }
}

fn none_or(text: String) -> String {
    if text.is_empty() {
        "none".to_owned()
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
