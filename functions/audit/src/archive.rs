//! Where the roots of closed days are kept: apart from the table, so that nobody who can write the table
//! can write them too. A root is written once, and never again.
//!
//! A root is one JSON object with the name `<day>/<closing>.json`, the closing with six digits.

mod bucket;
mod folder;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use raglan_core::audit_chain::DayRoot;
use raglan_store::StoreError;

pub use self::bucket::Bucket;

/// The archive does not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// S3 refuses or does not answer.
    #[error(transparent)]
    Bucket(#[from] StoreError),
    /// The local folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A root has no JSON form.
    #[error("the root of {day} cannot be written as JSON")]
    Unwritable {
        /// The day.
        day: String,
    },
}

/// What became of a root that was to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is in the archive.
    New,
    /// A root of this closing was there already, and still is.
    Taken,
}

/// The archive of roots.
#[derive(Debug, Clone)]
pub enum Archive {
    /// A bucket with versions and object lock.
    Bucket(Bucket),
    /// A folder, for the local system: whoever owns it can change it.
    Folder(PathBuf),
    /// None: the log is the only place that holds the roots.
    Log,
}

impl Archive {
    /// The roots of a day by closing, each as it was written first; `None` is one that cannot be read.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub async fn closings(
        &self,
        day: &str,
    ) -> Result<BTreeMap<u32, Option<DayRoot>>, ArchiveError> {
        match self {
            Self::Bucket(bucket) => Ok(bucket.closings(day).await?),
            Self::Folder(folder) => folder::closings(folder, day),
            Self::Log => Ok(BTreeMap::new()),
        }
    }

    /// Keeps a root at the place of its closing, unless one is there.
    ///
    /// # Errors
    /// [`ArchiveError`]; the root may be there all the same.
    pub async fn keep(&self, root: &DayRoot) -> Result<Kept, ArchiveError> {
        let json = serde_json::to_string(root).map_err(|_| ArchiveError::Unwritable {
            day: root.day.clone(),
        })?;
        let name = name(root);
        match self {
            Self::Bucket(bucket) => Ok(bucket.keep(&name, json).await?),
            Self::Folder(folder) => folder::keep(folder, &name, &json),
            Self::Log => {
                tracing::warn!(
                    day = root.day,
                    closed = json,
                    "AUDIT_ROOTS_BUCKET is not set: nothing but this log entry holds the root of the day"
                );
                Ok(Kept::New)
            }
        }
    }
}

/// The name of the closing's root.
fn name(root: &DayRoot) -> String {
    format!("{}/{:06}.json", root.day, root.closing)
}

/// Which closing a root belongs to, by its name without the day; `None` for anything else that may lie
/// there.
fn closing(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".json")?;
    let is_number = digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_like_a_root_is_taken_for_one() {
        assert_eq!(closing("000012.json"), Some(12));
        for other in ["12.json", "+00012.json", "000012", "000012.json.tmp", ""] {
            assert_eq!(closing(other), None, "{other}");
        }
    }
}
