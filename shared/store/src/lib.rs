//! Where raglan keeps things: four DynamoDB tables, separated by privilege, and the SQS queues that
//! audit events travel through.
//!
//! | module | table or queue | who writes | who reads |
//! |---|---|---|---|
//! | [`keys`] | keys | the command line | MCP function |
//! | [`catalog`] | catalogue: knowledge bases and tasks | the command line | MCP function |
//! | [`limits`], [`leases`], [`idempotency`], [`sessions`] | state: what expires | MCP function | MCP function |
//! | [`usage`] | state | (counted by [`limits`]) | the command line |
//! | [`audit_queue`] | audit queue | MCP function | audit function |
//! | [`dead_letters`] | dead-letter queue | audit function, SQS | operators |
//! | [`audit_append`], [`audit_table`] | audit | audit function | the command line |
//!
//! Every read that a permission depends on is a consistent read. Every failure is a [`StoreError`].

pub mod audit_append;
pub mod audit_queue;
pub mod audit_record;
pub mod audit_table;
pub mod catalog;
pub mod dead_letters;
pub mod error;
pub mod idempotency;
mod item_json;
pub mod keys;
pub mod leases;
pub mod limits;
mod meter_item;
pub mod sessions;
mod table;
pub mod usage;

pub use audit_append::AuditWriter;
pub use audit_queue::AuditQueue;
pub use audit_record::AuditRecord;
pub use audit_table::AuditTable;
pub use catalog::CatalogStore;
pub use dead_letters::DeadLetterQueue;
pub use error::StoreError;
pub use idempotency::IdempotencyStore;
pub use keys::{KeyStore, ReadRecord};
pub use leases::LeaseStore;
pub use limits::MeterStore;
pub use sessions::SessionStore;
pub use usage::UsageStore;

#[cfg(test)]
mod testing;
