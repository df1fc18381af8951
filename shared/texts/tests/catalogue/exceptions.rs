//! What stays English, and why.

/// A sentence that nobody but an operator of the function reads, or none at all.
pub struct Exception {
    /// The file, from the repository's root.
    pub file: &'static str,
    /// The sentence, or its beginning.
    pub text: &'static str,
}

const fn exception(file: &'static str, text: &'static str) -> Exception {
    Exception { file, text }
}

/// Files in which nothing is said to people or models that goes through `text!`.
pub const FILES: &[&str] = &[
    // The line that ends the start is a log entry, and may be about the language itself.
    "functions/mcp/src/config.rs",
    // The template is a part of the program: an error in it is one of ours, and a test finds it.
    "cli/src/local/template.rs",
];

const ISSUER_KEYS: &str = "functions/mcp/src/oauth/issuer_keys.rs";

/// Every exception.
pub const SENTENCES: &[Exception] = &[
    // What Prometheus reads, and the name of a key.
    exception("cli/src/dev/metrics.rs", "A number"),
    exception("cli/src/doctor/mod.rs", "raglan doctor"),
    // Causes, for the log.
    exception("functions/mcp/src/limit.rs", "the state table"),
    exception(
        "functions/mcp/src/limit.rs",
        "no answer within {PATIENCE:?}",
    ),
    exception(ISSUER_KEYS, "its keys are not served over https"),
    exception(ISSUER_KEYS, "the metadata is of another issuer"),
    exception(ISSUER_KEYS, "no metadata"),
    exception(
        "functions/mcp/src/tools/document_listing.rs",
        "list documents",
    ),
    exception(
        "functions/mcp/src/tools/document_listing.rs",
        "a position of {next_bytes} bytes",
    ),
    // What the runtime reports of an event that is none.
    exception(
        "functions/mcp/src/function_url.rs",
        "headers by their names",
    ),
    exception(
        "functions/mcp/src/lambda.rs",
        "the payload was readable a moment ago",
    ),
    // The line that ends the start.
    exception(
        "functions/mcp/src/answers/mod.rs",
        "ANSWERS.type: this build has no adapter for bedrock",
    ),
    // A fault of our own wiring, which no request can bring about.
    exception("functions/mcp/src/protocol/exchange.rs", "no caller"),
    // Names of keys, which the audit trail and a later run know them by.
    exception("cli/src/dev/mod.rs", "raglan dev"),
    exception("cli/src/stdio/mod.rs", "raglan stdio"),
    // The name of the sample, and what it is asked: its documents are in two languages anyway.
    exception(
        "cli/src/dev/mod.rs",
        "Handbook of Lindqvist & Mao Instruments",
    ),
    exception("cli/src/dev/tour.rs", "torque of the hinge bolt"),
    exception(
        "cli/src/dev/tour.rs",
        "How long can the old key stay valid after a rotation?",
    ),
    exception("cli/src/bench/mod.rs", "torque of the hinge bolt"),
    exception(
        "cli/src/bench/mod.rs",
        "How long can the old key stay valid after a rotation?",
    ),
    exception("cli/src/bench/mod.rs", "Who approves travel expenses?"),
    // A client's name, and code to paste.
    exception("cli/src/connect.rs", "LangChain MCP adapters"),
    exception("cli/src/connect.rs", "# pip install langchain-mcp-adapters"),
    exception("cli/src/connect.rs", "# pip install openai-agents"),
    // A command.
    exception(
        "cli/src/connect.rs",
        "claude mcp add --transport http {NAME} {url} --header \"Authorization: {bearer}\"",
    ),
    // A header.
    exception(
        "functions/mcp/src/edge.rs",
        "authorization, x-api-key, content-type, accept, mcp-protocol-version, mcp-session-id, \
         mcp-method, mcp-name, last-event-id, traceparent, tracestate",
    ),
];
