//! Adapters for retrieval engines that a team already runs, behind [`raglan_rag::backend::Backend`].
//!
//! | module | what it is |
//! |---|---|
//! | [`configuration`] | which engines this deployment has |
//! | [`credentials`] | where their credentials come from |
//! | [`call`], [`breaker`] | one bounded exchange over HTTP |
//! | [`secret`] | a text that is never shown |

pub mod breaker;
pub mod call;
pub mod configuration;
pub mod credentials;
pub mod secret;

#[cfg(test)]
mod testing;
