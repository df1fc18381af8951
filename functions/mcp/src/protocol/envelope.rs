//! The JSON-RPC envelope, checked before the protocol library sees it: what is no message, what names
//! no served revision and what has no usable parameters is answered here, in JSON and with the right
//! code (JSON-RPC 2.0 §4 and §5.1; MCP, Streamable HTTP).

use http::{HeaderMap, StatusCode};
use raglan_texts::{Language, text};
use serde_json::{Map, Value};

use crate::reply::{Reply, json_rpc_error};

/// The revisions that are served, oldest first.
pub const SERVED_VERSIONS: [&str; 5] = [
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
    MODERN_VERSION,
];
/// The first revision without handshake: every request says its revision itself.
pub const MODERN_VERSION: &str = "2026-07-28";

/// The header that names the revision.
pub const VERSION_HEADER: &str = "mcp-protocol-version";
/// The header that carries the session id of the handshake era.
pub const SESSION_HEADER: &str = "mcp-session-id";
const VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";
/// Headers that routers read: two different values would be two different requests.
const ROUTING_HEADERS: [&str; 3] = [VERSION_HEADER, "mcp-method", "mcp-name"];
const SESSION_ID_MAX_BYTES: usize = 256;
const BATCH_VERSION: &str = "2025-03-26";
/// Each message of a batch is worked on and written down by itself.
const BATCH_MAX_MESSAGES: usize = 20;

/// JSON-RPC: the body is no JSON.
pub const PARSE_ERROR: i32 = -32700;
/// JSON-RPC: the JSON is no request.
pub const INVALID_REQUEST: i32 = -32600;
/// JSON-RPC: the method is not served.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// JSON-RPC: the parameters are unusable.
pub const INVALID_PARAMS: i32 = -32602;
/// JSON-RPC: the server failed.
pub const INTERNAL_ERROR: i32 = -32603;
/// MCP: a header is missing or contradicts the body.
const HEADER_MISMATCH: i32 = -32020;

/// How a request tells its revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// By a handshake; a later request may name it in a header.
    Handshake,
    /// In every request by itself (2026-07-28 and later).
    PerRequest,
}

/// What a body holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// One message.
    Single(Envelope),
    /// Several (2025-03-26 only), in their order.
    Batch(Vec<Result<Envelope, EnvelopeFault>>),
}

/// A message that can be handed on.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// How it tells its revision.
    pub era: Era,
    /// The revision that the message names in its own metadata.
    pub meta_version: Option<String>,
    /// What kind of message it is.
    pub message: Message,
}

impl Envelope {
    /// Whether this is the handshake's first message, whose answer carries a session id.
    #[must_use]
    pub fn opens_session(&self) -> bool {
        let initialize =
            matches!(&self.message, Message::Request { method, .. } if method == "initialize");
        initialize && self.era == Era::Handshake
    }
}

/// The kinds of messages that clients send.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Wants an answer.
    Request {
        /// The request's id: a text or a whole number.
        id: Value,
        /// The method.
        method: String,
        /// What to hand on when it is not the body's own bytes: a mended message, or one of a batch.
        replaced: Option<Value>,
    },
    /// Wants none.
    Notification {
        /// The method.
        method: String,
    },
    /// Answers a request that this server never sent.
    Response,
}

/// A body that is no usable message.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvelopeFault {
    era: Era,
    id: Option<Value>,
    code: i32,
    message: &'static str,
    method: Option<String>,
}

impl EnvelopeFault {
    fn invalid_request(era: Era, id: Option<&Value>, message: &'static str) -> Self {
        Self {
            era,
            id: id.cloned(),
            code: INVALID_REQUEST,
            message,
            method: None,
        }
    }

    /// The method, as far as it could be read.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// One stable word for the audit trail.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        match self.code {
            PARSE_ERROR => "malformed_json",
            INVALID_PARAMS => "invalid_params",
            HEADER_MISMATCH => "header_mismatch",
            _ => "invalid_request",
        }
    }

    /// The answer. Where the id cannot be read it is `null` in the handshake era and left out later.
    #[must_use]
    pub fn reply(&self) -> Reply {
        let id = match (&self.id, self.era) {
            (Some(id), _) => Some(id.clone()),
            (None, Era::Handshake) => Some(Value::Null),
            (None, Era::PerRequest) => None,
        };
        json_rpc_error(StatusCode::BAD_REQUEST, id, self.code, self.message)
    }
}

/// Reads one body.
///
/// # Errors
/// [`EnvelopeFault`] with the answer that it deserves.
pub fn read(
    headers: &HeaderMap,
    body: Option<&Value>,
    language: Language,
) -> Result<Body, EnvelopeFault> {
    let header_version = header(headers, VERSION_HEADER);
    let header_era = match header_version {
        Some(version) if is_date(version) && version >= MODERN_VERSION => Era::PerRequest,
        _ => Era::Handshake,
    };
    let value = body.ok_or_else(|| EnvelopeFault {
        era: header_era,
        id: None,
        code: PARSE_ERROR,
        message: text!(language, "The body is not valid JSON."),
        method: None,
    })?;
    match value {
        Value::Array(elements) => {
            read_batch(headers, header_era, elements, language).map(Body::Batch)
        }
        single => read_message(headers, header_era, single, language).map(Body::Single),
    }
}

/// Batches belong to revision 2025-03-26, which is also what a request without header speaks.
fn read_batch(
    headers: &HeaderMap,
    header_era: Era,
    elements: &[Value],
    language: Language,
) -> Result<Vec<Result<Envelope, EnvelopeFault>>, EnvelopeFault> {
    let invalid = |message| EnvelopeFault::invalid_request(header_era, None, message);
    let version = headers
        .get(VERSION_HEADER)
        .map(|value| value.to_str().unwrap_or_default());
    if version.is_some_and(|version| version.trim() != BATCH_VERSION) {
        return Err(invalid(text!(
            language,
            "This revision has no batches: send one message a request."
        )));
    }
    if elements.is_empty() {
        return Err(invalid(text!(language, "The batch is empty.")));
    }
    if elements.len() > BATCH_MAX_MESSAGES {
        return Err(invalid(text!(language, "The batch has too many messages.")));
    }
    let is_initialize = |element: &Value| element.get("method") == Some(&"initialize".into());
    if elements.iter().any(is_initialize) {
        return Err(invalid(text!(
            language,
            "`initialize` must not be part of a batch."
        )));
    }
    let read_element = |element: &Value| {
        let mut envelope = read_message(headers, header_era, element, language)?;
        if let Message::Request { replaced, .. } = &mut envelope.message {
            replaced.get_or_insert_with(|| element.clone());
        }
        Ok(envelope)
    };
    Ok(elements.iter().map(read_element).collect())
}

fn read_message(
    headers: &HeaderMap,
    header_era: Era,
    value: &Value,
    language: Language,
) -> Result<Envelope, EnvelopeFault> {
    let invalid = |id, message| EnvelopeFault::invalid_request(header_era, id, message);
    let Value::Object(object) = value else {
        return Err(invalid(
            None,
            text!(language, "This is not a JSON-RPC message."),
        ));
    };
    let id = match object.get("id") {
        None => None,
        Some(id) if id.is_string() || id.as_i64().is_some() => Some(id),
        Some(_) => {
            return Err(invalid(
                None,
                text!(language, "`id` must be a string or a whole number."),
            ));
        }
    };
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(invalid(id, text!(language, "`jsonrpc` must be \"2.0\".")));
    }
    let method = match object.get("method") {
        Some(Value::String(method)) => method.clone(),
        Some(_) => return Err(invalid(id, text!(language, "`method` must be a string."))),
        None if object.contains_key("result") || object.contains_key("error") => {
            return match header_era {
                Era::Handshake => Ok(Envelope {
                    era: Era::Handshake,
                    meta_version: None,
                    message: Message::Response,
                }),
                Era::PerRequest => Err(invalid(
                    id,
                    text!(language, "This server sends no requests to answer."),
                )),
            };
        }
        None => return Err(invalid(id, text!(language, "`method` is missing."))),
    };

    let meta_version = meta(object)
        .and_then(|meta| meta.get(VERSION_META))
        .map(|version| {
            // Whatever stands there makes the request one of the modern era; the library judges it.
            version.as_str().unwrap_or_default().to_owned()
        });
    let modern = meta_version.is_some()
        || method == "server/discover"
        || (header_era == Era::PerRequest && method != "initialize");
    let era = if modern {
        Era::PerRequest
    } else {
        Era::Handshake
    };

    let Some(id) = id.cloned() else {
        return Ok(Envelope {
            era,
            meta_version,
            message: Message::Notification { method },
        });
    };
    let refuse = |code, message| EnvelopeFault {
        era,
        id: Some(id.clone()),
        code,
        message,
        method: Some(method.clone()),
    };
    check_headers(headers, era, language).map_err(|(code, message)| refuse(code, message))?;
    if method == "server/discover" && meta_version.is_none() {
        return Err(refuse(
            INVALID_PARAMS,
            text!(
                language,
                "`params._meta` must name `io.modelcontextprotocol/protocolVersion`."
            ),
        ));
    }
    let replaced = mend_params(object, &method, language)
        .map_err(|message| refuse(INVALID_PARAMS, message))?;
    Ok(Envelope {
        era,
        meta_version,
        message: Message::Request {
            id,
            method,
            replaced,
        },
    })
}

fn check_headers(
    headers: &HeaderMap,
    era: Era,
    language: Language,
) -> Result<(), (i32, &'static str)> {
    match era {
        Era::PerRequest => {
            let doubled = |name: &&str| headers.get_all(*name).iter().count() > 1;
            if ROUTING_HEADERS.iter().any(doubled) {
                return Err((
                    HEADER_MISMATCH,
                    text!(language, "A routing header is there more than once."),
                ));
            }
        }
        Era::Handshake => {
            // A value that is no text is no revision either.
            let named = headers
                .get(VERSION_HEADER)
                .map(|value| value.to_str().unwrap_or_default());
            if named.is_some_and(|version| !SERVED_VERSIONS.contains(&version.trim())) {
                let message = text!(
                    language,
                    "`MCP-Protocol-Version` names a revision that is not served."
                );
                return Err((INVALID_REQUEST, message));
            }
            let session = headers.get(SESSION_HEADER).map(http::HeaderValue::as_bytes);
            if session.is_some_and(|id| !is_session_id(id)) {
                return Err((
                    INVALID_REQUEST,
                    text!(language, "`Mcp-Session-Id` is not a session id."),
                ));
            }
        }
    }
    Ok(())
}

/// Visible ASCII of sane length. Which id it is does not matter: there are no sessions to find.
fn is_session_id(id: &[u8]) -> bool {
    (1..=SESSION_ID_MAX_BYTES).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

/// The parameters that a method cannot do without, by name.
fn required_text(method: &str, language: Language) -> Option<(&'static str, &'static str)> {
    match method {
        "tools/call" => Some((
            "name",
            text!(language, "`params.name` must be the name of a tool."),
        )),
        "prompts/get" => Some((
            "name",
            text!(language, "`params.name` must be the name of a prompt."),
        )),
        "resources/read" => Some((
            "uri",
            text!(language, "`params.uri` must be the URI of a resource."),
        )),
        _ => None,
    }
}

/// Checks the parameters' shape and mends what clients are known to send: `null` for "nothing", and
/// a tool's arguments as JSON text.
fn mend_params(
    object: &Map<String, Value>,
    method: &str,
    language: Language,
) -> Result<Option<Value>, &'static str> {
    let none = Map::new();
    let given = object.get("params");
    let params = match given {
        None | Some(Value::Null) => &none,
        Some(Value::Object(params)) => params,
        Some(_) => return Err(text!(language, "`params` must be an object.")),
    };
    if let Some((name, message)) = required_text(method, language)
        && !params.get(name).is_some_and(Value::is_string)
    {
        return Err(message);
    }
    let meta_is_null = match params.get("_meta") {
        None | Some(Value::Object(_)) => false,
        Some(Value::Null) => true,
        Some(_) => return Err(text!(language, "`params._meta` must be an object.")),
    };
    let arguments = params
        .get("arguments")
        .filter(|_| matches!(method, "tools/call" | "prompts/get"));
    // `Some(None)`: take them out; `Some(Some(…))`: put these in their place.
    let new_arguments = match arguments {
        None | Some(Value::Object(_)) => None,
        Some(Value::Null) => Some(None),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Object(arguments)) => Some(Some(arguments)),
            _ => return Err(text!(language, "`params.arguments` must be an object.")),
        },
        Some(_) => return Err(text!(language, "`params.arguments` must be an object.")),
    };
    if !meta_is_null && new_arguments.is_none() && !given.is_some_and(Value::is_null) {
        return Ok(None);
    }
    let mut params = params.clone();
    if meta_is_null {
        params.remove("_meta");
    }
    match new_arguments {
        None => {}
        Some(None) => {
            params.remove("arguments");
        }
        Some(Some(arguments)) => {
            params.insert("arguments".to_owned(), Value::Object(arguments));
        }
    }
    let mut mended = object.clone();
    if params.is_empty() {
        mended.remove("params");
    } else {
        mended.insert("params".to_owned(), Value::Object(params));
    }
    Ok(Some(Value::Object(mended)))
}

fn meta(object: &Map<String, Value>) -> Option<&Map<String, Value>> {
    object.get("params")?.get("_meta")?.as_object()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// `YYYY-MM-DD`, the form of every revision: dates compare as text.
fn is_date(text: &str) -> bool {
    text.len() == 10
        && text
            .bytes()
            .enumerate()
            .all(|(position, byte)| match position {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read_with(pairs: &[(&'static str, &str)], body: &str) -> Result<Envelope, EnvelopeFault> {
        match read_body(pairs, body)? {
            Body::Single(envelope) => Ok(envelope),
            Body::Batch(_) => panic!("{body} is a batch"),
        }
    }

    fn read_body(pairs: &[(&'static str, &str)], body: &str) -> Result<Body, EnvelopeFault> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let body = serde_json::from_str(body).ok();
        read(&headers, body.as_ref(), Language::English)
    }

    fn code(pairs: &[(&'static str, &str)], body: &str) -> Option<i32> {
        read_with(pairs, body).err().map(|fault| fault.code)
    }

    #[test]
    fn what_is_no_message_gets_the_code_that_json_rpc_gives_it() {
        for (body, expected) in [
            ("", PARSE_ERROR),
            ("{", PARSE_ERROR),
            ("nonsense", PARSE_ERROR),
            ("42", INVALID_REQUEST),
            ("null", INVALID_REQUEST),
            ("[]", INVALID_REQUEST),
            (r#"{"id":1,"method":"ping"}"#, INVALID_REQUEST),
            (
                r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
                INVALID_REQUEST,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1}"#, INVALID_REQUEST),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1}}"#,
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":[]}}"#,
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#,
                INVALID_PARAMS,
            ),
        ] {
            assert_eq!(code(&[], body), Some(expected), "{body}");
        }
    }

    #[test]
    fn nesting_beyond_the_limit_is_no_json() {
        let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
        assert_eq!(code(&[], &deep), Some(PARSE_ERROR));
    }

    #[test]
    fn an_unreadable_id_is_null_before_2026_and_left_out_since() {
        let body = |version| {
            let fault = read_with(&[(VERSION_HEADER, version)], "{").unwrap_err();
            let reply = fault.reply();
            serde_json::from_slice::<Value>(&reply.into_body().into_bytes()).unwrap()
        };
        assert_eq!(body("2025-06-18").get("id"), Some(&Value::Null));
        assert_eq!(body("2026-07-28").get("id"), None);
    }

    #[test]
    fn the_era_is_decided_by_the_requests_own_metadata_then_by_the_header() {
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let init = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
        let modern = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"_meta":{{"{VERSION_META}":"2026-07-28"}}}}}}"#
        );
        let era = |version: Option<&str>, body: &str| {
            let pairs: Vec<_> = version.map(|v| (VERSION_HEADER, v)).into_iter().collect();
            read_with(&pairs, body).unwrap().era
        };
        assert_eq!(era(None, list), Era::Handshake);
        assert_eq!(era(Some("2025-11-25"), list), Era::Handshake);
        assert_eq!(era(Some("2026-07-28"), list), Era::PerRequest);
        assert_eq!(era(Some("2099-01-01"), list), Era::PerRequest);
        assert_eq!(era(Some("2026-07-28"), init), Era::Handshake);
        assert_eq!(era(None, &modern), Era::PerRequest);
    }

    #[test]
    fn a_header_that_names_no_served_revision_is_refused() {
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        for version in ["foobar", "2025-01-01", "2025", ""] {
            assert_eq!(
                code(&[(VERSION_HEADER, version)], list),
                Some(INVALID_REQUEST),
                "{version}"
            );
        }
        for version in &SERVED_VERSIONS[..4] {
            assert_eq!(code(&[(VERSION_HEADER, version)], list), None, "{version}");
        }
    }

    #[test]
    fn any_visible_session_id_is_taken_and_no_other() {
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let long = "a".repeat(257);
        for (session, expected) in [
            ("mcp-session-1", None),
            ("gone", None),
            ("a b", Some(INVALID_REQUEST)),
            ("", Some(INVALID_REQUEST)),
            (long.as_str(), Some(INVALID_REQUEST)),
        ] {
            assert_eq!(
                code(&[(SESSION_HEADER, session)], list),
                expected,
                "{session}"
            );
        }
    }

    #[test]
    fn doubled_routing_headers_are_refused() {
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let pairs = [
            (VERSION_HEADER, "2026-07-28"),
            ("mcp-method", "tools/list"),
            ("mcp-method", "tools/call"),
        ];
        assert_eq!(code(&pairs, list), Some(HEADER_MISMATCH));
    }

    #[test]
    fn arguments_that_are_null_or_json_text_are_mended() {
        let mended = |arguments: Value| {
            let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": { "name": "retrieve", "arguments": arguments } });
            match read_with(&[], &body.to_string()).unwrap().message {
                Message::Request { replaced, .. } => replaced.map(|body| body["params"].clone()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(mended(Value::Null), Some(json!({ "name": "retrieve" })));
        assert_eq!(
            mended(json!("{\"query\":\"x\"}")),
            Some(json!({ "name": "retrieve", "arguments": { "query": "x" } }))
        );
        assert_eq!(mended(json!({ "query": "x" })), None);
    }

    #[test]
    fn only_the_revision_with_batches_takes_them() {
        let batch =
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"n"},7]"#;
        for pairs in [&[][..], &[(VERSION_HEADER, "2025-03-26")]] {
            let Ok(Body::Batch(elements)) = read_body(pairs, batch) else {
                panic!("{pairs:?}")
            };
            let kinds: Vec<bool> = elements.iter().map(Result::is_ok).collect();
            assert_eq!(kinds, [true, true, false]);
        }
        for version in [
            "2024-11-05",
            "2025-06-18",
            "2025-11-25",
            "2026-07-28",
            "2099-01-01",
            "",
        ] {
            let refused = read_body(&[(VERSION_HEADER, version)], batch);
            assert_eq!(refused.unwrap_err().code, INVALID_REQUEST, "{version}");
        }
    }

    #[test]
    fn a_batch_that_is_empty_too_long_or_opens_a_session_is_refused_whole() {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let initialize = r#"[{"jsonrpc":"2.0","id":1,"method":"initialize"}]"#.to_owned();
        let long = format!("[{}]", vec![ping; BATCH_MAX_MESSAGES + 1].join(","));
        for body in ["[]".to_owned(), long, initialize] {
            assert_eq!(
                read_body(&[], &body).unwrap_err().code,
                INVALID_REQUEST,
                "{body}"
            );
        }
    }

    #[test]
    fn a_message_without_id_is_a_notification_whatever_its_method() {
        let body = r#"{"jsonrpc":"2.0","method":"notifications/anything"}"#;
        let envelope = read_with(&[], body).unwrap();
        assert_eq!(
            envelope.message,
            Message::Notification {
                method: "notifications/anything".to_owned()
            }
        );
    }

    proptest! {
        #[test]
        #[test]
        fn no_json_makes_the_reader_panic(text in "[\\[\\]{}\":,0-9a-z\\\\._/]{0,80}") {
            let _ = read_body(&[], &text);
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{text}}}"#);
            let _ = read_body(&[], &body);
        }
    }
}
