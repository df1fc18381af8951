//! What can go wrong with a table or the queue, by cause.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;

/// A call to a table or to the queue failed. The texts name tables, operations and AWS error codes;
/// they never hold what is stored, and never a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Nobody answered in time, or the service answered with a failure of its own. Trying later helps.
    #[error("{operation} on {resource}: the service cannot be reached ({cause})")]
    Unavailable {
        /// The AWS operation.
        operation: &'static str,
        /// The table's name or the queue's URL.
        resource: String,
        /// What happened on the way: a connection error, a timeout, an HTTP status.
        cause: String,
    },
    /// The service asks for fewer calls. Trying later helps.
    #[error("{operation} on {resource}: throttled")]
    Throttled {
        /// The AWS operation.
        operation: &'static str,
        /// The table's name or the queue's URL.
        resource: String,
    },
    /// The credentials are wrong or do not allow this.
    #[error("{operation} on {resource}: access denied ({code})")]
    Denied {
        /// The AWS operation.
        operation: &'static str,
        /// The table's name or the queue's URL.
        resource: String,
        /// The AWS error code.
        code: String,
    },
    /// There is no such table or queue.
    #[error("{operation} on {resource}: no such table or queue")]
    NotFound {
        /// The AWS operation.
        operation: &'static str,
        /// The table's name or the queue's URL.
        resource: String,
    },
    /// The record is there and cannot be read.
    #[error("the record of {record} in {resource} cannot be read")]
    Corrupt {
        /// The table's name.
        resource: String,
        /// Which record: an identifier or a fingerprint.
        record: String,
    },
    /// The record is not in the state that the change expects: it exists already, is gone, or was
    /// changed by somebody else at the same time.
    #[error("{operation} on {resource}: the record exists already or was changed meanwhile")]
    Conflict {
        /// The AWS operation.
        operation: &'static str,
        /// The table's name.
        resource: String,
    },
    /// The record or message is larger than what may be stored or sent.
    #[error("{size_bytes} bytes for {resource}, at most {limit_bytes} are possible")]
    TooLarge {
        /// The table's name or the queue's URL.
        resource: String,
        /// Its size.
        size_bytes: usize,
        /// The largest possible size.
        limit_bytes: usize,
    },
    /// The service refuses the call for a reason that only a change of the program can remove.
    #[error("{operation} on {resource}: refused ({code})")]
    Refused {
        /// The AWS operation.
        operation: &'static str,
        /// The table's name or the queue's URL.
        resource: String,
        /// The AWS error code.
        code: String,
    },
}

impl StoreError {
    /// Whether the same call may succeed a little later.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Throttled { .. })
    }

    /// One word for the log and the metrics.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "store_unavailable",
            Self::Throttled { .. } => "store_throttled",
            Self::Denied { .. } => "store_denied",
            Self::NotFound { .. } => "store_not_found",
            Self::Corrupt { .. } => "store_corrupt",
            Self::Conflict { .. } => "store_conflict",
            Self::TooLarge { .. } => "store_too_large",
            Self::Refused { .. } => "store_refused",
        }
    }

    /// From the SDK's error of one call.
    #[must_use]
    pub fn of_call<E>(
        operation: &'static str,
        resource: &str,
        error: &SdkError<E, HttpResponse>,
    ) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let resource = resource.to_owned();
        let SdkError::ServiceError(service) = error else {
            let cause = causes(error);
            return Self::Unavailable {
                operation,
                resource,
                cause,
            };
        };
        let status = service.raw().status().as_u16();
        match service.err().code() {
            Some(code) => Self::of_code(operation, resource, code, status),
            None => Self::Unavailable {
                operation,
                resource,
                cause: format!("HTTP {status}"),
            },
        }
    }

    /// From the SDK's error of a transaction, which holds one reason for each of its parts.
    pub(crate) fn of_transaction(
        resource: &str,
        error: &SdkError<TransactWriteItemsError, HttpResponse>,
    ) -> Self {
        let operation = "TransactWriteItems";
        if let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
            error.as_service_error()
        {
            let mut codes = cancelled
                .cancellation_reasons()
                .iter()
                .filter_map(|reason| reason.code());
            if let Some(code) = codes.find(|code| *code != "None") {
                let code = match code {
                    "ConditionalCheckFailed" | "TransactionConflict" | "DuplicateItem" => {
                        "ConditionalCheckFailedException"
                    }
                    "ProvisionedThroughputExceeded" | "ThrottlingError" => "ThrottlingException",
                    other => other,
                };
                return Self::of_code(operation, resource.to_owned(), code, 400);
            }
        }
        Self::of_call(operation, resource, error)
    }

    fn of_code(operation: &'static str, resource: String, code: &str, status: u16) -> Self {
        // SQS prefixes its codes: `AWS.SimpleQueueService.NonExistentQueue`, `com.amazonaws.sqs#…`.
        let name = code.rsplit(['.', '#']).next().unwrap_or(code);
        match name {
            "ConditionalCheckFailedException"
            | "TransactionConflictException"
            | "TransactionInProgressException" => Self::Conflict {
                operation,
                resource,
            },
            "ProvisionedThroughputExceededException"
            | "ThrottlingException"
            | "RequestLimitExceeded"
            | "RequestThrottled"
            | "KmsThrottled"
            | "OverLimit" => Self::Throttled {
                operation,
                resource,
            },
            "AccessDeniedException"
            | "AccessDenied"
            | "UnrecognizedClientException"
            | "InvalidClientTokenId"
            | "InvalidSignatureException"
            | "SignatureDoesNotMatch"
            | "IncompleteSignatureException"
            | "IncompleteSignature"
            | "MissingAuthenticationTokenException"
            | "ExpiredTokenException"
            | "ExpiredToken"
            | "KmsAccessDenied" => Self::Denied {
                operation,
                resource,
                code: name.to_owned(),
            },
            "ResourceNotFoundException" | "NonExistentQueue" | "QueueDoesNotExist" => {
                Self::NotFound {
                    operation,
                    resource,
                }
            }
            _ if status >= 500 => Self::Unavailable {
                operation,
                resource,
                cause: format!("HTTP {status}, {name}"),
            },
            _ => Self::Refused {
                operation,
                resource,
                code: name.to_owned(),
            },
        }
    }
}

/// The chain of an error that happened before there was an answer: connection, timeout, credentials.
/// On one line, although the SDK reports missing credentials on several.
#[must_use]
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
