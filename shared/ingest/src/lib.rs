//! From a folder of documents to an index: [`readers`] turn files into blocks, [`split`] makes
//! passages of them, `document` a document, [`build`] writes and publishes the index. `known` saves
//! reading what has not changed.
//!
//! Used by the command line only; the functions that answer requests do not link it.

pub mod build;
mod document;
mod known;
mod publication;
pub mod readers;
pub mod source;
pub mod split;
