//! What is measured, and where it goes: on Lambda to [`StandardOutput`], elsewhere to whatever the
//! process has [`install`]ed. Dimensions are few and bounded: they are what one pays for.

use std::io::Write as _;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};

/// The namespace of every metric.
pub const NAMESPACE: &str = "raglan";
/// The name of this dimension in AWS's own metrics of Lambda.
const FUNCTION_NAME: &str = "FunctionName";

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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Names and values; each set of names is a metric of its own.
    pub dimensions: Vec<(&'static str, String)>,
    /// The measurements.
    pub measurements: Vec<Measurement>,
    /// What is written beside them and may take any number of values: it can be searched for in the
    /// log, and no metric is made of it.
    pub properties: Vec<(&'static str, String)>,
}

/// Where measurements go.
pub trait Recorder: Send + Sync {
    /// Takes what was measured at `epoch_ms`. It must not fail and must not wait.
    fn record(&self, groups: &[Group], epoch_ms: i64);
}

static RECORDER: OnceLock<Box<dyn Recorder>> = OnceLock::new();

/// Says where this process's measurements go. The first one stays; without one they go nowhere.
pub fn install(recorder: Box<dyn Recorder>) {
    let _ = RECORDER.set(recorder);
}

/// Hands the groups to the process's recorder.
pub fn write(groups: &[Group], epoch_ms: i64) {
    if let Some(recorder) = RECORDER.get() {
        recorder.record(groups, epoch_ms);
    }
}

/// CloudWatch embedded metric format: JSON lines on standard output, which Lambda hands to CloudWatch
/// without a network call of ours (Amazon CloudWatch User Guide, "Specification: Embedded metric
/// format").
#[derive(Debug, Clone)]
pub struct StandardOutput {
    /// A dimension of every metric, as of Lambda's own ones: several deployments may share an account.
    pub function_name: String,
}

impl Recorder for StandardOutput {
    /// A closed output is no failure of the request.
    fn record(&self, groups: &[Group], epoch_ms: i64) {
        let mut text = String::new();
        for group in groups.iter().filter(|group| !group.measurements.is_empty()) {
            text.push_str(&line(group, &self.function_name, epoch_ms).to_string());
            text.push('\n');
        }
        let _ = std::io::stdout().lock().write_all(text.as_bytes());
    }
}

/// The line of one group. `epoch_ms` is when it was measured.
fn line(group: &Group, function_name: &str, epoch_ms: i64) -> Value {
    let mut names = vec![FUNCTION_NAME];
    names.extend(group.dimensions.iter().map(|(name, _)| *name));
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
    line.insert(FUNCTION_NAME.to_owned(), function_name.into());
    for (name, value) in group.dimensions.iter().chain(&group.properties) {
        line.insert((*name).to_owned(), value.as_str().into());
    }
    for measured in &group.measurements {
        line.insert(measured.name.to_owned(), measured.value.into());
    }
    Value::Object(line)
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
            properties: vec![("key_id", "key-1".to_owned())],
        };
        insta::assert_snapshot!(line(&group, "mcp", 1_800_000_000_000), @r#"{"_aws":{"Timestamp":1800000000000,"CloudWatchMetrics":[{"Namespace":"raglan","Dimensions":[["FunctionName","tool","decision"]],"Metrics":[{"Name":"tool_calls","Unit":"Count"},{"Name":"tool_duration_ms","Unit":"Milliseconds"}]}]},"FunctionName":"mcp","tool":"retrieve","decision":"allowed","key_id":"key-1","tool_calls":1,"tool_duration_ms":12}"#);
    }
}
