//! What a function does before its first request: it reads its [`settings`] and opens its [`log`].

pub mod log;
pub mod settings;
