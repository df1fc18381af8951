//! The function's configuration: environment variables, all checked before the first request.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::oauth::OauthConfig;
use raglan_core::audit::privacy::{Keeper, TextHashKey, TextPolicy};
use raglan_core::key_record::RateLimit;
use raglan_core::limits::Limits;
use raglan_core::tool::Tool;
use raglan_embeddings::EmbeddingsConfiguration;
use raglan_engines::configuration::answers::{self, AnswerConfiguration};
use raglan_engines::configuration::{self, Configurations};
use raglan_index_store::IndexLocation;
use raglan_telemetry::settings::{BadSettings, Settings};
use raglan_texts::{LANGUAGE_VARIABLE, Language};
use sha2::{Digest, Sha256};
use tracing::Level;

/// Everything that an operator can set. See `docs/configuration.md`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, with a variable of its own"
)]
#[derive(Debug, Clone)]
pub struct Config {
    /// `KEYS_TABLE`: name of the table of API keys.
    pub keys_table: String,
    /// `STATE_TABLE`: name of the table of limits and other things that expire.
    pub state_table: String,
    /// `CATALOG_TABLE`: name of the table of knowledge bases and tasks.
    pub catalog_table: String,
    /// `AUDIT_QUEUE_URL`: URL of the audit queue.
    pub audit_queue_url: String,
    /// `CURSOR_SECRET`: signs cursors, so that they cannot be altered.
    pub cursor_secret: CursorSecret,
    /// `INDEX_DIR`: folder that holds the embedded indexes, one folder a knowledge base. Without it
    /// the folder `index` beside the program, where Lambda says that is (`LAMBDA_TASK_ROOT`).
    pub index_dir: PathBuf,
    /// `INDEX_S3_URI`: where indexes are published; `index_dir` is not used then.
    pub index_s3_uri: Option<IndexLocation>,
    /// `INDEX_REFRESH_SECONDS`: how long a published index is used before a newer one is looked for.
    pub index_refresh_seconds: u32,
    /// `BACKENDS` or `BACKENDS_FILE`: the retrieval engines beside the embedded one, by name.
    pub backends: Configurations,
    /// `EMBEDDINGS_…`: the model that queries are embedded with, for embedded indexes with vectors.
    pub embeddings: Option<EmbeddingsConfiguration>,
    /// `ALLOWED_ORIGINS`: the browser origins that may call.
    pub allowed_origins: Vec<AllowedOrigin>,
    /// `MCP_ENABLED`: `false` makes every request a 404.
    pub mcp_enabled: bool,
    /// `MAX_BODY_BYTES`: larger request bodies are refused before they are parsed.
    pub max_body_bytes: usize,
    /// `MAX_RESULT_BYTES`: results are cut to stay below it.
    pub max_result_bytes: usize,
    /// `MAX_RESULT_TOKENS`: the same, in tokens as they are estimated here.
    pub max_result_tokens: usize,
    /// `CALL_TIMEOUT_SECONDS`: how long a call may take where Lambda gives no deadline.
    pub call_timeout: Duration,
    /// `AUDIT_MODE`: whether the trail is a condition of the answer.
    pub audit_mode: AuditMode,
    /// `AUDIT_TEXT` and `AUDIT_PARAMETERS_MAX_CHARS`: how the words of callers are written down.
    pub audit_keeper: Keeper,
    /// `RATE_LIMIT_PER_MINUTE`, `RATE_LIMIT_BURST`, `DAILY_QUOTAS`: for keys without limits of their own.
    pub limits: Limits,
    /// `ASK_CONCURRENCY`: questions of one key that may be worked on at the same time; 0 is any number.
    pub ask_concurrency: u32,
    /// `ANSWERS`: the language model that writes answers; `None` for sentences from the documents.
    pub answers: Option<AnswerConfiguration>,
    /// `SESSION_TTL_SECONDS`: how long a turn of a conversation is kept; 0: none is.
    pub session_ttl_seconds: i64,
    /// `LIMITER_FAILURE`: what happens while tool calls cannot be counted.
    pub limiter_failure: LimiterFailure,
    /// `AUTH_FAILURES_PER_MINUTE`: an address that fails more often is refused; 0 is any number.
    pub auth_failures_per_minute: u32,
    /// `GUARD_ENABLED`: `false` returns passages verbatim; they are marked untrusted all the same.
    pub guard_enabled: bool,
    /// `OAUTH_ISSUER` and `OAUTH_RESOURCE`: access tokens are accepted beside keys.
    pub oauth: Option<OauthConfig>,
    /// `WARM_UP`: connections are opened at the start, before the first request.
    pub warm_up: bool,
    /// `METRICS_ENABLED`: metrics go to standard output, for CloudWatch.
    pub metrics_enabled: bool,
    /// `RAGLAN_LANGUAGE`: the language of texts for people and models.
    pub language: Language,
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

/// What happens while tool calls cannot be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimiterFailure {
    /// `ask` is refused with 503; the other tools answer uncounted, and the log says so.
    OpenForCheap,
    /// Every tool is refused with 503.
    Closed,
}

/// Whether the trail is a condition of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditMode {
    /// The answer does not depend on the trail.
    Deferred,
    /// No call without its intent on the queue, no answer without its outcome.
    Strict,
}

/// Shortest `CURSOR_SECRET`, in bytes.
const SECRET_MIN_BYTES: usize = 32;
/// Lambda takes no request over 6 MB.
const BODY_MAX_BYTES: usize = 6 * 1024 * 1024;
/// Lambda takes no response over 6 MB; we stay well below it.
const RESULT_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Smaller limits would cut every result.
const RESULT_MIN_BYTES: usize = 16 * 1024;
/// Fewer would not hold one passage with its metadata.
const RESULT_MIN_TOKENS: usize = 8_000;

impl Config {
    /// Reads the variables through `lookup`.
    ///
    /// # Errors
    /// [`BadSettings`] with every problem there is, not just the first one.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, BadSettings> {
        let mut settings = Settings::new(lookup);
        let cursor_secret = cursor_secret(&mut settings);
        let config = Self {
            keys_table: settings.required("KEYS_TABLE"),
            catalog_table: settings.required("CATALOG_TABLE"),
            state_table: settings.required("STATE_TABLE"),
            audit_queue_url: settings.required("AUDIT_QUEUE_URL"),
            index_dir: settings.get("INDEX_DIR").map_or_else(
                || Path::new(&settings.text("LAMBDA_TASK_ROOT", "/var/task")).join("index"),
                PathBuf::from,
            ),
            index_s3_uri: index_s3_uri(&mut settings),
            index_refresh_seconds: settings.number("INDEX_REFRESH_SECONDS", 60, 5, 86_400),
            backends: configuration::from_settings(&mut settings),
            embeddings: raglan_embeddings::configuration::from_settings(&mut settings),
            allowed_origins: allowed_origins(&mut settings),
            mcp_enabled: settings.switch("MCP_ENABLED", true),
            max_body_bytes: settings.number("MAX_BODY_BYTES", 256 * 1024, 1024, BODY_MAX_BYTES),
            max_result_bytes: settings.number(
                "MAX_RESULT_BYTES",
                256 * 1024,
                RESULT_MIN_BYTES,
                RESULT_MAX_BYTES,
            ),
            max_result_tokens: settings.number(
                "MAX_RESULT_TOKENS",
                20_000,
                RESULT_MIN_TOKENS,
                1_000_000,
            ),
            call_timeout: Duration::from_secs(settings.number("CALL_TIMEOUT_SECONDS", 25, 1, 900)),
            audit_mode: audit_mode(&mut settings),
            audit_keeper: Keeper {
                text: audit_text(&mut settings),
                max_chars: settings.number(
                    "AUDIT_PARAMETERS_MAX_CHARS",
                    raglan_core::audit::DEFAULT_PARAMETERS_MAX_CHARS,
                    0,
                    50_000,
                ),
                hash_key: TextHashKey::derived_from(&cursor_secret.0),
            },
            cursor_secret,
            limits: limits(&mut settings),
            ask_concurrency: settings.number("ASK_CONCURRENCY", 8, 0, 64),
            answers: answers::from_settings(&mut settings),
            session_ttl_seconds: settings.number(
                "SESSION_TTL_SECONDS",
                24 * 60 * 60,
                0,
                30 * 24 * 60 * 60,
            ),
            limiter_failure: limiter_failure(&mut settings),
            auth_failures_per_minute: settings.number("AUTH_FAILURES_PER_MINUTE", 60, 0, 6000),
            guard_enabled: settings.switch("GUARD_ENABLED", true),
            oauth: oauth(&mut settings),
            warm_up: settings.switch("WARM_UP", true),
            metrics_enabled: settings.switch("METRICS_ENABLED", true),
            language: settings.language(LANGUAGE_VARIABLE),
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

fn index_s3_uri(settings: &mut Settings<impl Fn(&str) -> Option<String>>) -> Option<IndexLocation> {
    const NAME: &str = "INDEX_S3_URI";
    let text = settings.get(NAME)?;
    let location = IndexLocation::parse(text.trim());
    if let Err(error) = &location {
        settings.problem(format!("{NAME} is {text:?}, {error}"));
    }
    location.ok()
}

fn limits(settings: &mut Settings<impl Fn(&str) -> Option<String>>) -> Limits {
    // 1,000 a second is what the item that counts a key's calls takes.
    let rate = RateLimit {
        requests_per_minute: settings.number("RATE_LIMIT_PER_MINUTE", 120, 0, 60_000),
        burst: settings.number("RATE_LIMIT_BURST", 40, 1, 10_000),
    };
    Limits {
        rate,
        daily_quotas: daily_quotas(settings),
    }
}

fn daily_quotas(settings: &mut Settings<impl Fn(&str) -> Option<String>>) -> BTreeMap<Tool, u64> {
    const NAME: &str = "DAILY_QUOTAS";
    let text = settings.text(NAME, "ask=500,retrieve=5000");
    let mut quotas = BTreeMap::new();
    if text.trim() == "none" {
        return quotas;
    }
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let quota = part.split_once('=').and_then(|(name, quota)| {
            let tool = Tool::from_name(name.trim())?;
            Some((tool, quota.trim().parse().ok()?))
        });
        match quota {
            Some((tool, quota)) => {
                quotas.insert(tool, quota);
            }
            None => settings.problem(format!(
                "{NAME} has {part:?}, expected none or tool=calls, as in ask=500,retrieve=5000"
            )),
        }
    }
    quotas
}

fn limiter_failure(settings: &mut Settings<impl Fn(&str) -> Option<String>>) -> LimiterFailure {
    const NAME: &str = "LIMITER_FAILURE";
    match settings.text(NAME, "open_for_cheap").trim() {
        "open_for_cheap" => LimiterFailure::OpenForCheap,
        "closed" => LimiterFailure::Closed,
        other => {
            settings.problem(format!(
                "{NAME} is {other:?}, expected open_for_cheap or closed"
            ));
            LimiterFailure::Closed
        }
    }
}

fn audit_mode(settings: &mut Settings<impl Fn(&str) -> Option<String>>) -> AuditMode {
    const NAME: &str = "AUDIT_MODE";
    match settings.text(NAME, "deferred").trim() {
        "deferred" => AuditMode::Deferred,
        "strict" => AuditMode::Strict,
        other => {
            settings.problem(format!("{NAME} is {other:?}, expected deferred or strict"));
            AuditMode::Strict
        }
    }
}

fn audit_text(settings: &mut Settings<impl Fn(&str) -> Option<String>>) -> TextPolicy {
    const NAME: &str = "AUDIT_TEXT";
    let text = settings.text(NAME, TextPolicy::Plain.name());
    TextPolicy::from_name(text.trim()).unwrap_or_else(|| {
        settings.problem(format!("{NAME} is {text:?}, expected plain, hash or drop"));
        TextPolicy::Drop
    })
}

fn oauth(settings: &mut Settings<impl Fn(&str) -> Option<String>>) -> Option<OauthConfig> {
    let (issuer, resource) = (settings.get("OAUTH_ISSUER"), settings.get("OAUTH_RESOURCE"));
    for (name, value) in [("OAUTH_ISSUER", &issuer), ("OAUTH_RESOURCE", &resource)] {
        // A token over plain HTTP would be anybody's, except on one's own machine.
        let usable = value.as_deref().is_none_or(|url| {
            url.starts_with("https://")
                || ["http://127.0.0.1", "http://localhost"]
                    .iter()
                    .any(|own| url.starts_with(own))
        });
        if !usable {
            settings.problem(format!("{name} is {value:?}, expected an https URL"));
        }
    }
    match (issuer, resource) {
        (Some(issuer), Some(resource)) => Some(OauthConfig { issuer, resource }),
        (None, None) => None,
        (Some(_), None) => {
            settings.problem("OAUTH_ISSUER is set, but OAUTH_RESOURCE is not");
            None
        }
        (None, Some(_)) => {
            settings.problem("OAUTH_RESOURCE is set, but OAUTH_ISSUER is not");
            None
        }
    }
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

    const GOOD: [(&str, &str); 5] = [
        ("KEYS_TABLE", "keys"),
        ("STATE_TABLE", "state"),
        ("CATALOG_TABLE", "catalog"),
        ("AUDIT_QUEUE_URL", "http://127.0.0.1/q"),
        ("CURSOR_SECRET", "0123456789abcdef0123456789abcdef"),
    ];

    #[test]
    fn the_required_variables_are_enough() {
        let config = read(&GOOD).unwrap();
        assert!(config.mcp_enabled && config.guard_enabled);
        assert_eq!(config.max_body_bytes, 262_144);
    }

    #[test]
    fn one_line_names_every_bad_variable() {
        let error = read(&[
            ("KEYS_TABLE", " "),
            ("CURSOR_SECRET", "short"),
            ("INDEX_S3_URI", "https://team-indexes/"),
            ("EMBEDDINGS_URL", "https://models.example/v1"),
            ("INDEX_REFRESH_SECONDS", "0"),
            ("MCP_ENABLED", "maybe"),
            ("MAX_BODY_BYTES", "-1"),
            ("RATE_LIMIT_PER_MINUTE", "fast"),
            ("RATE_LIMIT_BURST", "0"),
            ("DAILY_QUOTAS", "ask=500,delete=1,retrieve=many"),
            ("ASK_CONCURRENCY", "65"),
            ("LIMITER_FAILURE", "open"),
            ("ANSWERS", r#"{"type":"openai","url":"models.example"}"#),
            ("SESSION_TTL_SECONDS", "forever"),
            ("AUDIT_MODE", "lax"),
            ("AUDIT_TEXT", "shout"),
            ("RAGLAN_LANGUAGE", "fr"),
            (
                "BACKENDS",
                r#"{"wiki":{"type":"elastic"},"kb":{"type":"openai","url":"http://kb.example"}}"#,
            ),
            ("AUTH_FAILURES_PER_MINUTE", "-1"),
            (
                "ALLOWED_ORIGINS",
                "https://good.example,ftp://bad,https://*.bad",
            ),
        ])
        .unwrap_err();
        let line = error.to_string();
        insta::assert_snapshot!(line, @r#"bad configuration: CURSOR_SECRET is shorter than 32 bytes; KEYS_TABLE is not set; CATALOG_TABLE is not set; STATE_TABLE is not set; AUDIT_QUEUE_URL is not set; INDEX_S3_URI is "https://team-indexes/", expected s3://BUCKET/ or s3://BUCKET/FOLDER/; INDEX_REFRESH_SECONDS is "0", expected a number from 5 to 86400; BACKENDS: wiki.type: expected openai, dify, dify_external, ragflow or bedrock; BACKENDS: kb.url: expected an https URL (http on this machine only); EMBEDDINGS_URL is set, but EMBEDDINGS_MODEL is not; ALLOWED_ORIGINS has "ftp://bad", expected https://host, http://host:port, http://host:* or *; ALLOWED_ORIGINS has "https://*.bad", expected https://host, http://host:port, http://host:* or *; MCP_ENABLED is "maybe", expected true or false; MAX_BODY_BYTES is "-1", expected a number from 1024 to 6291456; AUDIT_MODE is "lax", expected deferred or strict; AUDIT_TEXT is "shout", expected plain, hash or drop; RATE_LIMIT_PER_MINUTE is "fast", expected a number from 0 to 60000; RATE_LIMIT_BURST is "0", expected a number from 1 to 10000; DAILY_QUOTAS has "delete=1", expected none or tool=calls, as in ask=500,retrieve=5000; DAILY_QUOTAS has "retrieve=many", expected none or tool=calls, as in ask=500,retrieve=5000; ASK_CONCURRENCY is "65", expected a number from 0 to 64; ANSWERS.url: expected an https URL (http on this machine only); ANSWERS.model: is missing; SESSION_TTL_SECONDS is "forever", expected a number from 0 to 2592000; LIMITER_FAILURE is "open", expected open_for_cheap or closed; AUTH_FAILURES_PER_MINUTE is "-1", expected a number from 0 to 6000; RAGLAN_LANGUAGE is "fr", expected en or zh"#);
        assert!(!line.contains('\n'));
    }

    #[test]
    fn a_tool_without_a_quota_has_none() {
        let quotas = |text| {
            let mut variables = GOOD.to_vec();
            variables.push(("DAILY_QUOTAS", text));
            read(&variables).unwrap().limits.daily_quotas
        };
        assert_eq!(quotas("ask = 7 ,"), BTreeMap::from([(Tool::Ask, 7)]));
        assert_eq!(quotas("none"), BTreeMap::new());
        let defaults = BTreeMap::from([(Tool::Ask, 500), (Tool::Retrieve, 5000)]);
        assert_eq!(quotas(""), defaults);
    }

    #[test]
    fn the_documented_variables_are_the_ones_that_are_read() {
        let asked = std::cell::RefCell::new(std::collections::BTreeSet::new());
        let _ = Config::from_lookup(|name| {
            asked.borrow_mut().insert(name.to_owned());
            None
        });
        let documents = include_str!("../../../docs/configuration.md");
        let section = documents
            .split("\n## ")
            .find(|part| part.starts_with("MCP function"));
        let documented = section
            .unwrap()
            .lines()
            .filter_map(|line| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned()));
        assert_eq!(asked.into_inner(), documented.collect());
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
