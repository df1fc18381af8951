//! `raglan doctor`: looks at a deployment from outside, as clients do, and from inside, and says what to
//! do about what it finds.

mod arguments;
mod finding;
mod inside;
mod outside;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use futures::FutureExt as _;
use raglan_core::ids;
use raglan_core::key::PlainKey;
use raglan_core::key_record::{KeyRecord, ScopeKind};
use raglan_core::life_cycle;
use raglan_core::tool::Tool;
use serde::Serialize;
use serde_json::json;

pub use self::arguments::DoctorArguments;
use self::finding::{Finding, State};
use self::outside::Outside;
use crate::Outcome;
use crate::language::text;
use crate::ledger::{Change, Subject, WhenUnrecorded};
use crate::session::{Session, with_session};
use crate::terminal::table;

/// A temporary key ends by itself, should revoking it fail.
const TEMPORARY_KEY_SECONDS: i64 = 300;

/// Everything that was found. The fields are stable: scripts read them.
#[derive(Debug, Serialize)]
struct Report {
    worst: State,
    findings: Vec<Finding>,
}

/// Runs the command.
///
/// # Errors
/// When the deployment cannot be opened. What is wrong with it is no error but a finding.
pub async fn run(arguments: DoctorArguments) -> anyhow::Result<Outcome> {
    let (target, json) = (arguments.target.clone(), arguments.json);
    with_session(&target, json, async |session| {
        execute(session, &arguments).await
    })
    .await
}

/// Runs the checks and shows what they found.
///
/// # Errors
/// When nothing can be shown.
pub async fn execute(
    session: &mut Session<'_>,
    arguments: &DoctorArguments,
) -> anyhow::Result<Outcome> {
    let target = session.target;
    let mut findings = match arguments.url.as_deref().or(target.endpoint()) {
        Some(url) => from_outside(session, arguments, url).await,
        None => vec![Finding::skipped(
            "endpoint",
            text!(
                "{deployment} does not say where its endpoint is",
                deployment = target.description()
            ),
            text!("Start it (`raglan dev`), or name it with --url."),
        )],
    };
    findings.extend(inside::tables(target).await);
    findings.extend(inside::queues(target).await);
    findings.push(inside::alarms(target).await);
    findings.extend(inside::keys(target, session.clock.now()).await);
    let worst = findings.iter().map(|finding| finding.state).max();
    let report = Report {
        worst: worst.unwrap_or(State::Ok),
        findings,
    };
    session.show(&report, || describe(&report.findings))?;
    Ok(match report.worst {
        State::Failed => Outcome::Failed,
        State::Warning => Outcome::Incomplete,
        State::Skipped | State::Ok => Outcome::Done,
    })
}

async fn from_outside(
    session: &mut Session<'_>,
    arguments: &DoctorArguments,
    url: &str,
) -> Vec<Finding> {
    let outside = Outside::new(url, session.clock);
    let mut findings = outside.health().await;
    if findings
        .first()
        .is_some_and(|first| first.state == State::Failed)
    {
        return findings;
    }
    findings.push(outside.refusal().await);
    if let Some(key) = &arguments.key {
        findings.extend(outside.calls(key).await);
    } else if arguments.temporary_key {
        match TemporaryKey::make(session).await {
            Ok(temporary) => {
                findings.extend(outside.calls(temporary.key.reveal()).await);
                findings.extend(temporary.revoke(session).await);
            }
            Err(error) => findings.push(Finding::failed(
                "key",
                text!(
                    "no temporary key can be made: {error}",
                    error = format_args!("{error:#}")
                ),
                text!("See the findings about the tables and the audit queue."),
            )),
        }
    } else {
        findings.push(Finding::skipped(
            "key",
            text!("nothing was called, because there is no key"),
            text!("Set RAGLAN_KEY, or let the doctor make one with --temporary-key."),
        ));
    }
    findings
}

fn describe(findings: &[Finding]) -> String {
    let rows: Vec<Vec<String>> = findings
        .iter()
        .flat_map(|finding| {
            let row = [finding.state.name(), finding.check, &finding.detail];
            let advice = finding.advice.as_ref();
            let advice =
                advice.map(|advice| vec![String::new(), String::new(), format!("→ {advice}")]);
            std::iter::once(row.map(ToOwned::to_owned).to_vec()).chain(advice)
        })
        .collect();
    table(&["STATE", "CHECK", "FOUND"], &rows)
}

/// A key for the doctor alone: it may list and search.
struct TemporaryKey {
    key: PlainKey,
    record: KeyRecord,
}

impl TemporaryKey {
    async fn make(session: &mut Session<'_>) -> anyhow::Result<Self> {
        let key = PlainKey::generate(session.random)?;
        let now = session.clock.now();
        let (key_id, name) = (ids::key_id(session.random)?, "raglan doctor".to_owned());
        let record = KeyRecord {
            tools: BTreeSet::from([Tool::ListKnowledgeBases, Tool::Retrieve]),
            scope: ScopeKind::All,
            expires_at: Some(now.plus_seconds(TEMPORARY_KEY_SECONDS)),
            ..KeyRecord::without_rights(key.hash(), key.fingerprint(), key_id, name, now)
        };
        let keys = session.target.keys()?;
        let ledger = session.ledger(WhenUnrecorded::Refuse).await?;
        let work = keys.put_new(&record).boxed_local();
        ledger
            .make(session.console, &[change("key.create", &record)], work)
            .await?;
        Ok(Self { key, record })
    }

    /// Nothing to say when it worked.
    async fn revoke(self, session: &mut Session<'_>) -> Option<Finding> {
        let revoked = life_cycle::revoke(&self.record, session.clock.now());
        let outcome = async {
            let keys = session.target.keys()?;
            let ledger = session.ledger(WhenUnrecorded::Proceed).await?;
            let work = keys.put(&revoked).boxed_local();
            let changes = [change("key.revoke", &revoked)];
            ledger.make(session.console, &changes, work).await
        };
        let error = outcome.await.err()?;
        Some(Finding::warning(
            "key",
            text!(
                "the temporary key {key_id} is not revoked: {error}",
                key_id = self.record.key_id,
                error = format_args!("{error:#}")
            ),
            text!("It ends by itself within five minutes."),
        ))
    }
}

fn change(action: &'static str, record: &KeyRecord) -> Change {
    Change {
        action,
        subject: Subject::Key {
            key_id: record.key_id.clone(),
            owner: None,
        },
        details: json!({ "name": record.name, "tools": record.tools, "scope": "all" }),
    }
}
