//! The function's configuration: environment variables, all checked before the first event.

use raglan_core::audit::DEFAULT_RETENTION_DAYS;
use tracing::Level;

/// Longest retention, in days.
const RETENTION_MAX_DAYS: u32 = 3650;

/// Everything that an operator can set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `AUDIT_TABLE`: name of the table of audit events.
    pub audit_table: String,
    /// `AUDIT_RETENTION_DAYS`: events are deleted so long after they happened.
    pub retention_days: u32,
    /// `LOG_LEVEL`: the least important log entries that are written.
    pub log_level: Level,
}

/// The configuration cannot be used. One line names every variable that is off and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad configuration: {}", .0.join("; "))]
pub struct ConfigError(pub Vec<String>);

impl Config {
    /// Reads the variables through `lookup`. A variable that is empty counts as not set.
    ///
    /// # Errors
    /// [`ConfigError`] with every problem there is, not just the first one.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let get = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let mut problems = Vec::new();

        let audit_table = get("AUDIT_TABLE").unwrap_or_else(|| {
            problems.push("AUDIT_TABLE is not set".to_owned());
            String::new()
        });
        let mut retention_days = DEFAULT_RETENTION_DAYS;
        if let Some(text) = get("AUDIT_RETENTION_DAYS") {
            match text.trim().parse() {
                Ok(days) if (1..=RETENTION_MAX_DAYS).contains(&days) => retention_days = days,
                _ => problems.push(format!(
                    "AUDIT_RETENTION_DAYS is {text:?}, expected a number from 1 to {RETENTION_MAX_DAYS}"
                )),
            }
        }
        let mut log_level = Level::INFO;
        if let Some(text) = get("LOG_LEVEL") {
            match level(text.trim()) {
                Some(level) => log_level = level,
                None => problems.push(format!(
                    "LOG_LEVEL is {text:?}, expected error, warn, info, debug or trace"
                )),
            }
        }
        if problems.is_empty() {
            Ok(Self {
                audit_table,
                retention_days,
                log_level,
            })
        } else {
            Err(ConfigError(problems))
        }
    }
}

/// By name only: [`Level`]'s own parser also takes numbers.
fn level(name: &str) -> Option<Level> {
    match name {
        "error" => Some(Level::ERROR),
        "warn" => Some(Level::WARN),
        "info" => Some(Level::INFO),
        "debug" => Some(Level::DEBUG),
        "trace" => Some(Level::TRACE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::from_lookup(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_tables_name_is_enough() {
        let config = read(&[("AUDIT_TABLE", "audit"), ("LOG_LEVEL", "")]).unwrap();
        assert_eq!(
            config,
            Config {
                audit_table: "audit".to_owned(),
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
            "bad configuration: AUDIT_TABLE is not set; AUDIT_RETENTION_DAYS is \"0\", expected a \
             number from 1 to 3650; LOG_LEVEL is \"3\", expected error, warn, info, debug or trace"
        );
    }
}
