//! The local system: the tables and queues of `template.yaml`, in this process. The functions' code
//! and the AWS SDK run unchanged; only the endpoints differ.

pub mod emulators;
pub mod event_source;
pub mod provision;
pub mod template;
