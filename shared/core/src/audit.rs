//! The audit event: who asked what, with which key, and what was decided; and who changed what about
//! keys and knowledge bases.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

pub mod privacy;

/// The version of the event's schema, `docs/audit-event.schema.json`; it rises when a field changes its
/// meaning or goes away. Version 2 added [`EventPhase`]: before, every event was an outcome.
pub const SCHEMA_VERSION: u32 = 2;

/// Largest event as JSON, in bytes. It fits SQS (1 MiB), a DynamoDB item (400 KB) with what the table
/// adds, and, escaped once more, one entry of CloudWatch Logs (1 MB).
pub const MAX_EVENT_BYTES: usize = 200_000;

/// So many knowledge bases are named in an event.
pub const MAX_KNOWLEDGE_BASES: usize = 500;

/// How long events are kept, when nothing else is configured.
pub const DEFAULT_RETENTION_DAYS: u32 = 400;

/// Parameters are cut after this many characters, when nothing else is configured.
pub const DEFAULT_PARAMETERS_MAX_CHARS: usize = 2_000;

/// Free text from a caller's headers is cut after this many characters.
pub const HEADER_MAX_CHARS: usize = 256;

/// What was decided about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call was let through (whatever came of it).
    Allowed,
    /// The key is good, but may not do this.
    Denied,
    /// There is no good key.
    Unauthenticated,
    /// The key asks too much.
    Limited,
}

impl Decision {
    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Unauthenticated => "unauthenticated",
            Self::Limited => "limited",
        }
    }
}

/// Which part of a decision an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventPhase {
    /// The call is about to be made. An intent without an outcome is a call that may have been made.
    Intent,
    /// The call was answered, or refused.
    #[default]
    Outcome,
}

impl EventPhase {
    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Outcome => "outcome",
        }
    }
}

/// A change that an operator makes with the command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Administration {
    /// What is done: `key.create`, `key.rotate`, `knowledge_base.move`, …
    pub action: String,
    /// Who does it: the ARN that STS names, or `local:<user>` for the system of `raglan dev`.
    pub operator: String,
    /// What it is done to: a key's identifier, or `kb:` and a knowledge base's.
    pub subject: String,
    /// How far it is.
    pub phase: Phase,
}

/// A change is written down before it is made and again afterwards, both times with the same
/// `request_id`. An intent without an outcome is a change that may have been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It is about to be made.
    Intent,
    /// It was made.
    Done,
    /// It was not made; `error_class` says why.
    Failed,
}

impl Phase {
    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// One decision, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEvent {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Identifier, UUID version 7: text order is time order.
    pub event_id: String,
    /// When the request came.
    pub at: Timestamp,
    /// The request's id, as the caller was told it. It joins intents and outcomes.
    pub request_id: String,
    /// Intent or outcome. Events before version 2 are outcomes.
    #[serde(default)]
    pub phase: EventPhase,
    /// For an element of a batch: its place in it, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_element: Option<u32>,
    /// The trace that the request belongs to (W3C Trace Context), 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The decision.
    pub decision: Decision,
    /// HTTP status of the answer; 0 for an intent, and for a change by the command line, which nobody
    /// asked over HTTP.
    pub http_status: u16,
    /// The MCP method, as far as the request could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The tool that was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The key's id; absent when the key is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// For a key that is not good: the beginning of its hash. Never the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_fingerprint: Option<String>,
    /// The key's owner; absent for system keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The address that the request came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ip: Option<String>,
    /// The caller's `User-Agent`, cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// The MCP revision that the request named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// What went wrong, one stable word: `invalid_arguments`, `backend_unavailable`, `key_expired`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_class: Option<String>,
    /// From the request's arrival to the answer.
    pub duration_ms: u64,
    /// The call's arguments as JSON text, as [`privacy`] keeps them. For a change by the command line
    /// what it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<String>,
    /// Size of the arguments as JSON, before anything was hidden or cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_bytes: Option<u64>,
    /// The knowledge bases that were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knowledge_bases: Vec<String>,
    /// Number of items in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_count: Option<u64>,
    /// What the guard found, by rule.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub guard_findings: BTreeMap<String, u64>,
    /// The fields that hold less than there was: `parameters`, `knowledge_bases`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub cut: BTreeSet<String>,
    /// Only for a change by the command line: who changes what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub administration: Option<Administration>,
}

impl AuditEvent {
    /// The partition under which the event is stored: the key (or its fingerprint, or what else an
    /// operator changed) and the day.
    #[must_use]
    pub fn partition(&self) -> String {
        let key = self
            .key_id
            .as_deref()
            .or(self.key_fingerprint.as_deref())
            .or(self
                .administration
                .as_ref()
                .map(|change| change.subject.as_str()))
            .unwrap_or("none");
        format!("{key}#{}", self.at.day())
    }

    /// The event, so that it is at most [`MAX_EVENT_BYTES`] long: everything else in it is bounded where
    /// it comes from.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if self.knowledge_bases.len() > MAX_KNOWLEDGE_BASES {
            self.knowledge_bases.truncate(MAX_KNOWLEDGE_BASES);
            self.cut.insert("knowledge_bases".to_owned());
        }
        if self.most_bytes() <= MAX_EVENT_BYTES {
            return self;
        }
        let size_bytes = serde_json::to_vec(&self).map_or(0, |json| json.len());
        if let (Some(excess), Some(text)) =
            (size_bytes.checked_sub(MAX_EVENT_BYTES), &self.parameters)
            && excess > 0
        {
            // A byte of the text is at least a byte of the event.
            let room = text.len().saturating_sub(excess + CUT_MARK_BYTES);
            let kept = text.floor_char_boundary(room);
            self.parameters = Some(format!("{}…", &text[..kept]));
            self.cut.insert("parameters".to_owned());
        }
        self
    }

    /// At least as many bytes as the event has as JSON, without writing it: of a usual event that is
    /// enough to know that it fits.
    fn most_bytes(&self) -> usize {
        // Every field is named, so that a new one is not forgotten.
        let Self {
            schema_version: _,
            event_id,
            at: _,
            request_id,
            phase: _,
            batch_element: _,
            trace_id,
            decision: _,
            http_status: _,
            method,
            tool,
            key_id,
            key_fingerprint,
            owner,
            source_ip,
            user_agent,
            protocol_version,
            error_class,
            duration_ms: _,
            parameters,
            params_bytes: _,
            knowledge_bases,
            result_count: _,
            guard_findings,
            cut,
            administration,
        } = self;
        let optional = [
            trace_id,
            method,
            tool,
            key_id,
            key_fingerprint,
            owner,
            source_ip,
            user_agent,
            protocol_version,
            error_class,
            parameters,
        ];
        let changed = administration
            .iter()
            .flat_map(|change| [&change.action, &change.operator, &change.subject]);
        let texts = [event_id, request_id]
            .into_iter()
            .chain(optional.into_iter().flatten())
            .chain(changed);
        let listed = knowledge_bases
            .iter()
            .chain(guard_findings.keys())
            .chain(cut);
        let texts = texts.map(|text| text.len() * ESCAPE_BYTES);
        let listed = listed.map(|text| text.len() * ESCAPE_BYTES + LISTED_BYTES);
        FIELDS_BYTES + texts.chain(listed).sum::<usize>()
    }
}

/// The longest escape of one byte of a text in JSON (`\u001f`).
const ESCAPE_BYTES: usize = 6;
/// What stands around an element of a list or a map: quotes, comma, colon, and a number of 64 bits.
const LISTED_BYTES: usize = 24;
/// More than the names of all fields, their quotes, and all values that are no texts.
const FIELDS_BYTES: usize = 2_000;

/// Room for the ellipsis and for the mention in [`AuditEvent::cut`].
const CUT_MARK_BYTES: usize = 40;

/// The first `max_chars` characters, never half of one; what was cut ends in `…`.
#[must_use]
pub fn cut_at_characters(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn smallest() -> AuditEvent {
        let json = serde_json::json!({
            "schema_version": 1, "event_id": "e", "at": "2026-11-30T08:15:00.000Z",
            "request_id": "r", "decision": "allowed", "http_status": 200, "duration_ms": 3,
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn an_event_of_version_1_is_an_outcome() {
        assert_eq!(smallest().phase, EventPhase::Outcome);
        for phase in [EventPhase::Intent, EventPhase::Outcome] {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.name());
        }
    }

    #[test]
    fn an_event_of_usual_size_is_not_cut() {
        let event = AuditEvent {
            parameters: Some("x".repeat(MAX_EVENT_BYTES / 2)),
            knowledge_bases: vec!["kb".to_owned(); MAX_KNOWLEDGE_BASES],
            ..smallest()
        };
        assert_eq!(event.clone().bounded(), event);
    }

    #[test]
    fn more_knowledge_bases_than_fit_are_left_out_and_marked() {
        let event = AuditEvent {
            knowledge_bases: vec!["k".repeat(64); MAX_KNOWLEDGE_BASES + 1],
            ..smallest()
        };
        let event = event.bounded();
        assert_eq!(event.knowledge_bases.len(), MAX_KNOWLEDGE_BASES);
        assert_eq!(event.cut, BTreeSet::from(["knowledge_bases".to_owned()]));
    }

    #[test]
    fn text_is_cut_between_characters_and_marked() {
        assert_eq!(cut_at_characters("知识库", 3), "知识库");
        assert_eq!(cut_at_characters("知识库", 2), "知识…");
        assert_eq!(cut_at_characters("", 0), "");
        assert_eq!(cut_at_characters("a", 0), "…");
    }

    #[test]
    fn a_change_is_found_under_what_was_changed_and_older_events_have_none() {
        let call = serde_json::json!({
            "schema_version": 1, "event_id": "e", "at": "2026-11-30T08:15:00.000Z",
            "request_id": "r", "decision": "allowed", "http_status": 200, "duration_ms": 3,
        });
        let read = |event: &serde_json::Value| serde_json::from_value::<AuditEvent>(event.clone());
        assert_eq!(read(&call).unwrap().administration, None);
        assert_eq!(read(&call).unwrap().partition(), "none#2026-11-30");

        let mut change = call;
        change["administration"] = serde_json::json!({
            "action": "knowledge_base.move", "operator": "local:anna", "subject": "kb:handbook",
            "phase": "intent",
        });
        let event = read(&change).unwrap();
        assert_eq!(event.partition(), "kb:handbook#2026-11-30");
        change["phase"] = "outcome".into();
        assert_eq!(serde_json::to_value(&event).unwrap(), change);
        change["key_id"] = "key-1".into();
        assert_eq!(read(&change).unwrap().partition(), "key-1#2026-11-30");
    }

    #[test]
    fn phases_have_one_name() {
        for phase in [Phase::Intent, Phase::Done, Phase::Failed] {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.name());
        }
    }

    #[test]
    fn decisions_have_one_name() {
        for decision in [
            Decision::Allowed,
            Decision::Denied,
            Decision::Unauthenticated,
            Decision::Limited,
        ] {
            assert_eq!(serde_json::to_value(decision).unwrap(), decision.name());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn whatever_is_in_an_event_it_fits_and_what_was_cut_is_marked(
            part in any::<String>(), bytes in 0_usize..600_000, count in 0_usize..1_200,
        ) {
            let text = part.repeat(bytes / part.len().max(1));
            let event = AuditEvent {
                parameters: Some(text.clone()),
                knowledge_bases: vec!["k".repeat(64); count],
                ..smallest()
            };
            let event_bytes = serde_json::to_vec(&event).unwrap().len();
            prop_assert!(event_bytes <= event.most_bytes());
            let event = event.bounded();
            prop_assert!(serde_json::to_vec(&event).unwrap().len() <= MAX_EVENT_BYTES);
            let kept = event.parameters.unwrap();
            prop_assert_eq!(kept != text, event.cut.contains("parameters"));
            prop_assert!(text.starts_with(kept.strip_suffix('…').unwrap_or(&kept)));
        }
    }

    proptest! {
        #[test]
        fn no_text_is_longer_than_the_limit_and_its_mark(text in ".*", max in 0_usize..50) {
            let cut = cut_at_characters(&text, max);
            prop_assert!(cut.chars().count() <= max + 1);
            prop_assert!(text.starts_with(cut.trim_end_matches('…')) || text.contains('…'));
        }
    }
}
