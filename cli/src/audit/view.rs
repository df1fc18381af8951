//! How an event is shown: a row for people, one line of JSON or CSV for programs.

use raglan_core::audit::{AuditEvent, EventPhase};
use raglan_core::audit_chain::{HASH, SEQUENCE};
use raglan_store::AuditRecord;
use raglan_store::audit_table::STORAGE_ATTRIBUTES;
use serde_json::{Map, Value};
use unicode_width::UnicodeWidthStr as _;

use super::csv;
use crate::language::text;

/// Longest text in a cell of a row, in characters.
const CELL_MAX_CHARS: usize = 40;
/// Widths of the columns of a row before the last one, which is as wide as it is.
const WIDTHS: [usize; 6] = [23, 15, 6, 22, 17, 5];

/// The heading of the rows.
#[must_use]
pub fn heading() -> String {
    row([
        text!("TIME (UTC)"),
        text!("DECISION"),
        text!("STATUS"),
        text!("WHAT"),
        text!("KEY"),
        text!("MS"),
        text!("RESULT"),
    ])
}

/// An event in one line for people. What callers invented cannot control the terminal.
#[must_use]
pub fn line(event: &AuditEvent) -> String {
    let time = event.at.to_string().replace('T', " ");
    let change = event.administration.as_ref();
    let what = event
        .tool
        .as_deref()
        .or(event.method.as_deref())
        .or(change.map(|change| change.action.as_str()));
    let key = event
        .key_id
        .as_deref()
        .or(event.key_fingerprint.as_deref())
        .or(change.map(|change| change.subject.as_str()));
    row([
        time.trim_end_matches('Z'),
        event.decision.name(),
        &event.http_status.to_string(),
        &printable(what.unwrap_or("-")),
        &printable(key.unwrap_or("-")),
        &event.duration_ms.to_string(),
        &printable(&result(event)),
    ])
}

fn result(event: &AuditEvent) -> String {
    // What a strict trail says before a call; the outcome has an event of its own.
    if event.administration.is_none() && event.phase == EventPhase::Intent {
        return text!("intent").to_owned();
    }
    match (
        &event.administration,
        &event.error_class,
        event.result_count,
    ) {
        (Some(change), _, _) => text!(
            "{phase} by {operator}",
            phase = change.phase.name(),
            operator = change.operator
        ),
        (None, Some(class), _) => class.clone(),
        (None, None, Some(count)) => text!("{count} items", count),
        (None, None, None) => String::new(),
    }
}

fn row(cells: [&str; 7]) -> String {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(WIDTHS) {
        line.push_str(cell);
        line.push_str(&" ".repeat(width.saturating_sub(cell.width()) + 2));
    }
    line.push_str(cells[6]);
    line.trim_end().to_owned()
}

/// Without anything that a terminal would obey, and cut.
pub(super) fn printable(text: &str) -> String {
    let shown = text.chars().take(CELL_MAX_CHARS).map(|character| {
        // Besides control characters those that turn the direction of writing.
        let is_safe = !character.is_control()
            && !matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if is_safe { character } else { '\u{fffd}' }
    });
    let mut shown: String = shown.collect();
    if text.chars().nth(CELL_MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// The event as it was sent, with its place in the chain, on one line.
pub(super) fn json(record: &AuditRecord) -> String {
    let mut fields = record.fields().clone();
    for name in STORAGE_ATTRIBUTES {
        fields.remove(name);
    }
    in_order(fields).to_string()
}

/// Everything that is stored, on one line: what the hash of the record is computed of.
pub(super) fn stored_json(record: &AuditRecord) -> String {
    in_order(record.fields().clone()).to_string()
}

/// A table keeps no order of attributes; the same event is always the same line.
fn in_order(fields: Map<String, Value>) -> Value {
    let mut event = Value::Object(fields);
    event.sort_all_objects();
    event
}

/// The columns of CSV; new ones come at the end.
const COLUMNS: [&str; 28] = [
    "at",
    "event_id",
    "phase",
    "decision",
    "http_status",
    "method",
    "tool",
    "key_id",
    "key_fingerprint",
    "owner",
    "error_class",
    "duration_ms",
    "result_count",
    "knowledge_bases",
    "parameters",
    "params_bytes",
    "guard_findings",
    "cut",
    "source_ip",
    "user_agent",
    "protocol_version",
    "request_id",
    "batch_element",
    "trace_id",
    "administration",
    "schema_version",
    SEQUENCE,
    HASH,
];

/// The first line of CSV.
pub(super) fn csv_heading() -> String {
    csv::row(COLUMNS.map(ToOwned::to_owned))
}

/// An event as CSV. Lists and objects are JSON in their cells.
pub(super) fn csv_row(record: &AuditRecord) -> String {
    let cells = COLUMNS.map(|column| match record.fields().get(column) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    });
    csv::row(cells)
}

#[cfg(test)]
mod tests {
    use raglan_core::audit::EventPhase;
    use serde_json::json;

    use super::*;

    fn record(change: impl FnOnce(&mut Value)) -> AuditRecord {
        let mut event = json!({
            "schema_version": 2, "event_id": "e1", "at": "2026-11-30T08:15:00.000Z",
            "request_id": "r", "phase": "outcome", "decision": "allowed", "http_status": 200,
            "tool": "retrieve", "key_id": "key-1a2b3c4d5e6f", "duration_ms": 12, "result_count": 3,
            "knowledge_bases": ["a", "b"], "partition": "key-1#2026-11-30", "expires_at": 1,
            "chain_sequence": 7,
        });
        change(&mut event);
        AuditRecord::parse(&event.to_string()).unwrap()
    }

    #[test]
    fn a_line_has_what_was_asked_and_what_came_of_it() {
        let shown = line(record(|_| {}).event());
        assert_eq!(
            shown,
            "2026-11-30 08:15:00.000  allowed          200     retrieve                \
             key-1a2b3c4d5e6f   12     3 items"
        );
        let change = json!({"action": "key.revoke", "operator": "local:anna",
            "subject": "key-1", "phase": "done"});
        let shown = record(|event| event["administration"] = change);
        assert!(line(shown.event()).ends_with("done by local:anna"));
    }

    #[test]
    fn nothing_that_a_caller_invented_controls_the_terminal() {
        let shown = record(|event| event["tool"] = "\u{1b}[2Jretrieve\u{202e}\r\n".into());
        let shown = line(shown.event());
        assert!(!shown.chars().any(char::is_control), "{shown}");
        assert!(!shown.contains('\u{202e}'), "{shown}");
        let long = record(|event| event["tool"] = "x".repeat(5_000).into());
        assert!(line(long.event()).chars().count() < 200);
    }

    #[test]
    fn json_is_the_event_and_its_place_without_what_the_table_needs() {
        let record = record(|event| event["unknown"] = json!({"kept": true}));
        let shown: Value = serde_json::from_str(&json(&record)).unwrap();
        assert_eq!(shown["unknown"]["kept"], true);
        assert_eq!(shown["chain_sequence"], 7);
        assert!(shown.get("partition").is_none() && shown.get("expires_at").is_none());
        let stored: Value = serde_json::from_str(&stored_json(&record)).unwrap();
        assert_eq!(stored["partition"], "key-1#2026-11-30");
    }

    #[test]
    fn csv_has_a_cell_for_every_column() {
        let shown = csv_row(&record(|_| {}));
        let phase = EventPhase::Outcome.name();
        let begin = format!("2026-11-30T08:15:00.000Z,e1,{phase},allowed,200,,retrieve,");
        assert!(shown.starts_with(&begin), "{shown}");
        assert!(shown.contains("\"[\"\"a\"\",\"\"b\"\"]\""), "{shown}");
        let heading = csv_heading();
        assert_eq!(heading.matches(',').count(), COLUMNS.len() - 1);
    }

    /// A new field of the event needs a column, or it is missing in every report.
    #[test]
    fn every_field_of_an_event_has_a_column() {
        let schema = include_str!("../../../docs/audit-event.schema.json");
        let schema: Value = serde_json::from_str(schema).unwrap();
        for name in schema["properties"].as_object().unwrap().keys() {
            assert!(COLUMNS.contains(&name.as_str()), "{name}");
        }
    }
}
