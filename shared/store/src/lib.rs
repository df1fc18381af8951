//! Where raglan keeps things: four DynamoDB tables, separated by privilege, and the SQS queue that
//! audit events travel through.
//!
//! | module | table or queue | who writes | who reads |
//! |---|---|---|---|
//! | [`keys`] | keys | the command line | MCP function |
//! | [`catalog`] | catalogue: knowledge bases and tasks | the command line | MCP function |
//! | [`audit_queue`] | audit queue | MCP function | audit function |
//! | [`audit_table`] | audit | audit function | the command line |
//!
//! Every read that a permission depends on is a consistent read. Every failure is a [`StoreError`].

pub mod audit_queue;
pub mod audit_table;
pub mod catalog;
pub mod clients;
pub mod error;
pub mod keys;
mod table;

pub use audit_queue::AuditQueue;
pub use audit_table::{AuditRecord, AuditTable};
pub use catalog::CatalogStore;
pub use clients::AwsClients;
pub use error::StoreError;
pub use keys::KeyStore;

#[cfg(test)]
mod testing;
