//! The function's configuration: environment variables, all checked before the first request.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use raglan_telemetry::settings::{BadSettings, Settings};
use sha2::{Digest, Sha256};
use tracing::Level;

/// Everything that an operator can set. See `docs/configuration.md`.
#[derive(Debug, Clone)]
pub struct Config {
    /// `KEYS_TABLE`: name of the table of API keys.
    pub keys_table: String,
    /// `CATALOG_TABLE`: name of the table of knowledge bases and tasks.
    pub catalog_table: String,
    /// `AUDIT_QUEUE_URL`: URL of the audit queue.
    pub audit_queue_url: String,
    /// `CURSOR_SECRET`: signs cursors, so that they cannot be altered.
    pub cursor_secret: CursorSecret,
    /// `INDEX_DIR`: folder that holds the embedded indexes, one folder a knowledge base.
    pub index_dir: PathBuf,
    /// `ALLOWED_ORIGINS`: the browser origins that may call.
    pub allowed_origins: Vec<AllowedOrigin>,
    /// `MCP_ENABLED`: `false` makes every request a 404.
    pub mcp_enabled: bool,
    /// `MAX_BODY_BYTES`: larger request bodies are refused before they are parsed.
    pub max_body_bytes: usize,
    /// `MAX_RESULT_BYTES`: results are cut to stay below it.
    pub max_result_bytes: usize,
    /// `CALL_TIMEOUT_SECONDS`: how long a call may take where Lambda gives no deadline.
    pub call_timeout: Duration,
    /// `AUDIT_PARAMETERS_MAX_CHARS`: audited parameters are cut after this many characters.
    pub audit_parameters_max_chars: usize,
    /// `GUARD_ENABLED`: `false` returns passages verbatim; they are marked untrusted all the same.
    pub guard_enabled: bool,
    /// `LOG_LEVEL`: the least important log entries that are written.
    pub log_level: Level,
}

/// A secret that cannot be printed.
#[derive(Clone)]
pub struct CursorSecret([u8; 32]);

impl CursorSecret {
    /// Takes a secret of any length and keeps its SHA-256.
    #[must_use]
    pub fn new(secret: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(secret.as_ref()).into())
    }

    /// The secret as a key of one SHA-256 block, padded with zeros (RFC 2104 §2).
    pub(crate) fn block(&self) -> [u8; 64] {
        let mut block = [0; 64];
        block[..32].copy_from_slice(&self.0);
        block
    }
}

impl fmt::Debug for CursorSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CursorSecret(secret)")
    }
}

/// A browser origin that may call: `https://host`, `http://host:port`, `http://host:*` or `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigin {
    /// Every origin. Calls still need a key, which browsers never send on their own.
    Any,
    /// Exactly this origin, in lower case.
    Exact(String),
    /// This scheme and host (`http://localhost:`) with any port.
    AnyPort(String),
}

impl AllowedOrigin {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        if text == "*" {
            return Some(Self::Any);
        }
        let host = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"))?;
        if host.is_empty() || host.contains(['/', '?', '#', '@', ' ']) {
            return None;
        }
        match text.strip_suffix('*') {
            Some(start) if start.ends_with(':') && !start.contains('*') => {
                Some(Self::AnyPort(start.to_owned()))
            }
            Some(_) => None,
            None if text.contains('*') => None,
            None => Some(Self::Exact(text)),
        }
    }

    /// Whether `origin`, as a browser sends it, is this one.
    #[must_use]
    pub fn allows(&self, origin: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        match self {
            Self::Any => true,
            Self::Exact(allowed) => origin == *allowed,
            Self::AnyPort(start) => {
                let port = origin.strip_prefix(start.as_str());
                port.is_some_and(|port| port.parse::<u16>().is_ok())
                    || start.strip_suffix(':') == Some(origin.as_str())
            }
        }
    }
}

/// Shortest `CURSOR_SECRET`, in bytes.
const SECRET_MIN_BYTES: usize = 32;
/// Lambda takes no request over 6 MB.
const BODY_MAX_BYTES: usize = 6 * 1024 * 1024;
/// Lambda takes no response over 6 MB; we stay well below it.
const RESULT_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Smaller limits would cut every result.
const RESULT_MIN_BYTES: usize = 16 * 1024;

impl Config {
    /// Reads the variables through `lookup`.
    ///
    /// # Errors
    /// [`BadSettings`] with every problem there is, not just the first one.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, BadSettings> {
        let mut settings = Settings::new(lookup);
        let config = Self {
            keys_table: settings.required("KEYS_TABLE"),
            catalog_table: settings.required("CATALOG_TABLE"),
            audit_queue_url: settings.required("AUDIT_QUEUE_URL"),
            cursor_secret: cursor_secret(&mut settings),
            index_dir: settings.text("INDEX_DIR", "/var/task/index").into(),
            allowed_origins: allowed_origins(&mut settings),
            mcp_enabled: settings.switch("MCP_ENABLED", true),
            max_body_bytes: settings.number("MAX_BODY_BYTES", 256 * 1024, 1024, BODY_MAX_BYTES),
            max_result_bytes: settings.number(
                "MAX_RESULT_BYTES",
                256 * 1024,
                RESULT_MIN_BYTES,
                RESULT_MAX_BYTES,
            ),
            call_timeout: Duration::from_secs(settings.number("CALL_TIMEOUT_SECONDS", 25, 1, 900)),
            audit_parameters_max_chars: settings.number(
                "AUDIT_PARAMETERS_MAX_CHARS",
                raglan_core::audit::DEFAULT_PARAMETERS_MAX_CHARS,
                0,
                50_000,
            ),
            guard_enabled: settings.switch("GUARD_ENABLED", true),
            log_level: settings.log_level("LOG_LEVEL"),
        };
        settings.finish(config)
    }
}

fn cursor_secret(settings: &mut Settings<impl Fn(&str) -> Option<String>>) -> CursorSecret {
    const NAME: &str = "CURSOR_SECRET";
    let text = settings.required(NAME);
    if !text.is_empty() && text.len() < SECRET_MIN_BYTES {
        settings.problem(format!("{NAME} is shorter than {SECRET_MIN_BYTES} bytes"));
    }
    CursorSecret::new(text)
}

fn allowed_origins(settings: &mut Settings<impl Fn(&str) -> Option<String>>) -> Vec<AllowedOrigin> {
    const NAME: &str = "ALLOWED_ORIGINS";
    let text = settings.text(NAME, "http://localhost:*,http://127.0.0.1:*");
    let mut origins = Vec::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        match AllowedOrigin::parse(part) {
            Some(origin) => origins.push(origin),
            None => settings.problem(format!(
                "{NAME} has {part:?}, expected https://host, http://host:port, http://host:* or *"
            )),
        }
    }
    origins
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

    const GOOD: [(&str, &str); 4] = [
        ("KEYS_TABLE", "keys"),
        ("CATALOG_TABLE", "catalog"),
        ("AUDIT_QUEUE_URL", "http://127.0.0.1/q"),
        ("CURSOR_SECRET", "0123456789abcdef0123456789abcdef"),
    ];

    #[test]
    fn the_four_required_variables_are_enough() {
        let config = read(&GOOD).unwrap();
        assert!(config.mcp_enabled && config.guard_enabled);
        assert_eq!(config.max_body_bytes, 262_144);
    }

    #[test]
    fn one_line_names_every_bad_variable() {
        let error = read(&[
            ("KEYS_TABLE", " "),
            ("CURSOR_SECRET", "short"),
            ("MCP_ENABLED", "maybe"),
            ("MAX_BODY_BYTES", "-1"),
            (
                "ALLOWED_ORIGINS",
                "https://good.example,ftp://bad,https://*.bad",
            ),
        ])
        .unwrap_err();
        let line = error.to_string();
        insta::assert_snapshot!(line, @r#"bad configuration: KEYS_TABLE is not set; CATALOG_TABLE is not set; AUDIT_QUEUE_URL is not set; CURSOR_SECRET is shorter than 32 bytes; ALLOWED_ORIGINS has "ftp://bad", expected https://host, http://host:port, http://host:* or *; ALLOWED_ORIGINS has "https://*.bad", expected https://host, http://host:port, http://host:* or *; MCP_ENABLED is "maybe", expected true or false; MAX_BODY_BYTES is "-1", expected a number from 1024 to 6291456"#);
        assert!(!line.contains('\n'));
    }

    #[test]
    fn the_secret_cannot_be_printed() {
        let config = read(&GOOD).unwrap();
        assert!(!format!("{config:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn an_origin_is_compared_whole() {
        let any_port = AllowedOrigin::parse("http://localhost:*").unwrap();
        for good in [
            "http://localhost",
            "http://localhost:3000",
            "HTTP://LOCALHOST:1",
        ] {
            assert!(any_port.allows(good), "{good}");
        }
        for bad in [
            "https://localhost:3000",
            "http://localhost:3000.evil.example",
            "null",
            "",
        ] {
            assert!(!any_port.allows(bad), "{bad}");
        }
        let exact = AllowedOrigin::parse("https://a.example").unwrap();
        assert!(exact.allows("https://a.example"));
        assert!(!exact.allows("https://a.example.evil.example"));
    }
}
