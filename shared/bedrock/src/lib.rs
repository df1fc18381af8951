//! Amazon Bedrock, in the AWS SDK's types: its knowledge bases as an engine
//! ([`raglan_rag::backend::Backend`]), and its models as authors of answers.
//!
//! | module | what it is |
//! |---|---|
//! | [`backend`] | knowledge bases: searching, documents, indexing jobs |
//! | [`converse`] | a model that writes a text |
//! | `answer` | Bedrock's own answers from a knowledge base |
//! | `connection`, `exchange` | clients, and one bounded call |
//! | `filters`, `passages`, `listing` | from our words to Bedrock's and back |

mod answer;
pub mod backend;
mod connection;
pub mod converse;
mod exchange;
mod filters;
mod listing;
mod passages;
mod retrieval;

pub use backend::BedrockBackend;

#[cfg(test)]
mod testing;
