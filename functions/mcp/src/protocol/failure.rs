//! The table that turns a tool's failure into what the caller is told. Only sentences that are written
//! here leave the process; the cause is logged once.

use raglan_core::access::Denial;
use raglan_rag::backend::BackendError;
use raglan_texts::{Language, text};
use rmcp::model::{ErrorCode, ErrorData};

use super::exchange::Exchange;
use crate::ask_gate::AskRefused;
use crate::cursor::InvalidCursor;
use crate::record::CallRecord;
use crate::tools::ToolError;

/// Why a call has no output.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The tool says why.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// It was still at work when its time was over.
    #[error("the call did not end in time")]
    TimedOut,
    /// It panicked.
    #[error("the call panicked")]
    Panicked,
}

/// What the caller is told.
pub enum Told {
    /// A JSON-RPC error.
    Protocol(ErrorData),
    /// A tool result with `isError`, which the caller's model reads.
    Result {
        /// One stable word.
        class: &'static str,
        /// Whether the same call may succeed a moment later.
        retryable: bool,
        /// A sentence that the model can act on.
        message: String,
    },
}

/// [`tell`] for methods that have no result with `isError`.
pub fn tell_in_protocol(failure: &Failure, exchange: &Exchange) -> ErrorData {
    match tell(failure, exchange) {
        Told::Protocol(error) => error,
        Told::Result {
            class: "invalid_arguments",
            message,
            ..
        } => {
            exchange.record.failed("invalid_arguments");
            ErrorData::invalid_params(message, None)
        }
        Told::Result { class, message, .. } => {
            exchange.record.failed(class);
            ErrorData::internal_error(message, None)
        }
    }
}

/// The table.
pub fn tell(failure: &Failure, exchange: &Exchange) -> Told {
    match failure {
        Failure::Tool(error) => tell_of_tool(error, exchange),
        Failure::TimedOut => neutral(failure, exchange, TIMEOUT),
        Failure::Panicked => {
            let request_id = &exchange.request_id;
            tracing::error!(%request_id, "a tool panicked");
            exchange.record.failed("internal_error");
            let message = text!(
                exchange.language,
                "Something went wrong here (request {request_id}).",
                request_id
            );
            Told::Protocol(ErrorData::internal_error(message, None))
        }
    }
}

/// The part of the table for what a tool says itself.
fn tell_of_tool(error: &ToolError, exchange: &Exchange) -> Told {
    let (record, language) = (&exchange.record, exchange.language);
    match error {
        ToolError::Denied(denial) => Told::Protocol(denied(record, *denial, language)),
        ToolError::InvalidCursor(InvalidCursor) => {
            record.failed("invalid_cursor");
            let message = text!(
                language,
                "the cursor is not valid here: repeat the call without it"
            );
            Told::Protocol(ErrorData::invalid_params(message, None))
        }
        ToolError::InvalidArguments(error) => Told::Result {
            class: "invalid_arguments",
            retryable: false,
            message: error.told(language),
        },
        ToolError::QuotaUsedUp(used_up) => {
            record.limited("daily_quota_used_up");
            Told::Result {
                class: "daily_quota_used_up",
                retryable: false,
                message: used_up.told(language),
            }
        }
        ToolError::AskRefused(refused) => {
            let class = match refused {
                AskRefused::OtherArguments => "idempotency_key_reused",
                AskRefused::InProgress => "idempotent_call_in_progress",
                AskRefused::TooManyAtOnce(_) => {
                    record.limited("too_many_at_once");
                    "too_many_at_once"
                }
            };
            Told::Result {
                class,
                retryable: *refused != AskRefused::OtherArguments,
                message: refused.told(language),
            }
        }
        ToolError::Store(error) => {
            let request_id = &exchange.request_id;
            tracing::error!(%request_id, %error, "the store could not be asked");
            record.store_failed();
            Told::Protocol(ErrorData::internal_error(
                text!(language, "temporarily unavailable"),
                None,
            ))
        }
        ToolError::UnsupportedFilter { kb_id, filter } => Told::Result {
            class: "unsupported_filter",
            retryable: false,
            message: text!(
                language,
                "Knowledge base `{kb_id}` cannot filter by `{filter}`. Leave that filter out, or \
                 name other knowledge bases in `kb_id`.",
                kb_id,
                filter
            ),
        },
        ToolError::Backend(BackendError::TimedOut(_)) => neutral(error, exchange, TIMEOUT),
        ToolError::Backend(BackendError::Unsupported(_)) => neutral(error, exchange, UNSUPPORTED),
        ToolError::Backend(
            BackendError::Unavailable(_)
            | BackendError::Throttled
            | BackendError::UnreadableAnswer(_),
        ) => neutral(error, exchange, UNAVAILABLE),
        ToolError::Backend(
            BackendError::UnusableIndex(_)
            | BackendError::UnknownKnowledgeBase(_)
            | BackendError::Refused(_),
        )
        | ToolError::UnknownBackend(_) => neutral(error, exchange, MISCONFIGURED),
        // A search names the knowledge base; nothing else filters.
        ToolError::Backend(BackendError::UnsupportedFilter(_))
        | ToolError::Random(_)
        | ToolError::UnreadableResult
        | ToolError::ResultTooLarge(_) => neutral(error, exchange, INTERNAL),
    }
}

/// What callers are told where the cause is not for them: class, whether to try again, sentence.
type Neutral = (&'static str, bool, fn(Language) -> &'static str);

const TIMEOUT: Neutral = ("backend_timeout", true, |language| {
    text!(
        language,
        "The search did not end in time. Try again, with a narrower question or fewer knowledge bases."
    )
});
const UNSUPPORTED: Neutral = ("unsupported_by_backend", false, |language| {
    text!(
        language,
        "The search engine behind this knowledge base cannot do this. retrieve and ask work with every \
         knowledge base."
    )
});
const UNAVAILABLE: Neutral = ("backend_unavailable", true, |language| {
    text!(
        language,
        "The search engine behind this knowledge base cannot be reached right now. This does not mean \
         that nothing is there: try again shortly."
    )
});
const MISCONFIGURED: Neutral = ("backend_misconfigured", false, |language| {
    text!(
        language,
        "This knowledge base cannot be searched until its operator has mended it. Trying again will not \
         help."
    )
});
const INTERNAL: Neutral = ("internal_error", false, |language| {
    text!(language, "Something went wrong here.")
});

/// Logs the cause, and tells the caller a sentence that holds nothing of it.
fn neutral(cause: &dyn std::error::Error, exchange: &Exchange, told: Neutral) -> Told {
    let (class, retryable, message) = told;
    let (language, request_id) = (exchange.language, &exchange.request_id);
    tracing::error!(%request_id, error = %cause, class, "a tool call failed");
    Told::Result {
        class,
        retryable,
        message: text!(
            language,
            "{message} (request {request_id})",
            message = message(language),
            request_id
        ),
    }
}

/// A refusal: "not permitted" and "does not exist" are the same bytes.
pub fn denied(record: &CallRecord, denial: Denial, language: Language) -> ErrorData {
    let (class, message) = match denial {
        Denial::ToolNotAllowed => ("tool_not_allowed", text!(language, "tool not allowed")),
        Denial::KnowledgeBase => (
            "knowledge_base_not_permitted",
            text!(language, "knowledge base not found or not permitted"),
        ),
        Denial::Task => ("task_not_permitted", text!(language, "task not found")),
    };
    record.denied(class);
    ErrorData::new(ErrorCode(Denial::CODE), message, None)
}
