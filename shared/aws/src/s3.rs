//! Reads objects of Amazon S3: one signed request whose answer is a stream.

use std::fmt;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_s3::config::endpoint::{DefaultResolver, Params, ResolveEndpoint as _};
use aws_sdk_s3::operation::get_object::{GetObjectError, GetObjectInput};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::config_bag::ConfigBag;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use raglan_outbound::{OutboundClient, OutboundError, broken};
use tokio::sync::OnceCell;

use crate::service::{CallLimits, Failure, S3, ServiceClient, configured_endpoint, read, write};
use crate::transport::{CONNECT_TIMEOUT, network};

/// A refusal is a small XML document.
const REFUSAL_MAX_BYTES: usize = 64 * 1024;
/// S3 wants the hash of the body in a header, too. The body of a GET is empty.
const CONTENT_HASH: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const HASH_OF_NOTHING: HeaderValue =
    HeaderValue::from_static("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");

/// A bucket whose objects are read.
pub struct BucketReader {
    account: SdkConfig,
    bucket: String,
    client: OnceCell<ServiceClient<S3>>,
    http: OutboundClient,
}

/// What a bucket has under a name.
#[derive(Debug)]
pub enum Object {
    /// It is the one that the caller has.
    Unchanged,
    /// It is another one.
    Changed {
        /// Its entity tag.
        etag: Option<String>,
        /// Its bytes.
        body: ObjectBody,
    },
}

/// The bytes of an object, as they come.
#[derive(Debug)]
pub struct ObjectBody(Incoming);

impl fmt::Debug for BucketReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("BucketReader");
        shown.field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

impl BucketReader {
    /// A bucket of the account. Nothing is asked over the network.
    #[must_use]
    pub fn new(account: SdkConfig, bucket: &str) -> Self {
        Self {
            account,
            bucket: bucket.to_owned(),
            client: OnceCell::new(),
            http: OutboundClient::with_connect_timeout(CONNECT_TIMEOUT),
        }
    }

    /// Begins to read an object, unless it is the one with this entity tag.
    ///
    /// # Errors
    /// The SDK's.
    pub async fn open(
        &self,
        key: &str,
        known_etag: Option<&str>,
    ) -> Result<Object, SdkError<GetObjectError, HttpResponse>> {
        let input = GetObjectInput::builder()
            .bucket(&self.bucket)
            .key(key)
            .set_if_none_match(known_etag.map(ToOwned::to_owned))
            .build();
        let mut bag = ConfigBag::base();
        let request = write(input, &mut bag).map_err(SdkError::construction_failure)?;
        let limits = CallLimits {
            header: Some((CONTENT_HASH, HASH_OF_NOTHING)),
            ..CallLimits::default()
        };
        let exchange = |request: http::Request<Bytes>, time| {
            let sent = self.http.open(request);
            async move {
                let answering = async { sent?.await.map_err(|error| broken(&error)) };
                let answer = within(time, answering).await?;
                if answer.status().is_success() {
                    return Ok(Ok(answer));
                }
                let (parts, body) = answer.into_parts();
                let whole = Limited::new(body, REFUSAL_MAX_BYTES).collect();
                let whole = within(time, async {
                    let body = whole.await;
                    body.map_err(|error| OutboundError::Connection(error.to_string()))
                });
                Ok(Err(Response::from_parts(parts, whole.await?.to_bytes())))
            }
        };
        let client = self.client.get_or_try_init(|| self.client()).await;
        let client = client.map_err(SdkError::construction_failure)?;
        let answer = Box::pin(client.deliver(request, &limits, exchange)).await;
        match answer.map_err(Failure::in_sdk_terms)? {
            Ok(object) => Ok(Object::Changed {
                etag: object
                    .headers()
                    .get(header::ETAG)
                    .and_then(|etag| etag.to_str().ok())
                    .map(ToOwned::to_owned),
                body: ObjectBody(object.into_body()),
            }),
            Err(answer) if answer.status() == StatusCode::NOT_MODIFIED => Ok(Object::Unchanged),
            Err(refusal) => match read::<GetObjectInput>(refusal, &bag) {
                Err(error) => Err(error),
                Ok(_) => Err(SdkError::construction_failure("a refusal without an error")),
            },
        }
    }

    async fn client(&self) -> Result<ServiceClient<S3>, BoxError> {
        let account = &self.account;
        let own = configured_endpoint::<S3>(account);
        let params = Params::builder()
            .bucket(&self.bucket)
            // Other stores that speak S3 have no name for each bucket; they are the ones with an endpoint.
            .force_path_style(own.is_some())
            .set_endpoint(own)
            .set_region(account.region().map(ToString::to_string))
            .set_use_fips(account.use_fips())
            .set_use_dual_stack(account.use_dual_stack())
            .build()?;
        let endpoint = DefaultResolver::new().resolve_endpoint(&params).await?;
        let url = Some(endpoint.url().to_owned());
        Ok(ServiceClient::at(account.clone(), url, network()))
    }
}

impl ObjectBody {
    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// When the connection breaks before the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            match self.0.frame().await? {
                Ok(frame) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Some(Ok(bytes));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

async fn within<T>(
    time: Duration,
    work: impl Future<Output = Result<T, OutboundError>>,
) -> Result<T, OutboundError> {
    let done = tokio::time::timeout(time, work).await;
    done.unwrap_or(Err(OutboundError::TimedOut(time)))
}
