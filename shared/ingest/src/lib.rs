//! From a folder of documents to an index: [`readers`] turn files into blocks, [`split`] makes
//! passages of them, [`build`] writes and publishes the index.
//!
//! Used by the command line only; the functions that answer requests do not link it.

pub mod build;
mod publication;
pub mod readers;
pub mod source;
pub mod split;
