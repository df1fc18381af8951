//! What an index says of itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use raglan_core::clock::Timestamp;
use serde::{Deserialize, Serialize};

use super::vectors::VectorsManifest;
use super::{layout, tokenizer};

/// Version of the layout, the schema and [`super::schema::StoredPassage`].
pub const FORMAT_VERSION: u32 = 2;

/// `manifest.json` of a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of raglan's own format.
    pub format_version: u32,
    /// tantivy and its index format, as [`tantivy_version`] tells.
    pub tantivy_version: String,
    /// The tokenizer with its version.
    pub tokenizer: String,
    /// The knowledge base.
    pub knowledge_base: String,
    /// Number of documents that were taken in.
    pub document_count: u64,
    /// Number of passages.
    pub chunk_count: u64,
    /// Where the documents came from.
    pub sources: Vec<String>,
    /// When the generation was built.
    pub created_at: Timestamp,
    /// Its embeddings, where it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vectors: Option<VectorsManifest>,
    /// Every other file of the generation with its size in bytes: a copy that broke off is noticed.
    pub files: BTreeMap<String, u64>,
}

/// Why an index cannot be searched by this version of raglan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incompatibility {
    /// Another format of raglan.
    #[error("it has format {found}, this version of raglan reads format {FORMAT_VERSION}")]
    Format {
        /// The index's format.
        found: u32,
    },
    /// Another format of tantivy.
    #[error(
        "it was built with tantivy {found}, this version of raglan reads {}",
        tantivy_version()
    )]
    Tantivy {
        /// The index's tantivy.
        found: String,
    },
    /// Another tokenizer: queries would silently miss.
    #[error(
        "it was built with the tokenizer {found}, this version of raglan uses {}",
        tokenizer::NAME
    )]
    Tokenizer {
        /// The index's tokenizer.
        found: String,
    },
}

/// The tantivy release whose files this program reads: `major.minor` and the index format, because
/// tantivy promises nothing between minor releases.
#[must_use]
pub fn tantivy_version() -> String {
    // `tantivy::Version` keeps its numbers to itself, its text is "tantivy v0.27.0, index_format v7".
    let text = tantivy::version().to_string();
    let release = text
        .split_once(", ")
        .map_or(text.as_str(), |(release, _)| release);
    let minor = release.rsplit_once('.').map_or(release, |(minor, _)| minor);
    format!(
        "{}, index format {}",
        minor.trim_start_matches("tantivy v"),
        tantivy::INDEX_FORMAT_VERSION
    )
}

/// Why there is no usable manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("its manifest cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The file is not a manifest.
    #[error("its manifest is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// The index is from another version.
    #[error(transparent)]
    Incompatible(#[from] Incompatibility),
    /// A file is missing or has another size than when it was built.
    #[error("its file {name:?} is missing or incomplete")]
    Incomplete {
        /// The file.
        name: String,
    },
}

/// The part of a manifest that every version has.
#[derive(Deserialize)]
struct Header {
    format_version: u32,
}

impl Manifest {
    /// Reads the manifest of the generation in `directory` and makes sure that this program can
    /// search it and that its files are complete.
    ///
    /// # Errors
    /// [`ManifestError`] names what is wrong first.
    pub fn read(directory: &Path) -> Result<Self, ManifestError> {
        let json = fs::read(directory.join(layout::MANIFEST))?;
        // Another format may have other fields: its number is looked at before they are.
        let Header { format_version } = serde_json::from_slice(&json)?;
        if format_version != FORMAT_VERSION {
            return Err(Incompatibility::Format {
                found: format_version,
            }
            .into());
        }
        let manifest: Self = serde_json::from_slice(&json)?;
        manifest.check()?;
        for (name, size_bytes) in &manifest.files {
            let found = fs::metadata(directory.join(name)).map(|metadata| metadata.len());
            if !found.is_ok_and(|found| found == *size_bytes) {
                return Err(ManifestError::Incomplete { name: name.clone() });
            }
        }
        Ok(manifest)
    }

    fn check(&self) -> Result<(), Incompatibility> {
        if self.tantivy_version != tantivy_version() {
            return Err(Incompatibility::Tantivy {
                found: self.tantivy_version.clone(),
            });
        }
        if self.tokenizer != tokenizer::NAME {
            return Err(Incompatibility::Tokenizer {
                found: self.tokenizer.clone(),
            });
        }
        Ok(())
    }
}
