//! The function's configuration: environment variables, all checked before the first event.

use raglan_core::audit::DEFAULT_RETENTION_DAYS;
use raglan_telemetry::settings::{BadSettings, Settings};
use tracing::Level;

/// Longest retention, in days.
const RETENTION_MAX_DAYS: u32 = 3650;

/// Everything that an operator can set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `AUDIT_TABLE`: name of the table of audit events.
    pub audit_table: String,
    /// `AUDIT_DEAD_LETTER_QUEUE_URL`: where messages go that are no audit events.
    pub audit_dead_letter_queue_url: String,
    /// `AUDIT_ROOTS_BUCKET`: where the roots of closed days are kept; without one only the log has them.
    pub audit_roots_bucket: Option<String>,
    /// `AUDIT_RETENTION_DAYS`: events are deleted so long after they happened.
    pub retention_days: u32,
    /// `LOG_LEVEL`: the least important log entries that are written.
    pub log_level: Level,
}

impl Config {
    /// Reads the variables through `lookup`. A variable that is empty counts as not set.
    ///
    /// # Errors
    /// [`BadSettings`] with every problem there is, not just the first one.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, BadSettings> {
        let mut settings = Settings::new(lookup);
        let config = Self {
            audit_table: settings.required("AUDIT_TABLE"),
            audit_dead_letter_queue_url: settings.required("AUDIT_DEAD_LETTER_QUEUE_URL"),
            audit_roots_bucket: settings.get("AUDIT_ROOTS_BUCKET"),
            retention_days: settings.number(
                "AUDIT_RETENTION_DAYS",
                DEFAULT_RETENTION_DAYS,
                1,
                RETENTION_MAX_DAYS,
            ),
            log_level: settings.log_level("LOG_LEVEL"),
        };
        settings.finish(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, BadSettings> {
        Config::from_lookup(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_names_of_table_and_queue_are_enough() {
        let config = read(&[
            ("AUDIT_TABLE", "audit"),
            ("AUDIT_DEAD_LETTER_QUEUE_URL", "https://sqs/dead"),
            ("LOG_LEVEL", ""),
        ])
        .unwrap();
        assert_eq!(
            config,
            Config {
                audit_table: "audit".to_owned(),
                audit_dead_letter_queue_url: "https://sqs/dead".to_owned(),
                audit_roots_bucket: None,
                retention_days: 400,
                log_level: Level::INFO,
            }
        );
    }

    #[test]
    fn one_line_names_every_bad_variable() {
        let bad = [
            ("AUDIT_TABLE", " "),
            ("AUDIT_RETENTION_DAYS", "0"),
            ("LOG_LEVEL", "3"),
        ];
        assert_eq!(
            read(&bad).unwrap_err().to_string(),
            "bad configuration: AUDIT_TABLE is not set; AUDIT_DEAD_LETTER_QUEUE_URL is not set; \
             AUDIT_RETENTION_DAYS is \"0\", expected a number from 1 to 3650; LOG_LEVEL is \"3\", expected error, warn, info, debug or trace"
        );
    }
}
