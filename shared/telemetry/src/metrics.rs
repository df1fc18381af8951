//! What is measured, and where it goes: on Lambda to [`StandardOutput`], elsewhere to whatever the
//! process has [`install`]ed. Dimensions are few and bounded: they are what one pays for.

use std::io::Write as _;
use std::sync::OnceLock;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

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
        let mut lines = Vec::with_capacity(1024);
        for group in groups.iter().filter(|group| !group.measurements.is_empty()) {
            let line = Line {
                group,
                function_name: &self.function_name,
                epoch_ms,
            };
            if serde_json::to_writer(&mut lines, &line).is_ok() {
                lines.push(b'\n');
            }
        }
        let _ = std::io::stdout().lock().write_all(&lines);
    }
}

/// The line of one group. `epoch_ms` is when it was measured.
struct Line<'a> {
    group: &'a Group,
    function_name: &'a str,
    epoch_ms: i64,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Group {
            dimensions,
            measurements,
            properties,
        } = self.group;
        let mut names = vec![FUNCTION_NAME];
        names.extend(dimensions.iter().map(|(name, _)| *name));
        let metrics = measurements.iter().map(|measured| Definition {
            name: measured.name,
            unit: measured.unit.name(),
        });
        let metadata = Metadata {
            timestamp: self.epoch_ms,
            cloud_watch_metrics: [Directive {
                namespace: NAMESPACE,
                dimensions: [&names],
                metrics: metrics.collect(),
            }],
        };
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("_aws", &metadata)?;
        line.serialize_entry(FUNCTION_NAME, self.function_name)?;
        for (name, value) in dimensions.iter().chain(properties) {
            line.serialize_entry(name, value)?;
        }
        for measured in measurements {
            line.serialize_entry(measured.name, &measured.value)?;
        }
        line.end()
    }
}

/// Which of a line's members are metrics.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Metadata<'a> {
    timestamp: i64,
    cloud_watch_metrics: [Directive<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Directive<'a> {
    namespace: &'static str,
    dimensions: [&'a [&'static str]; 1],
    metrics: Vec<Definition>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Definition {
    name: &'static str,
    unit: &'static str,
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
        let line = Line {
            group: &group,
            function_name: "mcp",
            epoch_ms: 1_800_000_000_000,
        };
        insta::assert_snapshot!(serde_json::to_string(&line).unwrap(), @r#"{"_aws":{"Timestamp":1800000000000,"CloudWatchMetrics":[{"Namespace":"raglan","Dimensions":[["FunctionName","tool","decision"]],"Metrics":[{"Name":"tool_calls","Unit":"Count"},{"Name":"tool_duration_ms","Unit":"Milliseconds"}]}]},"FunctionName":"mcp","tool":"retrieve","decision":"allowed","key_id":"key-1","tool_calls":1,"tool_duration_ms":12}"#);
    }
}
