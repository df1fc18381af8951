//! The few requests to S3 that publishing needs.

use std::path::Path;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::ByteStream;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use raglan_aws::clients::with_http;
use sha2::{Digest as _, Sha256};

use crate::pointer::ArchiveDigest;
use crate::reader::ObjectError;

/// How long an archive may take on its way up. The SDK watches for uploads that stand still.
const UPLOAD_TIMEOUT: Duration = Duration::from_hours(1);

/// A bucket that is written.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    client: Client,
    bucket: String,
}

/// Whether an object was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// It was.
    Done,
    /// It was not: another one is there than the caller knows.
    Overtaken,
}

/// An object of a list.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub key: String,
    /// When it was written, in seconds since 1970.
    pub written_at_seconds: i64,
}

impl Objects {
    pub(crate) fn new(config: &SdkConfig, bucket: &str) -> Self {
        // Other stores that speak S3 have no name for each bucket; they are the ones with an endpoint.
        let own_endpoint =
            config.endpoint_url().is_some() || std::env::var_os("AWS_ENDPOINT_URL_S3").is_some();
        let config = aws_sdk_s3::config::Builder::from(&with_http(config))
            .force_path_style(own_endpoint)
            .build();
        Self {
            client: Client::from_conf(config),
            bucket: bucket.to_owned(),
        }
    }

    /// Uploads a file; S3 refuses it when what arrives does not have this SHA-256.
    pub(crate) async fn upload(
        &self,
        key: &str,
        path: &Path,
        digest: &ArchiveDigest,
    ) -> Result<(), ObjectError> {
        let body = ByteStream::from_path(path).await;
        let body = body.map_err(|error| ObjectError::File {
            path: path.display().to_string(),
            cause: error.to_string(),
        })?;
        let timeouts = TimeoutConfig::builder()
            .operation_attempt_timeout(UPLOAD_TIMEOUT)
            .operation_timeout(UPLOAD_TIMEOUT)
            .build();
        self.client
            .put_object()
            .bucket(&self.bucket)
            .key(key)
            .checksum_sha256(STANDARD.encode(digest.bytes()))
            .body(body)
            .customize()
            .config_override(aws_sdk_s3::Config::builder().timeout_config(timeouts))
            .send()
            .await
            .map_err(|error| self.failed("PutObject", key, &error))?;
        Ok(())
    }

    /// Writes a small object in place of the one with this entity tag, or where there was none.
    pub(crate) async fn replace(
        &self,
        key: &str,
        body: Vec<u8>,
        replaced_etag: Option<&str>,
    ) -> Result<Written, ObjectError> {
        let request = self
            .client
            .put_object()
            .bucket(&self.bucket)
            .key(key)
            .content_type("application/json")
            .checksum_sha256(STANDARD.encode(Sha256::digest(&body)))
            .body(body.into());
        let request = match replaced_etag {
            Some(etag) => request.if_match(etag),
            None => request.if_none_match("*"),
        };
        match request.send().await {
            Ok(_) => Ok(Written::Done),
            // 409: somebody else's request was under way. 404: the object to replace is gone.
            Err(error) if matches!(status(&error), Some(404 | 409 | 412)) => Ok(Written::Overtaken),
            Err(error) => Err(self.failed("PutObject", key, &error)),
        }
    }

    /// All objects whose names begin with `prefix`.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Listed>, ObjectError> {
        let mut found = Vec::new();
        let mut continuation = None;
        loop {
            let page = self
                .client
                .list_objects_v2()
                .bucket(&self.bucket)
                .prefix(prefix)
                .set_continuation_token(continuation)
                .send()
                .await
                .map_err(|error| self.failed("ListObjectsV2", prefix, &error))?;
            found.extend(page.contents().iter().filter_map(|object| {
                Some(Listed {
                    key: object.key()?.to_owned(),
                    written_at_seconds: object.last_modified()?.secs(),
                })
            }));
            continuation = page.next_continuation_token;
            if continuation.is_none() {
                return Ok(found);
            }
        }
    }

    /// Removes an object; one that is gone already is no error.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.client
            .delete_object()
            .bucket(&self.bucket)
            .key(key)
            .send()
            .await
            .map_err(|error| self.failed("DeleteObject", key, &error))?;
        Ok(())
    }

    fn failed<E>(
        &self,
        operation: &'static str,
        key: &str,
        error: &SdkError<E, HttpResponse>,
    ) -> ObjectError
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let object = format!("s3://{}/{key}", self.bucket);
        ObjectError::of_call(operation, object, error)
    }
}

fn status<E>(error: &SdkError<E, HttpResponse>) -> Option<u16> {
    error
        .raw_response()
        .map(|response| response.status().as_u16())
}
