//! The few requests to S3 that publishing and following need.

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
use raglan_store::StoreError;
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::pointer::ArchiveDigest;

/// A pointer is a few hundred bytes.
const SMALL_MAX_BYTES: usize = 16 * 1024;
/// How long an archive may take on its way up. The SDK watches for uploads that stand still.
const UPLOAD_TIMEOUT: Duration = Duration::from_hours(1);
/// An archive of which nothing has come for so long is given up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A bucket.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    client: Client,
    bucket: String,
    idle_timeout: Duration,
}

/// Why a request gave nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ObjectError {
    /// There is no object of this name.
    #[error("there is no object {0}")]
    NotFound(String),
    /// S3 refuses or does not answer.
    #[error(transparent)]
    Aws(#[from] StoreError),
    /// The object broke off on the way.
    #[error("{key} broke off: {cause}")]
    BrokeOff {
        /// Its name.
        key: String,
        /// Why.
        cause: String,
    },
    /// The object is larger than was said.
    #[error("{key} is larger than {limit_bytes} bytes")]
    TooLarge {
        /// Its name.
        key: String,
        /// What was expected.
        limit_bytes: u64,
    },
    /// The file cannot be written or read.
    #[error("{path}: {cause}")]
    File {
        /// Which one.
        path: String,
        /// Why.
        cause: String,
    },
}

/// A small object.
#[derive(Debug)]
pub(crate) enum Small {
    /// It is the one that the caller has.
    Unchanged,
    /// It is another one.
    Changed {
        /// Its entity tag.
        etag: Option<String>,
        /// Its bytes.
        body: Vec<u8>,
    },
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
        let config = aws_sdk_s3::config::Builder::from(config)
            .force_path_style(own_endpoint)
            .build();
        Self {
            client: Client::from_conf(config),
            bucket: bucket.to_owned(),
            idle_timeout: IDLE_TIMEOUT,
        }
    }

    #[cfg(test)]
    pub(crate) fn with_idle_timeout(mut self, idle_timeout: Duration) -> Self {
        self.idle_timeout = idle_timeout;
        self
    }

    /// Reads a small object, unless it is the one with this entity tag.
    pub(crate) async fn read_small(
        &self,
        key: &str,
        known_etag: Option<&str>,
    ) -> Result<Small, ObjectError> {
        let answer = self
            .client
            .get_object()
            .bucket(&self.bucket)
            .key(key)
            .set_if_none_match(known_etag.map(ToOwned::to_owned))
            .send()
            .await;
        let object = match answer {
            Ok(object) => object,
            Err(error) if status(&error) == Some(304) => return Ok(Small::Unchanged),
            Err(error) => return Err(self.failed("GetObject", key, &error)),
        };
        let etag = object.e_tag().map(ToOwned::to_owned);
        let mut body = Vec::new();
        let mut stream = object.body;
        while let Some(bytes) = self.next(key, &mut stream).await? {
            body.extend_from_slice(&bytes);
            if body.len() > SMALL_MAX_BYTES {
                return Err(ObjectError::TooLarge {
                    key: key.to_owned(),
                    limit_bytes: SMALL_MAX_BYTES as u64,
                });
            }
        }
        Ok(Small::Changed { etag, body })
    }

    /// Writes an object of at most `limit_bytes` into a new file, and tells its SHA-256.
    pub(crate) async fn download(
        &self,
        key: &str,
        path: &Path,
        limit_bytes: u64,
    ) -> Result<ArchiveDigest, ObjectError> {
        let answer = self
            .client
            .get_object()
            .bucket(&self.bucket)
            .key(key)
            .send()
            .await;
        let object = answer.map_err(|error| self.failed("GetObject", key, &error))?;
        let of_file = |error: std::io::Error| file_error(path, &error);
        let mut file = File::create_new(path).await.map_err(of_file)?;
        let mut hasher = Sha256::new();
        let mut received_bytes = 0;
        let mut stream = object.body;
        while let Some(bytes) = self.next(key, &mut stream).await? {
            received_bytes += bytes.len() as u64;
            if received_bytes > limit_bytes {
                return Err(ObjectError::TooLarge {
                    key: key.to_owned(),
                    limit_bytes,
                });
            }
            hasher.update(&bytes);
            file.write_all(&bytes).await.map_err(of_file)?;
        }
        file.flush().await.map_err(of_file)?;
        Ok(ArchiveDigest::of(hasher))
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

    async fn next(
        &self,
        key: &str,
        stream: &mut ByteStream,
    ) -> Result<Option<impl AsRef<[u8]> + std::ops::Deref<Target = [u8]>>, ObjectError> {
        let broke_off = |cause: String| ObjectError::BrokeOff {
            key: key.to_owned(),
            cause,
        };
        match timeout(self.idle_timeout, stream.next()).await {
            Ok(Some(Ok(bytes))) => Ok(Some(bytes)),
            Ok(Some(Err(error))) => Err(broke_off(error.to_string())),
            Ok(None) => Ok(None),
            Err(_elapsed) => {
                let seconds = self.idle_timeout.as_secs_f32();
                Err(broke_off(format!("nothing came for {seconds} s")))
            }
        }
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
        let code = error
            .as_service_error()
            .and_then(ProvideErrorMetadata::code);
        if status(error) == Some(404) && code != Some("NoSuchBucket") {
            return ObjectError::NotFound(object);
        }
        StoreError::of_call(operation, &object, error).into()
    }
}

fn status<E>(error: &SdkError<E, HttpResponse>) -> Option<u16> {
    error
        .raw_response()
        .map(|response| response.status().as_u16())
}

fn file_error(path: &Path, error: &std::io::Error) -> ObjectError {
    ObjectError::File {
        path: path.display().to_string(),
        cause: error.to_string(),
    }
}
