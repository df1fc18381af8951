//! `raglan audit recover`: events that the function could only write into its log go to the queue after
//! all. The table stores an event once, however often it is sent.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use raglan_store::{AuditQueue, AuditRecord, StoreError};
use serde::Serialize;
use serde_json::{Map, Value};

use super::arguments::RecoverArguments;
use crate::Outcome;
use crate::language::text;
use crate::session::Session;
use crate::terminal::labelled;

/// The field and the value by which the function marks such a log entry.
const MARKER: (&str, &str) = ("marker", "AUDIT_NOT_SENT");
/// The field that holds the event as JSON text.
const EVENT: &str = "event";
/// A longer line is none of the function's: an event has at most 200 KB, and twice escaped it is
/// at most four times as long.
const LINE_MAX_BYTES: u64 = 1_048_576;
/// How often an event is sent before the command gives up, and the pause before the second time.
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// What became of the lines. The fields are stable: scripts read them.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Count {
    /// Events that are on the queue now.
    sent: u64,
    /// Events that were in the log more than once.
    repeated: u64,
    /// Lines without an event.
    other_lines: u64,
    /// Lines that are marked and hold no event.
    unreadable: u64,
}

pub(super) async fn recover(
    session: &mut Session<'_>,
    arguments: &RecoverArguments,
) -> anyhow::Result<Outcome> {
    let queue = session.target.audit_queue()?;
    let mut count = Count::default();
    let mut sent = BTreeSet::new();
    let failure = {
        let mut file;
        let input: &mut dyn BufRead = if arguments.file == Path::new("-") {
            &mut session.console.input
        } else {
            let path = &arguments.file;
            let opened = File::open(path);
            let cannot = || text!("{file} cannot be read", file = path.display());
            file = BufReader::new(opened.with_context(cannot)?);
            &mut file
        };
        send_all(&queue, input, &mut sent, &mut count).await.err()
    };
    session.show(&count, || {
        labelled(&[
            (text!("sent"), count.sent.to_string()),
            (text!("repeated"), count.repeated.to_string()),
            (text!("other lines"), count.other_lines.to_string()),
            (text!("unreadable"), count.unreadable.to_string()),
        ])
    })?;
    if let Some(failure) = failure {
        session.console.note(text!(
            "Not all of it was read: run it again, an event that is sent twice is stored once."
        ));
        return Err(failure);
    }
    if count.unreadable > 0 {
        session.console.note(text!(
            "{count} marked lines hold no event of ours: was the log cut?",
            count = count.unreadable
        ));
        return Ok(Outcome::Incomplete);
    }
    Ok(Outcome::Done)
}

async fn send_all(
    queue: &AuditQueue,
    input: &mut dyn BufRead,
    sent: &mut BTreeSet<String>,
    count: &mut Count,
) -> anyhow::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut *input)
            .take(LINE_MAX_BYTES)
            .read_until(b'\n', &mut line);
        if read.with_context(|| text!("the log cannot be read").to_owned())? == 0 {
            return Ok(());
        }
        match found_in(&String::from_utf8_lossy(&line)) {
            Found::Nothing => count.other_lines += 1,
            Found::Unreadable => count.unreadable += 1,
            // Pages of the table go by the time in the identifier: another one would never be found.
            Found::Event(record) if !is_time_sortable(&record.event().event_id) => {
                count.unreadable += 1;
            }
            Found::Event(record) if sent.contains(&record.event().event_id) => count.repeated += 1,
            Found::Event(record) => {
                send(queue, &record).await?;
                sent.insert(record.event().event_id.clone());
                count.sent += 1;
            }
        }
    }
}

/// Whether it is a UUID of version 7 (RFC 9562 §5.7), as all our identifiers of events are.
fn is_time_sortable(event_id: &str) -> bool {
    let parts: Vec<&str> = event_id.split('-').collect();
    let is_hexadecimal = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.iter().all(is_hexadecimal)
        && parts.get(2).is_some_and(|part| part.starts_with('7'))
}

async fn send(queue: &AuditQueue, record: &AuditRecord) -> Result<(), StoreError> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..ATTEMPTS {
        match queue.send_record(record).await {
            Err(error) if error.is_transient() => tokio::time::sleep(pause).await,
            settled => return settled,
        }
        pause *= 2;
    }
    queue.send_record(record).await
}

#[derive(Debug, PartialEq)]
enum Found {
    Nothing,
    Unreadable,
    Event(Box<AuditRecord>),
}

/// Finds the event in a line of a log: an entry of the function's, whatever stands before and behind it;
/// such an entry as a JSON text, as the AWS command line prints it; or an event by itself, as `raglan key`
/// shows it when it cannot send it.
fn found_in(line: &str) -> Found {
    let line = line.trim();
    let entry = object_in(line).or_else(|| {
        let quoted = line.find('"').map(|_| {
            let value = line.strip_prefix("\"message\":").unwrap_or(line).trim();
            value.trim_end_matches(',')
        })?;
        let text: String = serde_json::from_str(quoted).ok()?;
        object_in(text.trim())
    });
    match entry {
        Some(entry) => found_in_entry(entry),
        // Cut in the middle.
        None if line.contains(MARKER.1) => Found::Unreadable,
        None => Found::Nothing,
    }
}

fn found_in_entry(mut entry: Map<String, Value>) -> Found {
    if entry.get(MARKER.0).and_then(Value::as_str) == Some(MARKER.1) {
        let record = match entry.remove(EVENT) {
            Some(Value::String(text)) => AuditRecord::parse(&text).ok(),
            Some(Value::Object(fields)) => AuditRecord::of_fields(fields).ok(),
            _ => None,
        };
        return record.map_or(Found::Unreadable, |record| Found::Event(Box::new(record)));
    }
    if let Some(Value::String(message)) = entry.get("message")
        && let Some(inner) = object_in(message.trim())
    {
        return found_in_entry(inner);
    }
    // `Failed` and intents as well: whatever has the form of an event.
    AuditRecord::of_fields(entry).map_or(Found::Nothing, |record| Found::Event(Box::new(record)))
}

/// The first JSON object in the text, as long as only a time or a stream's name stands before it.
fn object_in(text: &str) -> Option<Map<String, Value>> {
    let begin = text.find('{')?;
    if text[..begin].contains('"') {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(&text[begin..]).into_iter();
    values.next()?.ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn event() -> Value {
        json!({
            "schema_version": 2, "event_id": "e1", "at": "2026-11-30T08:15:00.000Z",
            "request_id": "r", "decision": "allowed", "http_status": 200, "duration_ms": 3,
            "parameters": "{\"query\":\"a \\\"b\\\"\"}", "unknown": {"kept": [1]},
        })
    }

    fn entry() -> Value {
        json!({
            "timestamp": "2026-11-30T08:15:00.000000Z", "level": "ERROR",
            "message": "the audit queue refused an event", "marker": "AUDIT_NOT_SENT",
            "error": "throttled", "event": event().to_string(),
        })
    }

    fn fields(found: Found) -> Value {
        match found {
            Found::Event(record) => Value::Object(record.fields().clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_event_is_found_in_every_form_of_the_log() {
        let entry = entry();
        let message = Value::from(entry.to_string()).to_string();
        for line in [
            entry.to_string(),
            format!("2026-11-30T08:15:00.000Z {entry}"),
            format!("2026-11-30T08:15:00+00:00 2026/11/30/[$LATEST]0a1b {entry}\r"),
            format!("  \"message\": {message},"),
            message.clone(),
            format!("{{\"timestamp\":1,\"message\":{message}}}"),
            event().to_string(),
        ] {
            assert_eq!(fields(found_in(&line)), event(), "{line}");
        }
    }

    #[test]
    fn other_lines_are_told_from_those_that_were_cut() {
        let call = json!({"level": "INFO", "message": "call", "tool": "retrieve"});
        for line in [
            "",
            "START RequestId: 1",
            "{",
            "\"",
            "[{}]",
            &call.to_string(),
        ] {
            assert_eq!(found_in(line), Found::Nothing, "{line}");
        }
        let entry = entry().to_string();
        let no_event = json!({"marker": "AUDIT_NOT_SENT", "event": "{}"});
        for line in [&entry[..entry.len() - 9], &no_event.to_string()] {
            assert_eq!(found_in(line), Found::Unreadable, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_the_parser_panic(line in ".*", at in 0_usize..2_000) {
            let _ = found_in(&line);
            let entry = entry().to_string();
            let _ = found_in(&entry[..entry.floor_char_boundary(at)]);
        }
    }
}
