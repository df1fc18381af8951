//! One exchange with an engine over HTTP: bounded in time and size, repeated where that helps, never
//! redirected, and translated into what [`raglan_rag::backend`] knows.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use raglan_aws::{AccountChoice, LazyAccount};
use raglan_core::clock::{Clock, Timestamp};
use raglan_core::random::Random;
use raglan_outbound::{Bounds, OutboundClient, OutboundError};
use raglan_rag::backend::{BackendError, EngineCall};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::time::Instant;

use crate::breaker::{CircuitBreaker, NotNow};
use crate::configuration::EngineUrl;
use crate::credentials::{CredentialReference, Credentials};
use crate::secret::Secret;

/// The first attempt and its repetitions.
const MAX_ATTEMPTS: u32 = 3;
/// The longest pause before the second attempt; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// An attempt that could take less than this is not begun.
const LEAST_ATTEMPT: Duration = Duration::from_millis(100);
/// We stop a little before the caller does, so that the breaker learns of an engine that hangs.
const MARGIN: Duration = Duration::from_millis(20);
/// An engine that did not answer within less than this is not blamed: the caller was in a hurry.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);
/// How much of an engine's own message goes to the log, in characters.
const MESSAGE_MAX_CHARS: usize = 200;
/// RFC 3986 §2.3: everything but unreserved characters is encoded.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// What all engines of a process share.
#[derive(Clone)]
pub struct Surroundings {
    /// Connections.
    pub outbound: Arc<OutboundClient>,
    /// Credentials.
    pub credentials: Arc<Credentials>,
    /// Region, credentials and connections of engines that are services of AWS.
    pub account: Arc<LazyAccount>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The randomness of pauses.
    pub random: Arc<dyn Random>,
}

impl Surroundings {
    /// Connections of their own, and the credentials that the environment leads to.
    #[must_use]
    pub fn from_environment(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        let account = LazyAccount::of(AccountChoice::default());
        Self::of_account(account, clock, random)
    }

    /// Connections of their own, and this account of AWS.
    #[must_use]
    pub fn of_account(
        account: LazyAccount,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        let account = Arc::new(account);
        let credentials = Credentials::of_account(Arc::clone(&account), Arc::clone(&clock));
        Self {
            outbound: Arc::default(),
            credentials: Arc::new(credentials),
            account,
            clock,
            random,
        }
    }
}

/// How a credential is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialHeader {
    /// `Authorization: Bearer …` (RFC 6750)
    Bearer,
    /// The credential alone in a header of this name, for example `api-key`.
    Plain(HeaderName),
}

/// How much one request may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeLimits {
    /// How long one attempt may take, at most; the caller's deadline may be earlier.
    pub attempt_timeout: Duration,
    /// Size of the answer's body.
    pub response_max_bytes: usize,
}

/// Which HTTP status an answer means, by the one that it came with and its JSON. For engines that answer
/// 200 whatever happens, and for errors that are more precise than their status.
pub type MeantStatus = fn(StatusCode, &Value) -> StatusCode;

/// A request to an engine: always a read, whatever its method.
#[derive(Debug, Clone)]
pub struct EngineRequest {
    method: Method,
    /// `None` when an identifier cannot be a segment of a path: no engine has such a thing.
    path: Option<String>,
    query: String,
    body: Option<Value>,
    header: Option<(HeaderName, HeaderValue)>,
    meant_status: Option<MeantStatus>,
    max_attempts: u32,
}

impl EngineRequest {
    /// GET, with a path of these segments below the engine's URL.
    #[must_use]
    pub fn get(segments: &[&str]) -> Self {
        Self {
            method: Method::GET,
            path: path(segments),
            query: String::new(),
            body: None,
            header: None,
            meant_status: None,
            max_attempts: MAX_ATTEMPTS,
        }
    }

    /// POST with a JSON body.
    #[must_use]
    pub fn post(segments: &[&str], body: Value) -> Self {
        Self {
            method: Method::POST,
            body: Some(body),
            ..Self::get(segments)
        }
    }

    /// With a parameter in the URL.
    #[must_use]
    pub fn with_parameter(mut self, name: &str, value: &str) -> Self {
        self.query
            .push(if self.query.is_empty() { '?' } else { '&' });
        self.query.push_str(name);
        self.query.push('=');
        self.query.extend(utf8_percent_encode(value, SEGMENT));
        self
    }

    /// With one header more.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.header = Some((
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        ));
        self
    }

    /// With a look into the body of every answer before its status counts.
    #[must_use]
    pub const fn with_meant_status(mut self, meant_status: MeantStatus) -> Self {
        self.meant_status = Some(meant_status);
        self
    }

    /// Sent once, whatever happens: for requests that are too dear to repeat.
    #[must_use]
    pub const fn once(mut self) -> Self {
        self.max_attempts = 1;
        self
    }
}

/// A path of encoded segments, `/` before each. Dots alone mean other folders in a path, encoded or not.
fn path(segments: &[&str]) -> Option<String> {
    let mut path = String::new();
    for segment in segments {
        if matches!(*segment, "" | "." | "..") {
            return None;
        }
        path.push('/');
        path.extend(utf8_percent_encode(segment, SEGMENT));
    }
    Some(path)
}

/// Why an exchange gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// 404: there is no such knowledge base, document or route; only who asked can tell which.
    #[error("the engine answered 404: {0}")]
    NotFound(String),
    /// Another status from 400 to 499: the request is not to the engine's liking.
    #[error("the engine answered {status}: {message}")]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The engine's own message, shortened, for the log.
        message: String,
    },
    /// Everything that means the same wherever it happens.
    #[error(transparent)]
    Engine(#[from] BackendError),
}

impl CallError {
    /// In the words of [`Backend`](raglan_rag::backend::Backend), where a 404 means that this
    /// knowledge base does not exist.
    #[must_use]
    pub fn about(self, knowledge_base: &str) -> BackendError {
        match self {
            Self::NotFound(_) => BackendError::UnknownKnowledgeBase(knowledge_base.to_owned()),
            other => other.into(),
        }
    }

    /// In the same words, where a 404 means that the engine has no such operation.
    #[must_use]
    pub fn or_unsupported(self, what: &'static str) -> BackendError {
        match self {
            Self::NotFound(_) => BackendError::Unsupported(what),
            other => other.into(),
        }
    }
}

impl From<CallError> for BackendError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NotFound(_) | CallError::Rejected { .. } => Self::Refused(error.to_string()),
            CallError::Engine(error) => error,
        }
    }
}

/// The connection to one configured engine.
pub struct EngineClient {
    name: String,
    url: EngineUrl,
    credential: Option<CredentialReference>,
    credential_header: CredentialHeader,
    limits: ExchangeLimits,
    surroundings: Surroundings,
    breaker: CircuitBreaker,
}

impl EngineClient {
    /// The connection to the engine `name` at `url`. Nothing is opened or read yet.
    #[must_use]
    pub fn new(
        name: String,
        url: EngineUrl,
        credential: Option<CredentialReference>,
        credential_header: CredentialHeader,
        limits: ExchangeLimits,
        surroundings: Surroundings,
    ) -> Self {
        Self {
            name,
            url,
            credential,
            credential_header,
            limits,
            surroundings,
            breaker: CircuitBreaker::default(),
        }
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.surroundings.clock.now()
    }

    /// Sends a request and reads the JSON of a successful answer. The request is repeated up to twice
    /// while there is time, when the engine cannot be reached, is overloaded, or breaks off.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn send(
        &self,
        request: &EngineRequest,
        call: &EngineCall,
    ) -> Result<Value, CallError> {
        let deadline = Instant::now() + call.time_left.saturating_sub(MARGIN);
        let mut secret = match &self.credential {
            Some(reference) => {
                let credentials = &self.surroundings.credentials;
                let secret = credentials.get(reference, left(deadline)).await;
                Some(secret.map_err(BackendError::from)?)
            }
            None => None,
        };
        let mut attempt = 1;
        let mut may_renew = true;
        loop {
            let failure = match self.attempt(request, call, secret.as_ref(), deadline).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if let (true, true, Some(reference), Some(refused)) = (
                failure.is_unauthorized,
                may_renew,
                &self.credential,
                &secret,
            ) {
                may_renew = false;
                let credentials = &self.surroundings.credentials;
                match credentials.renew(reference, refused, left(deadline)).await {
                    Ok(Some(other)) => {
                        secret = Some(other);
                        continue;
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(engine = %self.name, %error, "a refused credential could not be read again");
                    }
                }
            }
            let Some(pause) = self.pause(request, attempt, &failure, deadline) else {
                if let Repeat::After(pause) = failure.repeat {
                    let now = self.surroundings.clock.now();
                    self.breaker.hold(now, pause.as_secs());
                }
                return Err(failure.error);
            };
            tracing::debug!(engine = %self.name, attempt, error = %failure.error, "a request to an engine is repeated");
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    /// One attempt, with the breaker asked before and told afterwards.
    async fn attempt(
        &self,
        request: &EngineRequest,
        call: &EngineCall,
        secret: Option<&Secret>,
        deadline: Instant,
    ) -> Result<Value, Failure> {
        let clock = &self.surroundings.clock;
        let permit = self.breaker.permit(clock.now()).map_err(|not_now| {
            Failure::last(match not_now {
                NotNow::Held => BackendError::Throttled,
                NotNow::Open => BackendError::Unavailable(format!(
                    "{} failed several times in a row and is left alone for a while",
                    self.name
                )),
            })
        })?;
        let time = self.limits.attempt_timeout.min(left(deadline));
        let outcome = self.exchange(request, call, secret, time).await;
        match &outcome {
            Err(failure) if failure.is_outage => {
                if permit.failed(clock.now()) {
                    tracing::warn!(engine = %self.name, error = %failure.error, "the circuit of an engine is open");
                }
            }
            // The caller was in a hurry: that says nothing about the engine.
            Err(failure) if failure.is_inconclusive => drop(permit),
            _ => permit.succeeded(),
        }
        outcome
    }

    async fn exchange(
        &self,
        request: &EngineRequest,
        call: &EngineCall,
        secret: Option<&Secret>,
        time: Duration,
    ) -> Result<Value, Failure> {
        let http_request = self.http_request(request, call, secret)?;
        let bounds = Bounds {
            time,
            response_max_bytes: self.limits.response_max_bytes,
        };
        let response = self.surroundings.outbound.send(http_request, bounds).await;
        let response = response.map_err(|error| Failure::of_transport(&error))?;
        self.read(request, &response, secret)
    }

    fn http_request(
        &self,
        request: &EngineRequest,
        call: &EngineCall,
        secret: Option<&Secret>,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let Some(path) = &request.path else {
            let error = CallError::NotFound("no engine has such an identifier".to_owned());
            return Err(Failure::last(error));
        };
        let url = format!("{}{path}{}", self.url, request.query);
        let mut builder = Request::builder()
            .method(request.method.clone())
            .uri(url)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("raglan/", env!("CARGO_PKG_VERSION")));
        if let Some((name, value)) = &request.header {
            builder = builder.header(name, value);
        }
        if let Some(traceparent) = &call.traceparent {
            builder = builder.header("traceparent", traceparent);
        }
        if let Some(secret) = secret {
            let (name, text) = match &self.credential_header {
                CredentialHeader::Bearer => (AUTHORIZATION, format!("Bearer {}", secret.expose())),
                CredentialHeader::Plain(name) => (name.clone(), secret.expose().to_owned()),
            };
            let mut value = HeaderValue::try_from(text).map_err(|_| {
                let message = "the credential holds characters that no header can carry";
                Failure::last(BackendError::Refused(message.to_owned()))
            })?;
            value.set_sensitive(true);
            builder = builder.header(name, value);
        }
        let body = match &request.body {
            Some(body) => {
                builder = builder.header(CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        builder.body(Full::new(body)).map_err(|error| {
            let message = format!("the request cannot be written: {error}");
            Failure::last(BackendError::Refused(message))
        })
    }

    /// The JSON of a successful answer, or what another answer means.
    fn read(
        &self,
        request: &EngineRequest,
        response: &Response<Bytes>,
        secret: Option<&Secret>,
    ) -> Result<Value, Failure> {
        let is_json = is_json(response.headers());
        let body = is_json.then(|| serde_json::from_slice::<Value>(response.body()));
        let status = match (request.meant_status, &body) {
            (Some(meant_status), Some(Ok(body))) => meant_status(response.status(), body),
            _ => response.status(),
        };
        if status.is_success() {
            let Some(body) = body else {
                let message = format!("{status} with a body that is not declared as JSON");
                return Err(Failure::last(BackendError::UnreadableAnswer(message)));
            };
            return body.map_err(|error| {
                // The parser names a position and never quotes the text.
                Failure::last(BackendError::UnreadableAnswer(error.to_string()))
            });
        }
        let body = body.and_then(Result::ok);
        let message = message(body.as_ref(), response.body().len(), secret);
        let answered = || format!("the engine answered {}: {message}", status.as_u16());
        Err(match status {
            StatusCode::NOT_FOUND => Failure::last(CallError::NotFound(message)),
            StatusCode::UNAUTHORIZED => Failure {
                is_unauthorized: true,
                ..Failure::last(BackendError::Refused(answered()))
            },
            StatusCode::FORBIDDEN => Failure::last(BackendError::Refused(answered())),
            StatusCode::TOO_MANY_REQUESTS => Failure {
                repeat: self.retry_after(response.headers()),
                ..Failure::last(BackendError::Throttled)
            },
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => Failure {
                repeat: Repeat::Soon,
                ..Failure::last(BackendError::Unavailable(answered()))
            },
            _ if status.is_server_error() => Failure {
                repeat: self.retry_after(response.headers()),
                is_outage: true,
                ..Failure::last(BackendError::Unavailable(answered()))
            },
            _ if status.is_redirection() => {
                let text = "the engine answered with a redirect, and redirects are not followed";
                Failure::last(BackendError::Refused(text.to_owned()))
            }
            _ => Failure::last(CallError::Rejected {
                status: status.as_u16(),
                message,
            }),
        })
    }

    /// RFC 9110 §10.2.3: seconds, or a date.
    fn retry_after(&self, headers: &HeaderMap) -> Repeat {
        let Some(text) = headers.get(RETRY_AFTER).and_then(|v| v.to_str().ok()) else {
            return Repeat::Soon;
        };
        let seconds = text.trim().parse().ok().or_else(|| {
            let date = OffsetDateTime::parse(text.trim(), &Rfc2822).ok()?;
            let now = self.surroundings.clock.now().epoch_seconds();
            u64::try_from(date.unix_timestamp() - now).ok()
        });
        seconds.map_or(Repeat::Soon, |seconds| {
            Repeat::After(Duration::from_secs(seconds))
        })
    }

    /// How long to wait before the next attempt; `None` when there must not be one.
    fn pause(
        &self,
        request: &EngineRequest,
        attempt: u32,
        failure: &Failure,
        deadline: Instant,
    ) -> Option<Duration> {
        if attempt >= request.max_attempts {
            return None;
        }
        let longest = FIRST_PAUSE * 2_u32.pow(attempt - 1);
        let pause = match failure.repeat {
            Repeat::Never => return None,
            Repeat::Soon => longest.mul_f64(self.fraction()),
            Repeat::After(pause) => pause + FIRST_PAUSE.mul_f64(self.fraction()),
        };
        (pause + LEAST_ATTEMPT < left(deadline)).then_some(pause)
    }

    /// From 0 to 1, so that many callers do not come back at the same moment.
    fn fraction(&self) -> f64 {
        let mut byte = [u8::MAX];
        match self.surroundings.random.fill(&mut byte) {
            Ok(()) => f64::from(byte[0]) / f64::from(u8::MAX),
            Err(_) => 1.0,
        }
    }
}

impl fmt::Debug for EngineClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineClient")
            .field("name", &self.name)
            .field("url", &self.url)
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}

/// Whether the same request may be sent again.
#[derive(Debug, Clone, Copy)]
enum Repeat {
    Never,
    Soon,
    /// The engine says when.
    After(Duration),
}

/// What became of one attempt.
struct Failure {
    error: CallError,
    repeat: Repeat,
    /// The engine is not there or broken.
    is_outage: bool,
    /// It says nothing about the engine.
    is_inconclusive: bool,
    is_unauthorized: bool,
}

impl Failure {
    /// A failure that is not repeated and not the engine's outage.
    fn last(error: impl Into<CallError>) -> Self {
        Self {
            error: error.into(),
            repeat: Repeat::Never,
            is_outage: false,
            is_inconclusive: false,
            is_unauthorized: false,
        }
    }

    fn of_transport(error: &OutboundError) -> Self {
        match *error {
            // Waiting once more would keep the caller waiting and the engine busy.
            OutboundError::TimedOut(time) => Self {
                is_outage: time >= LEAST_PATIENCE,
                is_inconclusive: time < LEAST_PATIENCE,
                ..Self::last(BackendError::TimedOut(time))
            },
            OutboundError::TooLarge(_) => {
                Self::last(BackendError::UnreadableAnswer(error.to_string()))
            }
            OutboundError::Connection(_) => Self {
                repeat: Repeat::Soon,
                is_outage: true,
                ..Self::last(BackendError::Unavailable(error.to_string()))
            },
            // This machine's fault.
            OutboundError::Certificates(_) => Self {
                is_inconclusive: true,
                ..Self::last(BackendError::Unavailable(error.to_string()))
            },
        }
    }
}

/// The same call, with the time that is left of it since `begun`: for work that takes several requests.
#[must_use]
pub fn rest_of(call: &EngineCall, begun: Instant) -> EngineCall {
    EngineCall {
        time_left: call.time_left.saturating_sub(begun.elapsed()),
        traceparent: call.traceparent.clone(),
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// `application/json`, `application/problem+json`, … A missing type is left to the parser.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return true;
    };
    let text = value.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

/// What an engine says about an error, short and safe for the log. The known engines put it into one of
/// these places.
fn message(body: Option<&Value>, size_bytes: usize, secret: Option<&Secret>) -> String {
    let text = body.and_then(|body| {
        [
            "/error/message",
            "/error_msg",
            "/message",
            "/detail",
            "/error",
        ]
        .iter()
        .find_map(|pointer| body.pointer(pointer)?.as_str())
    });
    let Some(text) = text else {
        return format!("{size_bytes} bytes without a message");
    };
    let text = secret.map_or_else(|| text.to_owned(), |secret| secret.blacken(text));
    let short: String = text.chars().take(MESSAGE_MAX_CHARS).collect();
    format!("{short:?}")
}

#[cfg(test)]
mod tests;
