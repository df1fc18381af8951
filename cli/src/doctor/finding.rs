//! What a check has found.

use serde::Serialize;

/// How serious it is, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// It could not be checked.
    Skipped,
    /// It works, and somebody should look at it.
    Warning,
    /// It does not work, or it is about to lose something.
    Failed,
}

impl State {
    /// As people see it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
            Self::Failed => "FAILED",
        }
    }
}

/// The result of one check. The fields are stable: scripts read them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked, in `snake_case`.
    pub check: &'static str,
    /// How serious it is.
    pub state: State,
    /// What was found, one sentence.
    pub detail: String,
    /// What to do about it, one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// As it should be.
    #[must_use]
    pub fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self {
            check,
            state: State::Ok,
            detail: detail.into(),
            advice: None,
        }
    }

    /// Not checked.
    #[must_use]
    pub fn skipped(check: &'static str, detail: impl Into<String>, advice: &str) -> Self {
        Self::with(State::Skipped, check, detail, advice)
    }

    /// To be looked at.
    #[must_use]
    pub fn warning(check: &'static str, detail: impl Into<String>, advice: &str) -> Self {
        Self::with(State::Warning, check, detail, advice)
    }

    /// Broken.
    #[must_use]
    pub fn failed(check: &'static str, detail: impl Into<String>, advice: &str) -> Self {
        Self::with(State::Failed, check, detail, advice)
    }

    fn with(state: State, check: &'static str, detail: impl Into<String>, advice: &str) -> Self {
        Self {
            check,
            state,
            detail: detail.into(),
            advice: Some(advice.to_owned()),
        }
    }
}
