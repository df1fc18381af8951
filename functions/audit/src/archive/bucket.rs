//! The archive on AWS: an S3 bucket with versions and object lock.
//!
//! Object lock keeps each version from being deleted or changed, and does not keep anybody from putting
//! another version above it. So the first version is the one that counts, and this writer never makes a
//! second one: it writes with `If-None-Match: *` (Amazon S3 User Guide, "Conditional writes").

use std::collections::BTreeMap;
use std::fmt;

use aws_config::SdkConfig;
use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::ByteStream;
use raglan_aws::clients::with_http;
use raglan_core::audit_chain::DayRoot;
use raglan_store::StoreError;

use super::{Kept, closing};

/// A bucket.
#[derive(Clone)]
pub struct Bucket {
    client: Client,
    name: String,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.name).finish()
    }
}

impl Bucket {
    /// The bucket of that name in the account.
    #[must_use]
    pub fn new(account: &SdkConfig, name: impl Into<String>) -> Self {
        Self {
            client: Client::new(&with_http(account)),
            name: name.into(),
        }
    }

    pub(super) async fn closings(
        &self,
        day: &str,
    ) -> Result<BTreeMap<u32, Option<DayRoot>>, StoreError> {
        let mut roots = BTreeMap::new();
        for (number, version) in self.first_versions(day).await? {
            let json = self
                .read(&format!("{day}/{number:06}.json"), &version)
                .await?;
            roots.insert(number, serde_json::from_slice(&json).ok());
        }
        Ok(roots)
    }

    /// The first version of each root of a day.
    async fn first_versions(&self, day: &str) -> Result<BTreeMap<u32, String>, StoreError> {
        let prefix = format!("{day}/");
        let mut first = BTreeMap::new();
        let (mut after_key, mut after_version) = (None, None);
        loop {
            let page = self
                .client
                .list_object_versions()
                .bucket(&self.name)
                .prefix(&prefix)
                .set_key_marker(after_key)
                .set_version_id_marker(after_version)
                .send()
                .await
                .map_err(|error| StoreError::of_call("ListObjectVersions", &self.name, &error))?;
            for version in page.versions() {
                let name = version.key().and_then(|key| key.strip_prefix(&prefix));
                if let (Some(number), Some(id)) = (name.and_then(closing), version.version_id()) {
                    // S3 lists the versions of an object from the newest to the oldest.
                    first.insert(number, id.to_owned());
                }
            }
            if page.is_truncated() != Some(true) {
                return Ok(first);
            }
            after_key = page.next_key_marker;
            after_version = page.next_version_id_marker;
        }
    }

    async fn read(&self, key: &str, version: &str) -> Result<Vec<u8>, StoreError> {
        let object = self
            .client
            .get_object()
            .bucket(&self.name)
            .key(key)
            .version_id(version)
            .send()
            .await
            .map_err(|error| StoreError::of_call("GetObject", &self.name, &error))?;
        let body = object.body.collect().await;
        let body = body.map_err(|error| StoreError::Unavailable {
            operation: "GetObject",
            resource: self.name.clone(),
            cause: error.to_string(),
        })?;
        Ok(body.to_vec())
    }

    pub(super) async fn keep(&self, key: &str, json: String) -> Result<Kept, StoreError> {
        let answer = self
            .client
            .put_object()
            .bucket(&self.name)
            .key(key)
            .if_none_match("*")
            .content_type("application/json")
            .body(ByteStream::from(json.into_bytes()))
            .send()
            .await;
        match answer.map_err(|error| StoreError::of_call("PutObject", &self.name, &error)) {
            Ok(_) => Ok(Kept::New),
            // The second one: another writer is at it in this moment.
            Err(StoreError::Refused { code, .. })
                if matches!(&*code, "PreconditionFailed" | "ConditionalRequestConflict") =>
            {
                Ok(Kept::Taken)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
