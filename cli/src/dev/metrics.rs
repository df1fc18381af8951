//! What the functions measure, for a Prometheus on this machine: the names are those of the CloudWatch
//! metrics (`docs/configuration.md`), so that a graph of one can be drawn for the other.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use raglan_telemetry::metrics::{Group, NAMESPACE, Recorder, Unit};

/// Where the server answers with them.
pub const PATH: &str = "/metrics";
/// The form of the answer (`OpenMetrics` 1.0), which Prometheus asks for first.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper ends of the histograms' classes, in milliseconds: from a cached list to Lambda's limit here.
const CLASSES_MS: [f64; 14] = [
    1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0,
    30_000.0,
];

type Labels = Vec<(&'static str, String)>;

/// The metrics of this process.
static METRICS: LazyLock<Mutex<Metrics>> = LazyLock::new(|| Mutex::new(Metrics::default()));

#[derive(Debug, Default)]
struct Metrics {
    registry: Registry,
    counters: HashMap<&'static str, Family<Labels, Counter>>,
    histograms: HashMap<&'static str, Family<Labels, Histogram>>,
}

/// Collects everything that this process measures.
pub fn install() {
    raglan_telemetry::metrics::install(Box::new(Collector));
}

/// All of it in the form that Prometheus reads.
#[must_use]
pub fn text() -> String {
    let metrics = METRICS.lock().unwrap_or_else(PoisonError::into_inner);
    metrics.text()
}

struct Collector;

impl Recorder for Collector {
    fn record(&self, groups: &[Group], _epoch_ms: i64) {
        let mut metrics = METRICS.lock().unwrap_or_else(PoisonError::into_inner);
        for group in groups {
            metrics.record(group);
        }
    }
}

impl Metrics {
    fn record(&mut self, group: &Group) {
        for measured in &group.measurements {
            match measured.unit {
                Unit::Count => {
                    let family = self.counter(measured.name);
                    family
                        .get_or_create(&group.dimensions)
                        .inc_by(measured.value);
                }
                Unit::Milliseconds => {
                    // Milliseconds of one request are far below 2^32.
                    let value = f64::from(u32::try_from(measured.value).unwrap_or(u32::MAX));
                    let family = self.histogram(measured.name);
                    family.get_or_create(&group.dimensions).observe(value);
                }
            }
        }
    }

    fn counter(&mut self, name: &'static str) -> &Family<Labels, Counter> {
        let registry = &mut self.registry;
        self.counters.entry(name).or_insert_with(|| {
            let family = Family::default();
            registry.register(format!("{NAMESPACE}_{name}"), "A number", family.clone());
            family
        })
    }

    fn histogram(&mut self, name: &'static str) -> &Family<Labels, Histogram> {
        let registry = &mut self.registry;
        self.histograms.entry(name).or_insert_with(|| {
            let family = Family::new_with_constructor((|| Histogram::new(CLASSES_MS)) as fn() -> _);
            registry.register(
                format!("{NAMESPACE}_{name}"),
                "Milliseconds",
                family.clone(),
            );
            family
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a text cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use raglan_telemetry::metrics::Measurement;

    use super::*;

    fn measured(name: &'static str, unit: Unit, value: u64) -> Measurement {
        Measurement { name, unit, value }
    }

    #[test]
    fn numbers_add_up_and_durations_fall_into_classes() {
        let mut metrics = Metrics::default();
        for duration_ms in [3, 40, 40_000] {
            metrics.record(&Group {
                dimensions: vec![("tool", "ask".to_owned())],
                measurements: vec![
                    measured("tool_calls", Unit::Count, 1),
                    measured("tool_duration_ms", Unit::Milliseconds, duration_ms),
                ],
                properties: vec![("key_id", "key-1".to_owned())],
            });
        }
        let text = metrics.text();
        for line in [
            "# TYPE raglan_tool_calls counter",
            "raglan_tool_calls_total{tool=\"ask\"} 3",
            "# TYPE raglan_tool_duration_ms histogram",
            "raglan_tool_duration_ms_bucket{le=\"5.0\",tool=\"ask\"} 1",
            "raglan_tool_duration_ms_bucket{le=\"50.0\",tool=\"ask\"} 2",
            "raglan_tool_duration_ms_bucket{le=\"+Inf\",tool=\"ask\"} 3",
            "raglan_tool_duration_ms_count{tool=\"ask\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("key-1"), "{text}");
    }
}
