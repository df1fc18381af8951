//! What stays English, and why.

/// A sentence that nobody but an operator of the function reads, or none at all.
pub struct Exception {
    /// The file, from the repository's root.
    pub file: &'static str,
    /// The sentence.
    pub text: &'static str,
}

const fn exception(file: &'static str, text: &'static str) -> Exception {
    Exception { file, text }
}

const CONFIG: &str = "functions/mcp/src/config.rs";
const ISSUER_KEYS: &str = "functions/mcp/src/oauth/issuer_keys.rs";

/// Every exception.
pub const SENTENCES: &[Exception] = &[
    // The line that ends the start is a log entry, and may be about the language itself.
    exception(CONFIG, "{NAME} is shorter than {SECRET_MIN_BYTES} bytes"),
    exception(
        CONFIG,
        "{NAME} has {part:?}, expected none or tool=calls, as in ask=500,retrieve=5000",
    ),
    exception(
        CONFIG,
        "{NAME} is {other:?}, expected open_for_cheap or closed",
    ),
    exception(CONFIG, "{name} is {value:?}, expected an https URL"),
    exception(CONFIG, "OAUTH_ISSUER is set, but OAUTH_RESOURCE is not"),
    exception(CONFIG, "OAUTH_RESOURCE is set, but OAUTH_ISSUER is not"),
    // Causes, for the log.
    exception("functions/mcp/src/limit.rs", "the state table"),
    exception(
        "functions/mcp/src/limit.rs",
        "no answer within {PATIENCE:?}",
    ),
    exception(ISSUER_KEYS, "its keys are not served over https"),
    exception(ISSUER_KEYS, "the metadata is of another issuer"),
    exception(ISSUER_KEYS, "no metadata"),
    // A fault of our own wiring, which no request can bring about.
    exception("functions/mcp/src/protocol/exchange.rs", "no caller"),
    // A header.
    exception(
        "functions/mcp/src/edge.rs",
        "authorization, x-api-key, content-type, accept, mcp-protocol-version, mcp-session-id, \
         mcp-method, mcp-name, last-event-id, traceparent, tracestate",
    ),
];
