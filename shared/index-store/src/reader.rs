//! The requests to S3 that following a published index needs.

use std::path::Path;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use bytes::Bytes;
use raglan_aws::s3::{BucketReader, Object, ObjectBody};
use raglan_store::StoreError;
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::pointer::ArchiveDigest;

/// A pointer is a few hundred bytes.
const SMALL_MAX_BYTES: usize = 16 * 1024;
/// An archive of which nothing has come for so long is given up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A bucket that is read.
#[derive(Debug)]
pub(crate) struct Reader {
    bucket: BucketReader,
    name: String,
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

impl Reader {
    pub(crate) fn new(account: &SdkConfig, bucket: &str) -> Self {
        Self {
            bucket: BucketReader::new(account.clone(), bucket),
            name: bucket.to_owned(),
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
        let opened = self.bucket.open(key, known_etag).await;
        let Object::Changed { etag, body: stream } = opened.map_err(|e| self.failed(key, &e))?
        else {
            return Ok(Small::Unchanged);
        };
        let mut body = Vec::new();
        let mut stream = stream;
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
        let opened = self.bucket.open(key, None).await;
        let Object::Changed {
            body: mut stream, ..
        } = opened.map_err(|error| self.failed(key, &error))?
        else {
            return Err(ObjectError::NotFound(self.object(key)));
        };
        let of_file = |error: std::io::Error| ObjectError::File {
            path: path.display().to_string(),
            cause: error.to_string(),
        };
        let mut file = File::create_new(path).await.map_err(of_file)?;
        let mut hasher = Sha256::new();
        let mut received_bytes = 0;
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

    async fn next(&self, key: &str, stream: &mut ObjectBody) -> Result<Option<Bytes>, ObjectError> {
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

    fn object(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.name)
    }

    fn failed<E>(&self, key: &str, error: &SdkError<E, HttpResponse>) -> ObjectError
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        ObjectError::of_call("GetObject", self.object(key), error)
    }
}

impl ObjectError {
    pub(crate) fn of_call<E>(
        operation: &'static str,
        object: String,
        error: &SdkError<E, HttpResponse>,
    ) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let code = error
            .as_service_error()
            .and_then(ProvideErrorMetadata::code);
        let status = error
            .raw_response()
            .map(|response| response.status().as_u16());
        if status == Some(404) && code != Some("NoSuchBucket") {
            return Self::NotFound(object);
        }
        StoreError::of_call(operation, &object, error).into()
    }
}
