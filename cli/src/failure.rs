//! Failures that scripts tell apart by the exit code.

use raglan_store::StoreError;

use crate::Outcome;
use crate::language::text;

/// A failure with an exit code of its own; every other one is [`Outcome::Failed`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The command line does not say enough, or too much.
    #[error("{0}")]
    Usage(String),
    /// There is no such key, knowledge base or deployment.
    #[error("{0}")]
    NotFound(String),
    /// A rule forbids it, nobody confirmed it, or somebody else was faster.
    #[error("{0}")]
    Refused(String),
}

/// The outcome that an error stands for.
#[must_use]
pub fn outcome_of(error: &anyhow::Error) -> Outcome {
    match error.downcast_ref::<Failure>() {
        Some(Failure::Usage(_)) => Outcome::Usage,
        Some(Failure::NotFound(_)) => Outcome::NotFound,
        Some(Failure::Refused(_)) => Outcome::Refused,
        None => Outcome::Failed,
    }
}

/// A lost race is something that the operator has to look at, not a fault.
#[must_use]
pub fn of_change(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::Conflict { .. } => Failure::Refused(
            text!(
                "somebody else changed it in the meantime: nothing was written; look at it and \
                 repeat"
            )
            .to_owned(),
        )
        .into(),
        error => error.into(),
    }
}
