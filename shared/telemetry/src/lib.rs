//! What a function does before its first request: it reads its [`settings`] and opens its [`log`];
//! and the [`metrics`] that it writes later.

pub mod log;
pub mod metrics;
pub mod settings;
