//! From a folder of documents to an index: [`readers`] turn files into blocks, [`split`] makes
//! passages of them, `document` a document, [`embedding`] vectors where there is a model, [`build`] writes and publishes the index. `known` saves
//! reading what has not changed.
//!
//! Used by the command line only; the functions that answer requests do not link it.

pub mod build;
mod document;
pub mod embedding;
mod known;
mod publication;
pub mod readers;
pub mod source;
pub mod split;
