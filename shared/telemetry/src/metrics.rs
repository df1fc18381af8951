//! Metrics as CloudWatch embedded metric format: JSON lines on standard output, which Lambda hands to
//! CloudWatch without a network call of ours (Amazon CloudWatch User Guide, "Specification: Embedded
//! metric format"). Dimensions are few and bounded: they are what one pays for.

use std::io::Write as _;

use serde_json::{Map, Value, json};

/// The namespace of every metric.
pub const NAMESPACE: &str = "raglan";

/// A unit of CloudWatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Milliseconds.
    Milliseconds,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Milliseconds => "Milliseconds",
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measurement {
    /// What is measured, in `snake_case`, with its unit where it has one.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// How much.
    pub value: u64,
}

/// Measurements that share their dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Names and values; each set of names is a metric of its own.
    pub dimensions: Vec<(&'static str, String)>,
    /// The measurements.
    pub measurements: Vec<Measurement>,
}

/// The line of one group. `epoch_ms` is when it was measured.
#[must_use]
pub fn line(group: &Group, epoch_ms: i64) -> Value {
    let names: Vec<&str> = group.dimensions.iter().map(|(name, _)| *name).collect();
    let metrics: Vec<Value> = group
        .measurements
        .iter()
        .map(|measured| json!({ "Name": measured.name, "Unit": measured.unit.name() }))
        .collect();
    let mut line = Map::new();
    line.insert(
        "_aws".to_owned(),
        json!({
            "Timestamp": epoch_ms,
            "CloudWatchMetrics": [
                { "Namespace": NAMESPACE, "Dimensions": [names], "Metrics": metrics }
            ]
        }),
    );
    for (name, value) in &group.dimensions {
        line.insert((*name).to_owned(), value.as_str().into());
    }
    for measured in &group.measurements {
        line.insert(measured.name.to_owned(), measured.value.into());
    }
    Value::Object(line)
}

/// Writes the groups to standard output. A closed output is no failure of the request.
pub fn write(groups: &[Group], epoch_ms: i64) {
    let mut text = String::new();
    for group in groups.iter().filter(|group| !group.measurements.is_empty()) {
        text.push_str(&line(group, epoch_ms).to_string());
        text.push('\n');
    }
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_form_that_cloudwatch_reads() {
        let group = Group {
            dimensions: vec![
                ("tool", "retrieve".to_owned()),
                ("decision", "allowed".to_owned()),
            ],
            measurements: vec![
                Measurement {
                    name: "tool_calls",
                    unit: Unit::Count,
                    value: 1,
                },
                Measurement {
                    name: "tool_duration_ms",
                    unit: Unit::Milliseconds,
                    value: 12,
                },
            ],
        };
        insta::assert_snapshot!(line(&group, 1_800_000_000_000), @r#"{"_aws":{"Timestamp":1800000000000,"CloudWatchMetrics":[{"Namespace":"raglan","Dimensions":[["tool","decision"]],"Metrics":[{"Name":"tool_calls","Unit":"Count"},{"Name":"tool_duration_ms","Unit":"Milliseconds"}]}]},"tool":"retrieve","decision":"allowed","tool_calls":1,"tool_duration_ms":12}"#);
    }
}
