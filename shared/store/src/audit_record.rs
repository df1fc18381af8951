//! An audit event as it comes out of the queue and as it is stored.

use raglan_core::audit::AuditEvent;
use serde::Deserialize as _;
use serde_json::{Map, Value};

/// Largest record, in bytes of JSON: DynamoDB's limit for an item is 400 KB with all names and values,
/// and the record's place in its chain and its index keys come on top.
pub const MAX_RECORD_BYTES: usize = 390_000;

/// An event together with everything that its writer sent, so that fields of a newer writer are
/// stored although this version does not know them.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditRecord {
    event: AuditEvent,
    fields: Map<String, Value>,
    size_bytes: usize,
}

/// The text is not the JSON of an audit event that this version understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an audit event: {0}")]
pub struct NotAnAuditEvent(&'static str);

impl AuditRecord {
    /// Reads an event as it comes out of the queue. Unknown fields are kept. An event that lacks a
    /// known field, gives it another meaning, or is too large to be stored, is refused.
    ///
    /// # Errors
    /// [`NotAnAuditEvent`].
    pub fn parse(body: &str) -> Result<Self, NotAnAuditEvent> {
        if body.len() > MAX_RECORD_BYTES {
            return Err(NotAnAuditEvent("larger than what can be stored"));
        }
        let fields =
            serde_json::from_str(body).map_err(|_| NotAnAuditEvent("not a JSON object"))?;
        let mut record = Self::of_fields(fields)?;
        record.size_bytes = body.len();
        Ok(record)
    }

    /// An event out of its fields, whether they come from a queue, a table or a log.
    ///
    /// # Errors
    /// [`NotAnAuditEvent`].
    pub fn of_fields(fields: Map<String, Value>) -> Result<Self, NotAnAuditEvent> {
        let fields = Value::Object(fields);
        let event = AuditEvent::deserialize(&fields)
            .map_err(|_| NotAnAuditEvent("a field is missing or of an unexpected kind"))?;
        if event.event_id.is_empty() {
            return Err(NotAnAuditEvent("the event's identifier is empty"));
        }
        let Value::Object(fields) = fields else {
            return Err(NotAnAuditEvent("not a JSON object"));
        };
        Ok(Self {
            event,
            fields,
            size_bytes: 0,
        })
    }

    /// The part that this version knows.
    #[must_use]
    pub const fn event(&self) -> &AuditEvent {
        &self.event
    }

    /// The same, without the rest.
    #[must_use]
    pub fn into_event(self) -> AuditEvent {
        self.event
    }

    /// Everything that was sent, and, for a record out of the table, stored with it.
    #[must_use]
    pub const fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Size of the message that it came in; 0 for one that came another way.
    pub(crate) const fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::audit_event;

    #[test]
    fn what_is_no_event_is_refused() {
        for body in ["", "null", "[]", "{}", r#"{"event_id":"x"}"#, "{"] {
            assert!(AuditRecord::parse(body).is_err(), "{body}");
        }
        let mut event = serde_json::to_value(audit_event("x")).unwrap();
        event["event_id"] = "".into();
        assert!(AuditRecord::parse(&event.to_string()).is_err());
        event["event_id"] = "x".into();
        event["parameters"] = "x".repeat(MAX_RECORD_BYTES).into();
        assert!(AuditRecord::parse(&event.to_string()).is_err());
    }

    #[test]
    fn fields_that_are_not_known_are_kept() {
        let mut json = serde_json::to_value(audit_event("event-1")).unwrap();
        json["cost"] = serde_json::json!({"tokens": 12});
        let record = AuditRecord::parse(&json.to_string()).unwrap();
        assert_eq!(record.event(), &audit_event("event-1"));
        assert_eq!(record.fields()["cost"]["tokens"], 12);
    }

    proptest! {
        #[test]
        fn no_message_makes_the_parser_panic(body in ".*") {
            let _ = AuditRecord::parse(&body);
        }
    }
}
