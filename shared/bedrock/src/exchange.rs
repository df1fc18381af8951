//! One call of Bedrock: bounded in time and size, counted by a circuit breaker, and translated into what
//! [`raglan_rag::backend`] knows.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_bedrockagentruntime::config::http::HttpResponse;
use aws_sdk_bedrockagentruntime::error::{ProvideErrorMetadata, SdkError};
use http::{HeaderName, HeaderValue};
use raglan_aws::CallLimits;
use raglan_core::clock::Clock;
use raglan_engines::breaker::{CircuitBreaker, NotNow};
use raglan_engines::call::{CallError, ExchangeLimits};
use raglan_outbound::OutboundError;
use raglan_rag::backend::{BackendError, EngineCall};
use raglan_store::error::causes;
use tokio::time::Instant;

/// We stop a little before the caller does, so that the breaker learns of a service that hangs.
const MARGIN: Duration = Duration::from_millis(20);
/// A call that could take less than this is not begun.
const LEAST_TIME: Duration = Duration::from_millis(50);
/// A service that did not answer within less than this is not blamed: the caller was in a hurry.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);
/// How much of the service's own message goes to the log, in characters.
const MESSAGE_MAX_CHARS: usize = 300;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Until when the calls that belong to one request may take, and what they belong to.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    at: Instant,
    time_left: Duration,
    limits: ExchangeLimits,
    traceparent: Option<String>,
}

impl Deadline {
    pub(crate) fn of(call: &EngineCall, limits: ExchangeLimits) -> Self {
        Self {
            at: Instant::now() + call.time_left.saturating_sub(MARGIN),
            time_left: call.time_left,
            limits,
            traceparent: call.traceparent.clone(),
        }
    }

    pub(crate) fn has_more_than(&self, time: Duration) -> bool {
        self.at.saturating_duration_since(Instant::now()) > time + LEAST_TIME
    }

    /// What the next call may take.
    ///
    /// # Errors
    /// [`BackendError::TimedOut`] when there is no time for one.
    pub(crate) fn bounds(&self) -> Result<CallLimits, CallError> {
        let time = self.at.saturating_duration_since(Instant::now());
        if time < LEAST_TIME {
            return Err(BackendError::TimedOut(self.time_left).into());
        }
        let traceparent = self.traceparent.as_deref();
        let traceparent = traceparent.and_then(|value| HeaderValue::from_str(value).ok());
        Ok(CallLimits {
            time,
            attempt_time: self.limits.attempt_timeout.min(time),
            response_max_bytes: self.limits.response_max_bytes,
            header: traceparent.map(|value| (TRACEPARENT, value)),
            ..CallLimits::default()
        })
    }
}

/// The breaker of one of the services, and what it takes to use it.
pub(crate) struct Guard {
    engine: String,
    breaker: CircuitBreaker,
    clock: Arc<dyn Clock>,
}

impl Guard {
    pub(crate) fn new(engine: String, clock: Arc<dyn Clock>) -> Self {
        Self {
            engine,
            breaker: CircuitBreaker::default(),
            clock,
        }
    }

    /// Waits for a call, when the service is not being left alone.
    ///
    /// # Errors
    /// [`CallError`]
    pub(crate) async fn run<T, E>(
        &self,
        operation: &'static str,
        time: Duration,
        call: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    ) -> Result<T, CallError>
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let permit = self.breaker.permit(self.clock.now());
        let permit = permit.map_err(|not_now| match not_now {
            NotNow::Held => BackendError::Throttled,
            NotNow::Open => BackendError::Unavailable(format!(
                "{} failed several times in a row and is left alone for a while",
                self.engine
            )),
        })?;
        let failure = match call.await {
            Ok(output) => {
                permit.succeeded();
                return Ok(output);
            }
            Err(error) => Failure::of(operation, time, &error),
        };
        match failure.blame {
            Blame::Service => {
                if permit.failed(self.clock.now()) {
                    tracing::warn!(engine = %self.engine, error = %failure.error, "the circuit of an engine is open");
                }
            }
            Blame::Nobody => drop(permit),
            Blame::Request => permit.succeeded(),
        }
        Err(failure.error)
    }
}

struct Failure {
    error: CallError,
    blame: Blame,
}

enum Blame {
    /// It is not there, or broken.
    Service,
    /// It is there and does not like what it was asked.
    Request,
    /// It was not asked properly: nothing is known about it.
    Nobody,
}

impl Failure {
    fn of<E>(operation: &'static str, time: Duration, error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let unavailable = |blame| Self {
            error: BackendError::Unavailable(format!("{operation}: {}", short_causes(error)))
                .into(),
            blame,
        };
        match error {
            SdkError::ServiceError(service) => {
                let status = service.raw().status().as_u16();
                Self::of_service(operation, status, service.err())
            }
            SdkError::TimeoutError(_) => Self {
                error: BackendError::TimedOut(time).into(),
                blame: if time < LEAST_PATIENCE {
                    Blame::Nobody
                } else {
                    Blame::Service
                },
            },
            SdkError::ResponseError(response) => Self {
                error: BackendError::UnreadableAnswer(format!(
                    "{operation}, HTTP {}: {}",
                    response.raw().status().as_u16(),
                    short_causes(error)
                ))
                .into(),
                blame: Blame::Service,
            },
            SdkError::DispatchFailure(_) if is_too_large(error) => Self {
                error: BackendError::UnreadableAnswer(format!(
                    "{operation}: {}",
                    short_causes(error)
                ))
                .into(),
                blame: Blame::Request,
            },
            SdkError::DispatchFailure(dispatch) if dispatch.is_timeout() => Self {
                error: BackendError::TimedOut(time).into(),
                blame: Blame::Service,
            },
            // No credentials, no certificates: this machine's fault.
            SdkError::DispatchFailure(dispatch) if dispatch.is_user() || dispatch.is_other() => {
                unavailable(Blame::Nobody)
            }
            SdkError::ConstructionFailure(_) => Self {
                error: BackendError::Refused(format!("{operation}: {}", short_causes(error)))
                    .into(),
                blame: Blame::Nobody,
            },
            _ => unavailable(Blame::Service),
        }
    }

    fn of_service(operation: &'static str, status: u16, error: &impl ProvideErrorMetadata) -> Self {
        let code = error.code().unwrap_or("without a code");
        // Some codes come with their namespace before them.
        let code = code.rsplit('#').next().unwrap_or(code);
        let message: String = error
            .message()
            .unwrap_or_default()
            .chars()
            .take(MESSAGE_MAX_CHARS)
            .collect();
        let told = format!("{operation}: {code}, HTTP {status}: {message:?}");
        let (error, blame) = match code {
            "ThrottlingException"
            | "ServiceQuotaExceededException"
            | "TooManyRequestsException" => (BackendError::Throttled.into(), Blame::Request),
            "ResourceNotFoundException" => (CallError::NotFound(told), Blame::Request),
            "ValidationException" => {
                let message = told;
                (CallError::Rejected { status, message }, Blame::Request)
            }
            // The service itself is well: the store, the function or the model behind it is not ready.
            "ConflictException"
            | "DependencyFailedException"
            | "ModelNotReadyException"
            | "ModelTimeoutException"
            | "ModelErrorException" => (BackendError::Unavailable(told).into(), Blame::Request),
            // Something else answered in the service's place.
            _ if status < 400 => (BackendError::UnreadableAnswer(told).into(), Blame::Request),
            _ if status >= 500 => (BackendError::Unavailable(told).into(), Blame::Service),
            // Rights, credentials, and whatever else trying again does not mend.
            _ => (BackendError::Refused(told).into(), Blame::Request),
        };
        Self { error, blame }
    }
}

fn is_too_large(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(OutboundError::TooLarge(_)) = error.downcast_ref() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The chain of causes on one line, cut.
fn short_causes(error: &dyn Error) -> String {
    causes(error).chars().take(MESSAGE_MAX_CHARS).collect()
}

#[cfg(test)]
mod tests;
