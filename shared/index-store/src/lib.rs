//! Embedded indexes in S3: `raglan index --publish` puts them there ([`publish`]), the function keeps a
//! local copy that follows ([`backend`]).
//!
//! ```text
//! s3://<bucket>/<prefix>/<knowledge base id>/current.json        names the archive that answers (pointer)
//! s3://<bucket>/<prefix>/<knowledge base id>/<sha256>.tar.lz4    an index, never changed (archive)
//! ```
//!
//! Archives are uploaded before the pointer is written, in one conditional request, so that a reader
//! sees the old index or the new one. An archive is named by its SHA-256, which a reader checks before
//! it unpacks anything.
//!
//! Publishing uses the AWS SDK's own client. A function reads through the light one ([`raglan_aws::s3`]), with the
//! account's credentials, endpoints and retries; the SDK's brings checksums, sessions and
//! configuration that make its program larger by more than a megabyte.

pub mod archive;
pub mod backend;
mod copy;
pub mod location;
mod objects;
pub mod pointer;
pub mod publish;
mod reader;

pub use backend::{Background, PublishedIndexBackend};
pub use location::IndexLocation;
pub use publish::Publisher;

#[cfg(test)]
mod testing;
