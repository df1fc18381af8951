//! Where published indexes lie.

use std::fmt;

use raglan_core::catalog::KnowledgeBaseId;

use crate::pointer::ArchiveDigest;

/// End of an archive's name.
pub(crate) const ARCHIVE_SUFFIX: &str = ".tar.lz4";
const POINTER: &str = "current.json";

/// A folder in a bucket: `s3://bucket/` or `s3://bucket/folder/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexLocation {
    bucket: String,
    /// Empty, or ends with `/`.
    prefix: String,
}

/// The text is no such URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected s3://BUCKET/ or s3://BUCKET/FOLDER/")]
pub struct InvalidLocation;

impl IndexLocation {
    /// Reads a URI; the last `/` may be left out.
    ///
    /// # Errors
    /// [`InvalidLocation`]
    pub fn parse(text: &str) -> Result<Self, InvalidLocation> {
        let rest = text.strip_prefix("s3://").ok_or(InvalidLocation)?;
        let (bucket, folder) = rest.split_once('/').unwrap_or((rest, ""));
        let folder = folder.strip_suffix('/').unwrap_or(folder);
        // Names of general purpose buckets: Amazon S3 User Guide, "Bucket naming rules".
        let of_bucket = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
        // The characters that S3 calls safe in keys, so that a policy can name the folder as it is.
        let of_folder = |byte: u8| byte.is_ascii_alphanumeric() || b"!-_.'()/=".contains(&byte);
        let names_folders = |folder: &str| {
            folder
                .split('/')
                .all(|part| !matches!(part, "" | "." | ".."))
        };
        let valid = (3..=63).contains(&bucket.len())
            && bucket.bytes().all(of_bucket)
            // The suffix of directory buckets, which want sessions.
            && !bucket.ends_with("--x-s3")
            && folder.len() <= 512
            && folder.bytes().all(of_folder)
            && (matches!(rest.len() - bucket.len(), 0 | 1) || names_folders(folder));
        valid
            .then(|| Self {
                bucket: bucket.to_owned(),
                prefix: if folder.is_empty() {
                    String::new()
                } else {
                    format!("{folder}/")
                },
            })
            .ok_or(InvalidLocation)
    }

    /// The bucket.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// What the names of all objects of a knowledge base begin with.
    pub(crate) fn folder(&self, knowledge_base: &KnowledgeBaseId) -> String {
        format!("{}{knowledge_base}/", self.prefix)
    }

    pub(crate) fn pointer_key(&self, knowledge_base: &KnowledgeBaseId) -> String {
        format!("{}{POINTER}", self.folder(knowledge_base))
    }

    pub(crate) fn archive_key(
        &self,
        knowledge_base: &KnowledgeBaseId,
        digest: &ArchiveDigest,
    ) -> String {
        format!("{}{digest}{ARCHIVE_SUFFIX}", self.folder(knowledge_base))
    }
}

impl fmt::Display for IndexLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_bucket_with_or_without_a_folder() {
        for (text, shown) in [
            ("s3://team-indexes", "s3://team-indexes/"),
            ("s3://team-indexes/", "s3://team-indexes/"),
            ("s3://team.indexes/a/b", "s3://team.indexes/a/b/"),
            ("s3://team-indexes/a/b/", "s3://team-indexes/a/b/"),
        ] {
            assert_eq!(IndexLocation::parse(text).unwrap().to_string(), shown);
        }
        for wrong in [
            "",
            "/var/index",
            "https://bucket.s3.amazonaws.com/",
            "s3://",
            "s3://ab/",
            "s3://Team/",
            "s3://team_indexes/",
            "s3://team/a//b/",
            "s3://team//",
            "s3://team/../other/",
            "s3://team/*/",
            "s3://team/a b/",
            "s3://team--usw2-az1--x-s3/",
        ] {
            assert_eq!(IndexLocation::parse(wrong), Err(InvalidLocation), "{wrong}");
        }
    }

    #[test]
    fn every_knowledge_base_has_a_folder_of_its_own() {
        let location = IndexLocation::parse("s3://team-indexes/raglan").unwrap();
        let handbook = KnowledgeBaseId::parse("handbook").unwrap();
        assert_eq!(
            location.pointer_key(&handbook),
            "raglan/handbook/current.json"
        );
    }
}
