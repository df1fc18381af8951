//! Sends an operation to a service: writes it with the SDK's code, signs it, repeats it where that may
//! help, and reads the answer with the SDK's code, or lets the caller read a success.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use aws_config::SdkConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_credential_types::provider::ProvideCredentials as _;
use aws_smithy_async::time::SharedTimeSource;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::Input;
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::{ConnectorError, SdkError};
use aws_smithy_runtime_api::client::ser_de::{
    DeserializeResponse as _, SerializeRequest as _, SharedRequestSerializer,
    SharedResponseDeserializer,
};
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::error::operation::BuildError;
use aws_types::service_config::ServiceConfigKey;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use raglan_outbound::{Bounds, OutboundError};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::operation::Operation;
use crate::retry::{self, Budget, MAX_ATTEMPTS, Verdict};
use crate::signing::Signer;
use crate::transport::{ANSWER_MAX_BYTES, ATTEMPT_TIMEOUT, Transport, connector_error};

/// All attempts of one call together, with the pauses between them, unless the account says otherwise.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(7);
/// Credentials are asked for again when they would expire within this time.
const EXPIRY_MARGIN: Duration = Duration::from_mins(1);
/// Clocks that differ by less are no reason for a refusal: AWS allows five minutes.
const SKEW_MIN_SECONDS: i64 = 240;
const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("raglan/", env!("CARGO_PKG_VERSION")));

/// Amazon DynamoDB.
#[derive(Debug, Clone, Copy)]
pub struct DynamoDb;

/// Amazon SQS.
#[derive(Debug, Clone, Copy)]
pub struct Sqs;

/// AWS Secrets Manager.
#[cfg(feature = "secrets")]
#[derive(Debug, Clone, Copy)]
pub struct SecretsManager;

/// AWS Systems Manager, whose parameters may be secrets.
#[cfg(feature = "secrets")]
#[derive(Debug, Clone, Copy)]
pub struct Ssm;

/// Amazon Bedrock: which knowledge bases there are.
#[cfg(feature = "bedrock")]
#[derive(Debug, Clone, Copy)]
pub struct BedrockAgent;

/// Amazon Bedrock: searches of knowledge bases.
#[cfg(feature = "bedrock")]
#[derive(Debug, Clone, Copy)]
pub struct BedrockAgentRuntime;

/// Amazon Bedrock: models.
#[cfg(feature = "bedrock")]
#[derive(Debug, Clone, Copy)]
pub struct BedrockRuntime;

/// Amazon S3.
#[cfg(feature = "s3")]
#[derive(Debug, Clone, Copy)]
pub struct S3;

/// What a call may take, where that is not the usual.
#[derive(Debug, Clone)]
pub struct CallLimits {
    /// All attempts together, with the pauses between them.
    pub time: Duration,
    /// One attempt.
    pub attempt_time: Duration,
    /// How often it is tried at most.
    pub attempts: u32,
    /// Size of the answer.
    pub response_max_bytes: usize,
    /// A header that is sent along.
    pub header: Option<(HeaderName, HeaderValue)>,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            time: OPERATION_TIMEOUT,
            attempt_time: ATTEMPT_TIMEOUT,
            attempts: MAX_ATTEMPTS,
            response_max_bytes: ANSWER_MAX_BYTES,
            header: None,
        }
    }
}

/// A service of AWS.
pub trait Service: fmt::Debug + Send + Sync + 'static {
    /// Its name in signatures.
    const SIGNING_NAME: &'static str;
    /// Its name in the names of variables and profile settings.
    const ID: &'static str;

    /// Where it is in a region, by the SDK's rules.
    fn endpoint(config: &SdkConfig) -> impl Future<Output = Result<String, BoxError>> + Send;
}

macro_rules! service {
    ($service:ident, $package:ident, $signing_name:literal, $id:literal) => {
        impl Service for $service {
            const SIGNING_NAME: &'static str = $signing_name;
            const ID: &'static str = $id;

            async fn endpoint(config: &SdkConfig) -> Result<String, BoxError> {
                use $package::config::endpoint::{DefaultResolver, Params, ResolveEndpoint};
                let params = Params::builder()
                    .set_region(config.region().map(ToString::to_string))
                    .set_use_fips(config.use_fips())
                    .set_use_dual_stack(config.use_dual_stack())
                    .build()?;
                let resolver = DefaultResolver::new();
                let endpoint = ResolveEndpoint::resolve_endpoint(&resolver, &params).await?;
                Ok(endpoint.url().to_owned())
            }
        }
    };
}

service!(DynamoDb, aws_sdk_dynamodb, "dynamodb", "DynamoDB");
service!(Sqs, aws_sdk_sqs, "sqs", "SQS");
#[cfg(feature = "secrets")]
service!(
    SecretsManager,
    aws_sdk_secretsmanager,
    "secretsmanager",
    "Secrets Manager"
);
#[cfg(feature = "secrets")]
service!(Ssm, aws_sdk_ssm, "ssm", "SSM");
#[cfg(feature = "bedrock")]
service!(
    BedrockAgent,
    aws_sdk_bedrockagent,
    "bedrock",
    "Bedrock Agent"
);
#[cfg(feature = "bedrock")]
service!(
    BedrockAgentRuntime,
    aws_sdk_bedrockagentruntime,
    "bedrock",
    "Bedrock Agent Runtime"
);
#[cfg(feature = "bedrock")]
service!(
    BedrockRuntime,
    aws_sdk_bedrockruntime,
    "bedrock",
    "Bedrock Runtime"
);

#[cfg(feature = "s3")]
impl Service for S3 {
    const SIGNING_NAME: &'static str = "s3";
    const ID: &'static str = "S3";

    async fn endpoint(_: &SdkConfig) -> Result<String, BoxError> {
        Err("each bucket has an endpoint of its own".into())
    }
}

/// A client of one service. Clones share connections, credentials and the budget of repetitions.
pub struct ServiceClient<S> {
    shared: Arc<Shared>,
    service: PhantomData<S>,
}

impl<S> Clone for ServiceClient<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            service: PhantomData,
        }
    }
}

impl<S: Service> fmt::Debug for ServiceClient<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceClient")
            .field("service", &S::ID)
            .finish_non_exhaustive()
    }
}

struct Shared {
    config: SdkConfig,
    /// Comes before every other endpoint.
    endpoint_url: Option<String>,
    attempts: u32,
    transport: Arc<dyn Transport>,
    time_source: SharedTimeSource,
    operation_timeout: Duration,
    endpoint: OnceCell<Endpoint>,
    signer: Mutex<Option<Arc<Signer>>>,
    budget: Budget,
    /// What the service's clock is ahead of ours, where it refused for that.
    skew_seconds: AtomicI64,
}

struct Endpoint {
    url: Uri,
    host: HeaderValue,
}

/// A successful answer to [`ServiceClient::send_with_reader`].
#[derive(Debug)]
pub enum Answer<R, O> {
    /// What the reader made of it.
    Read(R),
    /// What the SDK made of it, because the reader made nothing.
    Output(O),
}

/// Why there is no answer.
pub(crate) enum Failure {
    Construction(BoxError),
    Timeout(BoxError),
    Dispatch(ConnectorError),
}

impl Failure {
    pub(crate) fn in_sdk_terms<E>(self) -> SdkError<E, HttpResponse> {
        match self {
            Self::Construction(cause) => SdkError::construction_failure(cause),
            Self::Timeout(cause) => SdkError::timeout_error(cause),
            Self::Dispatch(cause) => SdkError::dispatch_failure(cause),
        }
    }
}

impl<S: Service> ServiceClient<S> {
    /// A client for the account, over this transport. Nothing is asked over the network.
    #[must_use]
    pub fn new(config: SdkConfig, transport: Arc<dyn Transport>) -> Self {
        Self::at(config, None, transport)
    }

    /// A client for the account and the service at this URL, if one is given.
    #[must_use]
    pub fn at(
        config: SdkConfig,
        endpoint_url: Option<String>,
        transport: Arc<dyn Transport>,
    ) -> Self {
        let timeouts = config.timeout_config();
        let operation_timeout = timeouts.and_then(TimeoutConfig::operation_timeout);
        let shared = Shared {
            operation_timeout: operation_timeout.unwrap_or(OPERATION_TIMEOUT),
            time_source: config.time_source().unwrap_or_default(),
            attempts: config
                .retry_config()
                .map_or(MAX_ATTEMPTS, RetryConfig::max_attempts),
            config,
            endpoint_url,
            transport,
            endpoint: OnceCell::new(),
            signer: Mutex::default(),
            budget: Budget::default(),
            skew_seconds: AtomicI64::new(0),
        };
        Self {
            shared: Arc::new(shared),
            service: PhantomData,
        }
    }

    /// The account's configuration, for the SDK's own client of this service.
    #[must_use]
    pub fn config(&self) -> &SdkConfig {
        &self.shared.config
    }

    /// Sends an operation, given as its builder's result: `client.send(GetItemInput::builder()….build())`.
    ///
    /// # Errors
    /// The SDK's for this operation.
    pub async fn send<O: Operation<Service = S>>(
        &self,
        input: Result<O, BuildError>,
    ) -> Result<O::Output, SdkError<O::Error, HttpResponse>> {
        self.send_within(input, &self.usual_limits()).await
    }

    /// The same within these limits.
    ///
    /// # Errors
    /// The SDK's for this operation.
    pub async fn send_within<O: Operation<Service = S>>(
        &self,
        input: Result<O, BuildError>,
        limits: &CallLimits,
    ) -> Result<O::Output, SdkError<O::Error, HttpResponse>> {
        let mut bag = ConfigBag::base();
        let answer = self.exchange(input, limits, &mut bag).await?;
        read::<O>(answer, &bag)
    }

    /// Sends an operation whose successful answer `reader` reads, from the body as it came. An answer that it
    /// makes nothing of is read by the SDK, as a refusal is: a reader knows what is usual, and has no errors.
    ///
    /// # Errors
    /// The SDK's for this operation.
    pub async fn send_with_reader<O: Operation<Service = S>, R>(
        &self,
        input: Result<O, BuildError>,
        reader: impl FnOnce(&[u8]) -> Option<R>,
    ) -> Result<Answer<R, O::Output>, SdkError<O::Error, HttpResponse>> {
        let mut bag = ConfigBag::base();
        let answer = self.exchange(input, &self.usual_limits(), &mut bag).await?;
        let is_success = answer.status().is_success();
        match is_success.then(|| reader(answer.body())).flatten() {
            Some(read) => Ok(Answer::Read(read)),
            None => read::<O>(answer, &bag).map(Answer::Output),
        }
    }

    fn usual_limits(&self) -> CallLimits {
        CallLimits {
            time: self.shared.operation_timeout,
            ..CallLimits::default()
        }
    }

    /// Writes an operation, and gets the answer to it: a success or a refusal.
    async fn exchange<O: Operation<Service = S>>(
        &self,
        input: Result<O, BuildError>,
        limits: &CallLimits,
        bag: &mut ConfigBag,
    ) -> Result<Response<Bytes>, SdkError<O::Error, HttpResponse>> {
        let request = write(input, bag).map_err(SdkError::construction_failure)?;
        let transport = &self.shared.transport;
        let exchange = |request, time| {
            let bounds = Bounds {
                time,
                response_max_bytes: limits.response_max_bytes,
            };
            let sent = transport.send(request, bounds);
            async move {
                let answer = sent.await?;
                Ok(if answer.status().is_success() {
                    Ok(answer)
                } else {
                    Err(answer)
                })
            }
        };
        // Boxed: the futures below are large, and every caller would hold them.
        let answer = Box::pin(self.deliver(request, limits, exchange)).await;
        let answer = answer.map_err(Failure::in_sdk_terms)?;
        Ok(answer.unwrap_or_else(|refusal| refusal))
    }

    /// Tries until there is an answer that stays: what `exchange` makes of a success, or a refusal. It is told how
    /// long an attempt may take, and keeps to it: a timer for the attempt and one for all of them would be
    /// one more than needed, and each is a system call.
    pub(crate) async fn deliver<A, E>(
        &self,
        request: HttpRequest,
        limits: &CallLimits,
        exchange: impl Fn(Request<Bytes>, Duration) -> E,
    ) -> Result<Result<A, Response<Bytes>>, Failure>
    where
        E: Future<Output = Result<Result<A, Response<Bytes>>, OutboundError>>,
    {
        let end = Instant::now() + limits.time;
        let left = || end.saturating_duration_since(Instant::now());
        let too_late = || Failure::Timeout(format!("no answer within {:?}", limits.time).into());
        let shared = &*self.shared;
        let request = Unsigned::of(request, limits).map_err(Failure::Construction)?;
        let endpoint = self.endpoint().await?;
        let most = limits.attempts.min(shared.attempts);
        let mut attempt = 1;
        loop {
            let signer = if let Some(signer) = self.known_signer() {
                signer
            } else {
                let new = tokio::time::timeout(left(), self.new_signer()).await;
                new.unwrap_or_else(|_| Err(too_late()))?
            };
            let addressed = shared
                .signed(&signer, endpoint, &request)
                .map_err(Failure::Construction)?;
            let answer = exchange(addressed, limits.attempt_time.min(left())).await;
            let verdict = match &answer {
                Ok(Ok(_)) => {
                    shared.budget.give_back(attempt - 1);
                    Verdict::Final
                }
                Ok(Err(refusal)) => shared.judge(refusal),
                Err(OutboundError::TimedOut(_)) if left().is_zero() => return Err(too_late()),
                Err(OutboundError::Connection(_) | OutboundError::TimedOut(_)) => Verdict::Repeat,
                Err(_) => Verdict::Final,
            };
            if verdict == Verdict::Final || attempt >= most || !shared.budget.take() {
                return answer.map_err(|error| Failure::Dispatch(connector_error(error)));
            }
            tracing::debug!(
                service = S::ID,
                attempt,
                "an attempt failed and is repeated"
            );
            let chance = shared
                .time_source
                .now()
                .duration_since(SystemTime::UNIX_EPOCH);
            let chance = chance.map_or(0, |since| since.subsec_micros());
            let pause = retry::pause(attempt, chance);
            tokio::time::sleep(pause.min(left())).await;
            if left().is_zero() {
                return Err(too_late());
            }
            attempt += 1;
        }
    }

    async fn endpoint(&self) -> Result<&Endpoint, Failure> {
        let shared = &*self.shared;
        let resolve = || async {
            let url = match shared.configured_endpoint::<S>() {
                Some(url) => url,
                None => S::endpoint(&shared.config).await?,
            };
            Endpoint::at(&url)
        };
        let endpoint = shared.endpoint.get_or_try_init(resolve).await;
        endpoint.map_err(Failure::Construction)
    }

    fn signer(&self) -> MutexGuard<'_, Option<Arc<Signer>>> {
        let signer = self.shared.signer.lock();
        signer.unwrap_or_else(PoisonError::into_inner)
    }

    fn known_signer(&self) -> Option<Arc<Signer>> {
        let known = self.signer();
        known
            .as_ref()
            .filter(|signer| self.shared.is_fresh(signer))
            .cloned()
    }

    async fn new_signer(&self) -> Result<Arc<Signer>, Failure> {
        let shared = &*self.shared;
        let provider = shared.config.credentials_provider();
        let provider =
            provider.ok_or_else(|| Failure::Construction("there are no credentials".into()))?;
        let credentials = provider.provide_credentials().await;
        let credentials = credentials.map_err(|error| Failure::Construction(error.into()))?;
        let region = shared.config.region();
        let region = region.ok_or_else(|| Failure::Construction("no region is named".into()))?;
        let signer = Arc::new(Signer::new(
            credentials,
            region.as_ref().into(),
            S::SIGNING_NAME,
        ));
        *self.signer() = Some(Arc::clone(&signer));
        Ok(signer)
    }
}

impl Shared {
    /// What the client was made for comes before what the account says.
    fn configured_endpoint<S: Service>(&self) -> Option<String> {
        let given = self.endpoint_url.clone();
        given.or_else(|| configured_endpoint::<S>(&self.config))
    }

    fn is_fresh(&self, signer: &Signer) -> bool {
        let expiry = signer.credentials().expiry();
        expiry.is_none_or(|expiry| expiry > self.time_source.now() + EXPIRY_MARGIN)
    }

    fn signed(
        &self,
        signer: &Signer,
        endpoint: &Endpoint,
        unsigned: &Unsigned,
    ) -> Result<Request<Bytes>, BoxError> {
        let mut request = Request::new(unsigned.body.clone());
        *request.method_mut() = unsigned.method.clone();
        *request.uri_mut() = endpoint.join(&unsigned.uri)?;
        *request.headers_mut() = unsigned.headers.clone();
        let headers = request.headers_mut();
        headers.insert(header::HOST, endpoint.host.clone());
        let skew = time::Duration::seconds(self.skew_seconds.load(Ordering::Relaxed));
        signer.sign(
            &mut request,
            OffsetDateTime::from(self.time_source.now()) + skew,
        )?;
        // Not signed: proxies may change it.
        request.headers_mut().insert(header::USER_AGENT, USER_AGENT);
        Ok(request)
    }

    /// What a refused attempt says about the next one. Notes by how much the clocks differ.
    fn judge(&self, answer: &Response<Bytes>) -> Verdict {
        let verdict = retry::verdict(answer);
        if verdict != Verdict::Resign {
            return verdict;
        }
        let date = answer
            .headers()
            .get(header::DATE)
            .and_then(|date| date.to_str().ok());
        let theirs = date.and_then(|date| OffsetDateTime::parse(date, &Rfc2822).ok());
        let skew = theirs.map(|theirs| theirs - OffsetDateTime::from(self.time_source.now()));
        let skew_seconds = skew.map_or(0, time::Duration::whole_seconds);
        let before = self.skew_seconds.swap(skew_seconds, Ordering::Relaxed);
        // Otherwise the signature was refused for another reason.
        if (skew_seconds - before).abs() >= SKEW_MIN_SECONDS {
            tracing::warn!(
                skew_seconds,
                "the clock differs from the service's; its time is used"
            );
            Verdict::Repeat
        } else {
            Verdict::Final
        }
    }
}

/// The account's endpoint for a service: its own comes before the common one, and both before the region's.
pub(crate) fn configured_endpoint<S: Service>(account: &SdkConfig) -> Option<String> {
    let key = ServiceConfigKey::builder()
        .service_id(S::ID)
        .env("AWS_ENDPOINT_URL")
        .profile("endpoint_url")
        .build()
        .ok()?;
    let services = account.service_config();
    let own = services.and_then(|services| services.load_config(key));
    own.or_else(|| account.endpoint_url().map(ToOwned::to_owned))
}

/// A request before it is addressed and signed, which is done for every attempt.
struct Unsigned {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl Unsigned {
    fn of(request: HttpRequest, limits: &CallLimits) -> Result<Self, BoxError> {
        let (parts, body) = request.try_into_http1x()?.into_parts();
        let mut headers = parts.headers;
        // The connection's part of the work.
        headers.remove(header::CONTENT_LENGTH);
        if let Some((name, value)) = &limits.header {
            headers.insert(name.clone(), value.clone());
        }
        Ok(Self {
            method: parts.method,
            uri: parts.uri,
            headers,
            body: Bytes::copy_from_slice(body.bytes().unwrap_or_default()),
        })
    }
}

impl Endpoint {
    /// The place of a request, whose own URI is a path and a query.
    fn join(&self, uri: &Uri) -> Result<Uri, BoxError> {
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        if path == "/" {
            return Ok(self.url.clone());
        }
        let mut parts = self.url.clone().into_parts();
        let base = self.url.path().trim_end_matches('/');
        parts.path_and_query = Some(format!("{base}{path}").parse()?);
        Ok(Uri::from_parts(parts)?)
    }

    fn at(url: &str) -> Result<Self, BoxError> {
        let url: Uri = url.parse()?;
        let authority = url.authority().ok_or("the endpoint names no host")?;
        let host = HeaderValue::from_str(authority.as_str())?;
        Ok(Self { url, host })
    }
}

/// The request as the SDK writes it.
pub(crate) fn write<O: Operation>(
    input: Result<O, BuildError>,
    bag: &mut ConfigBag,
) -> Result<HttpRequest, BoxError> {
    let serializer = O::codec().load::<SharedRequestSerializer>();
    let serializer = serializer.ok_or("the operation has no serialiser")?;
    serializer.serialize_input(Input::erase(input?), bag)
}

/// The answer as the SDK reads it.
#[expect(clippy::result_large_err, reason = "the error is the SDK's")]
pub(crate) fn read<O: Operation>(
    answer: Response<Bytes>,
    bag: &ConfigBag,
) -> Result<O::Output, SdkError<O::Error, HttpResponse>> {
    let response = HttpResponse::try_from(answer.map(SdkBody::from));
    let response = response.map_err(SdkError::construction_failure)?;
    let Some(deserializer) = O::codec().load::<SharedResponseDeserializer>() else {
        return Err(SdkError::response_error(
            "the operation has no deserialiser",
            response,
        ));
    };
    match deserializer.deserialize_nonstreaming_with_config(&response, bag) {
        Ok(output) => output
            .downcast::<O::Output>()
            .map_err(|_| SdkError::response_error("the answer is another operation's", response)),
        Err(error) => {
            let mut refusal = None;
            let other =
                error.map_operation_error(|error| refusal = error.downcast::<O::Error>().ok());
            Err(match refusal {
                Some(refusal) => SdkError::service_error(refusal, response),
                None => SdkError::response_error(
                    format!("the answer cannot be read: {other:?}"),
                    response,
                ),
            })
        }
    }
}

#[cfg(test)]
mod tests;
