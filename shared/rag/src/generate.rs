//! What raglan asks of a language model that writes an answer, and what a model answers.
//!
//! Every interface to models implements [`Generator`]; nothing above this module knows which one it
//! talks to. What is asked is made elsewhere.

use std::time::Duration;

use futures::future::BoxFuture;

use crate::backend::{BackendError, EngineCall};

/// A language model that writes answers.
pub trait Generator: Send + Sync {
    /// Writes one answer within [`EngineCall::time_left`].
    ///
    /// A request is dear: it is repeated only when the model has certainly not worked on it
    /// (throttling, no connection).
    fn generate<'a>(
        &'a self,
        request: &'a GenerationRequest,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Generation, GenerationError>>;
}

/// What a model is asked.
///
/// In the order in which the model gets it: the system prompt, the earlier turns as messages of user
/// and assistant in turn, and one message of the user with the passages and, after them, the question.
/// Interfaces that tell grounding sources from the query (Bedrock's guardrails) send the last two as
/// parts of their own; the others send them as one text with an empty line between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationRequest {
    /// The system prompt: fixed, and without a word of callers or documents.
    pub system: String,
    /// The conversation so far, oldest first.
    pub earlier: Vec<Turn>,
    /// The passages, enclosed and numbered: data from documents.
    pub passages: String,
    /// The question, with what has to be said after the passages.
    pub question: String,
    /// Length of the answer in the model's tokens, at most.
    pub max_tokens: u32,
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// What was asked.
    pub question: String,
    /// The beginning of what was answered.
    pub answer: String,
}

/// What a model wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// The text. What the model thought before it wrote is not part of it where the interface tells
    /// the two apart.
    pub text: String,
    /// Why it ends.
    pub stopped: Stopped,
    /// The model, as it calls itself, or as it is configured.
    pub model: String,
    /// What it cost, where the interface tells.
    pub usage: Option<Usage>,
}

/// Why a text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The model was finished.
    Finished,
    /// It reached [`GenerationRequest::max_tokens`] or a limit of its own: the text is cut.
    TooLong,
    /// A content filter or a guardrail stepped in: the text is not the model's answer.
    Withheld,
    /// Something else, such as a call of a tool that nobody offered.
    Otherwise,
}

/// What an answer cost, in the model's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of what was asked.
    pub input_tokens: u64,
    /// Tokens of what was written, thinking included.
    pub output_tokens: u64,
}

/// Why a model wrote nothing. The texts are for the log; callers get an extractive answer and a warning.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// It did not answer in time.
    #[error("the model did not answer within {0:?}")]
    TimedOut(Duration),
    /// It asks to be left alone for a while.
    #[error("the model is throttling")]
    Throttled,
    /// It cannot be reached, or fails.
    #[error("the model is unavailable: {0}")]
    Unavailable(String),
    /// It refuses us or the request: credentials, rights, a setting, too long a prompt.
    #[error("the model refuses: {0}")]
    Refused(String),
    /// Its answer is not what its interface promises, or is too large.
    #[error("the model's answer cannot be read: {0}")]
    UnreadableAnswer(String),
}

impl From<BackendError> for GenerationError {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::TimedOut(time) => Self::TimedOut(time),
            BackendError::Throttled => Self::Throttled,
            BackendError::Unavailable(cause) => Self::Unavailable(cause),
            BackendError::UnreadableAnswer(cause) => Self::UnreadableAnswer(cause),
            other => Self::Refused(other.to_string()),
        }
    }
}
