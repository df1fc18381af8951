//! What is measured of a request, out of its audit events.

use std::sync::atomic::{AtomicBool, Ordering};

use raglan_core::audit::{AuditEvent, Decision};
use raglan_core::tool::Tool;
use raglan_telemetry::metrics::{Group, Measurement, Unit};

/// Whether this process has answered nothing yet.
static COLD: AtomicBool = AtomicBool::new(true);

/// What is measured of one request's events, taken before they go to the trail.
#[derive(Debug, Default)]
pub struct MeasuredEvents {
    auth_failures: u64,
    limited_calls: u64,
    groups: Vec<Group>,
}

impl MeasuredEvents {
    /// Measures each event.
    #[must_use]
    pub fn of(events: &[AuditEvent]) -> Self {
        let mut measured = Self::default();
        for event in events {
            match event.decision {
                Decision::Unauthenticated => measured.auth_failures += 1,
                Decision::Limited => measured.limited_calls += 1,
                Decision::Allowed | Decision::Denied => {}
            }
            measured.groups.extend(of_event(event));
        }
        measured
    }
}

/// Measures one request: itself, and the events that it left.
#[must_use]
pub fn of_request(http_status: u16, duration_ms: u64, events: MeasuredEvents) -> Vec<Group> {
    let mut whole = vec![
        count("requests", 1),
        Measurement {
            name: "duration_ms",
            unit: Unit::Milliseconds,
            value: duration_ms,
        },
    ];
    if COLD.swap(false, Ordering::Relaxed) {
        whole.push(count("cold_starts", 1));
    }
    for (name, number) in [
        ("auth_failures", events.auth_failures),
        ("limited_calls", events.limited_calls),
    ] {
        if number > 0 {
            whole.push(count(name, number));
        }
    }
    let status = vec![("status", http_status.to_string())];
    let mut groups = vec![
        Group {
            measurements: whole,
            ..Group::default()
        },
        Group {
            dimensions: status,
            measurements: vec![count("responses", 1)],
            ..Group::default()
        },
    ];
    groups.extend(events.groups);
    groups
}

/// An event that the queue refused.
#[must_use]
pub fn of_audit_failure() -> Vec<Group> {
    vec![Group {
        measurements: vec![count("audit_failures", 1)],
        ..Group::default()
    }]
}

fn of_event(event: &AuditEvent) -> Vec<Group> {
    let mut groups = Vec::new();
    if let Some(tool) = &event.tool {
        // What callers invent must not become a dimension.
        let known = Tool::from_name(tool).map_or("other", Tool::name);
        groups.push(Group {
            dimensions: vec![
                ("tool", known.to_owned()),
                ("decision", event.decision.name().to_owned()),
            ],
            measurements: vec![
                count("tool_calls", 1),
                Measurement {
                    name: "tool_duration_ms",
                    unit: Unit::Milliseconds,
                    value: event.duration_ms,
                },
            ],
            properties: properties(event),
        });
    }
    for (rule, number) in &event.guard_findings {
        groups.push(Group {
            dimensions: vec![("rule", rule.clone())],
            measurements: vec![count("guard_findings", *number)],
            properties: properties(event),
        });
    }
    groups
}

/// What leads from a metric to the calls behind it, without being counted by it.
fn properties(event: &AuditEvent) -> Vec<(&'static str, String)> {
    let told = [
        ("request_id", Some(event.request_id.as_str())),
        ("trace_id", event.trace_id.as_deref()),
        ("key_id", event.key_id.as_deref()),
    ];
    let told = told.into_iter();
    told.filter_map(|(name, value)| Some((name, value?.to_owned())))
        .collect()
}

const fn count(name: &'static str, value: u64) -> Measurement {
    Measurement {
        name,
        unit: Unit::Count,
        value,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use raglan_core::audit::EventPhase;
    use raglan_core::clock::Timestamp;

    use super::*;

    fn event(tool: &str) -> AuditEvent {
        AuditEvent {
            schema_version: 1,
            event_id: "e".to_owned(),
            at: Timestamp::from_epoch_ms(0),
            request_id: "r".to_owned(),
            phase: EventPhase::Outcome,
            batch_element: None,
            trace_id: None,
            decision: Decision::Allowed,
            http_status: 200,
            method: Some("tools/call".to_owned()),
            tool: Some(tool.to_owned()),
            key_id: Some("k".to_owned()),
            key_fingerprint: None,
            owner: None,
            source_ip: None,
            user_agent: None,
            protocol_version: None,
            error_class: None,
            duration_ms: 7,
            parameters: None,
            params_bytes: None,
            knowledge_bases: Vec::new(),
            result_count: None,
            guard_findings: BTreeMap::from([("exfil_url".to_owned(), 2)]),
            cut: BTreeSet::new(),
            administration: None,
        }
    }

    #[test]
    fn guard_findings_are_counted_by_rule() {
        let groups = of_request(200, 7, MeasuredEvents::of(&[event("retrieve")]));
        let findings = groups
            .iter()
            .find(|group| group.measurements[0].name == "guard_findings");
        let findings = findings.unwrap();
        assert_eq!(findings.dimensions, [("rule", "exfil_url".to_owned())]);
        assert_eq!(findings.measurements[0].value, 2);
    }

    #[test]
    fn the_key_stands_beside_the_metric_and_is_none_of_its_dimensions() {
        let groups = of_request(200, 7, MeasuredEvents::of(&[event("ask")]));
        let of_tool = groups
            .iter()
            .find(|group| group.measurements[0].name == "tool_calls")
            .unwrap();
        assert!(of_tool.properties.contains(&("key_id", "k".to_owned())));
        for group in groups {
            assert!(group.dimensions.iter().all(|(_, value)| value != "k"));
        }
    }

    #[test]
    fn no_name_that_a_caller_invents_becomes_a_dimension() {
        let groups = of_request(200, 7, MeasuredEvents::of(&[event("rm -rf")]));
        for group in groups {
            assert!(group.dimensions.iter().all(|(_, value)| value != "rm -rf"));
        }
    }
}
