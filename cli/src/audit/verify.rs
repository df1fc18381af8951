//! `raglan audit verify`: compares the stored chains with their heads and with the roots that are kept
//! apart.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use raglan_audit::archive::Archive;
use raglan_core::audit_chain::{self, DayWitnesses, Fault, Head, RootFault};
use raglan_core::clock::Timestamp;
use raglan_store::AuditTable;
use serde::Serialize;

use super::arguments::VerifyArguments;
use super::selection::Range;
use super::view::printable;
use crate::Outcome;
use crate::language::text;
use crate::moment::Past;
use crate::session::Session;
use crate::terminal::table;

const SECONDS_PER_DAY: i64 = 86_400;
/// Without another wish the last seven days are verified.
const DEFAULT_FROM: Past = Past::Ago(7 * SECONDS_PER_DAY);
/// So many chains are read at the same time.
const CHAINS_AT_ONCE: usize = 8;

/// How far a day is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// Roots say how far its chains reached.
    Closed,
    /// No root yet: only the heads, which lie in the same table, bear witness.
    Open,
    /// The same for a day that is long over: an event came late, or the schedule does not work.
    Due,
    /// Events of the day have been deleted because they were old enough.
    Expired,
    /// Nothing is known of it.
    Empty,
}

/// Something that is wrong, and where. The fields are stable: scripts read them.
#[derive(Debug, Serialize)]
struct Finding {
    day: String,
    /// Whose chain; absent when it is about the day.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// One stable word.
    fault: &'static str,
    /// The same in a sentence, in the language of the command line.
    text: String,
}

#[derive(Debug, Serialize)]
struct DayReport {
    day: String,
    state: State,
    closings: usize,
    chains: usize,
    events: usize,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    has_roots: bool,
    days: Vec<DayReport>,
    findings: Vec<Finding>,
}

pub(super) async fn verify(
    session: &mut Session<'_>,
    arguments: &VerifyArguments,
) -> anyhow::Result<Outcome> {
    if let Some(system) = session.target.local_system() {
        // While the local system does not run, nobody closes its days.
        system.closer().close_days().await?;
    }
    let now = session.clock.now();
    let from = arguments.from.unwrap_or(DEFAULT_FROM);
    let range = Range::between(from, arguments.to, now)?;
    let archive = match &arguments.roots {
        Some(place) => Some(session.target.archive_at(place)?),
        None => session.target.archive(),
    };
    let verifier = Verifier {
        table: session.target.audit_table()?,
        archive,
        now,
    };
    let mut report = Report {
        has_roots: verifier.archive.is_some(),
        ..Report::default()
    };
    for day in range.days() {
        let of_day = verifier.day(&day, &mut report.findings).await?;
        report.days.push(of_day);
    }
    session.show(&report, || describe(&report))?;
    Ok(outcome(session, &report))
}

fn outcome(session: &mut Session<'_>, report: &Report) -> Outcome {
    let is_in_state = |state: State| report.days.iter().any(move |day| day.state == state);
    if !report.findings.is_empty() {
        session.console.note(text!(
            "{count} faults: the audit trail is not as it was written.",
            count = report.findings.len()
        ));
        return Outcome::Failed;
    }
    if !report.has_roots {
        session.console.note(text!(
            "No roots are named: whoever can write the table could have changed events and heads \
             together."
        ));
        return Outcome::Incomplete;
    }
    if is_in_state(State::Due) {
        session.console.note(text!(
            "Days are due to be closed, because events came late or closing does not work: verify again \
             after the next closing, which is at most six hours away."
        ));
        return Outcome::Incomplete;
    }
    if is_in_state(State::Expired) {
        session.console.note(text!(
            "Days whose events expire cannot be verified any more."
        ));
        return Outcome::Incomplete;
    }
    if is_in_state(State::Open) {
        session.console.note(text!(
            "Open days are verified by their heads alone, which lie in the same table; once they are \
             closed, roots bear witness."
        ));
    }
    Outcome::Done
}

struct Verifier {
    table: AuditTable,
    archive: Option<Archive>,
    now: Timestamp,
}

impl Verifier {
    async fn day(&self, day: &str, findings: &mut Vec<Finding>) -> anyhow::Result<DayReport> {
        let on_day = |key: Option<String>, fault, text| Finding {
            day: day.to_owned(),
            key,
            fault,
            text,
        };
        let mut report = DayReport {
            day: day.to_owned(),
            state: State::Empty,
            closings: 0,
            chains: 0,
            events: 0,
        };
        // The roots come first: what they saw is in the table by then.
        let found = match &self.archive {
            Some(archive) => archive.closings(day).await?,
            None => BTreeMap::new(),
        };
        report.closings = found.len();
        let (witnesses, faults) = DayWitnesses::of(day, found);
        for fault in faults {
            let (word, sentence) = of_root(fault);
            findings.push(on_day(None, word, sentence));
        }
        if witnesses
            .complete_until()
            .is_some_and(|end| end <= self.now)
        {
            report.state = State::Expired;
            return Ok(report);
        }
        let heads = self.table.heads(day).await?;
        let seen = self.table.keys_seen(day).await?;
        let keys = witnesses.keys(&heads, seen);
        report.chains = keys.len();
        if !keys.is_empty() {
            report.state = match report.closings {
                0 => State::Open,
                _ => State::Closed,
            };
        }
        if report.state == State::Open && self.archive.is_some() && self.is_overdue(day) {
            if self.waits_to_be_closed(day).await? {
                report.state = State::Due;
            } else {
                let sentence = text!("the day has events and was never closed").to_owned();
                findings.push(on_day(None, "not_closed", sentence));
            }
        }
        let mut verified = stream::iter(keys)
            .map(async |key| {
                let head = heads.get(&key).copied().unwrap_or(Head::START);
                let records = self.table.chain(&key, day).await?;
                let afterwards = self.table.head(&key, day).await?;
                let of_chain = witnesses.of_chain(&key);
                let faults = audit_chain::verify(&records, head, afterwards, &of_chain);
                anyhow::Ok((key, records.len(), faults))
            })
            .buffered(CHAINS_AT_ONCE);
        while let Some((key, events, faults)) = verified.try_next().await? {
            report.events += events;
            for fault in faults {
                let (word, sentence) = of_chain(&fault);
                findings.push(on_day(Some(key.clone()), word, sentence));
            }
        }
        Ok(report)
    }

    /// Whether the next closing will find the day: it is marked as long as no root covers it.
    async fn waits_to_be_closed(&self, day: &str) -> anyhow::Result<bool> {
        let until_today = self.table.open_before(&self.now.day()).await?;
        Ok(until_today.iter().any(|chain| chain.day == day))
    }

    /// Days are closed in the night after; a day later it should have worked.
    fn is_overdue(&self, day: &str) -> bool {
        day < self.now.plus_seconds(-SECONDS_PER_DAY).day().as_str()
    }
}

fn describe(report: &Report) -> String {
    let rows: Vec<_> = report
        .days
        .iter()
        .map(|day| {
            vec![
                day.day.clone(),
                state_name(day.state).to_owned(),
                day.closings.to_string(),
                day.chains.to_string(),
                day.events.to_string(),
            ]
        })
        .collect();
    let heading = [
        text!("DAY"),
        text!("STATE"),
        text!("CLOSINGS"),
        text!("CHAINS"),
        text!("EVENTS"),
    ];
    let days = table(&heading, &rows);
    if report.findings.is_empty() {
        return days;
    }
    let rows: Vec<_> = report
        .findings
        .iter()
        .map(|finding| {
            vec![
                finding.day.clone(),
                printable(finding.key.as_deref().unwrap_or("-")),
                finding.text.clone(),
            ]
        })
        .collect();
    let faults = table(&[text!("DAY"), text!("KEY"), text!("FAULT")], &rows);
    format!("{days}\n\n{faults}")
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Closed => text!("closed"),
        State::Open => text!("open"),
        State::Due => text!("closing due"),
        State::Expired => text!("expired"),
        State::Empty => text!("no events"),
    }
}

/// A stable word and a sentence.
fn of_root(fault: RootFault) -> (&'static str, String) {
    match fault {
        RootFault::Missing { closing } => (
            "root_missing",
            text!("the root of closing {closing} is missing", closing),
        ),
        RootFault::Altered { closing } => (
            "root_altered",
            text!("the root of closing {closing} was altered", closing),
        ),
    }
}

/// A stable word and a sentence. Identifiers of events may be an intruder's.
fn of_chain(fault: &Fault) -> (&'static str, String) {
    match fault {
        Fault::Unlinked { event_id } => (
            "unlinked",
            text!(
                "event {event_id} has no place in the chain",
                event_id = printable(event_id)
            ),
        ),
        Fault::Altered { event_id, sequence } => (
            "altered",
            text!(
                "event {event_id} at place {sequence} was altered",
                event_id = printable(event_id),
                sequence
            ),
        ),
        Fault::Repeated { event_id, sequence } => (
            "repeated",
            text!(
                "event {event_id} stands at place {sequence}, which another event has",
                event_id = printable(event_id),
                sequence
            ),
        ),
        Fault::Missing { from, to } => (
            "missing",
            text!("the events at places {from} to {to} are missing", from, to),
        ),
        Fault::Detached { event_id, sequence } => (
            "detached",
            text!(
                "event {event_id} at place {sequence} does not follow the event before it",
                event_id = printable(event_id),
                sequence
            ),
        ),
        Fault::BehindHead {
            event_id,
            sequence,
            end,
        } => (
            "behind_head",
            text!(
                "event {event_id} at place {sequence} is behind the chain's end at {end}",
                event_id = printable(event_id),
                sequence,
                end
            ),
        ),
        Fault::HeadDiffers { sequence } => (
            "head_differs",
            text!(
                "the chain's head does not fit to the event at place {sequence}",
                sequence
            ),
        ),
        Fault::RootDiffers { closing, sequence } => (
            "root_differs",
            text!(
                "closing {closing} of the day saw another event at place {sequence}",
                closing,
                sequence
            ),
        ),
    }
}
