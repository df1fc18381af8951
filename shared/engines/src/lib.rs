//! Adapters for retrieval engines that a team already runs, behind [`raglan_rag::backend::Backend`].
//!
//! | module | what it is |
//! |---|---|
//! | [`configuration`] | which engines this deployment has |
//! | [`adapter`] | makes an engine out of its configuration |
//! | [`openai`] | the read side of `/v1/vector_stores` |
//! | [`attributes`], [`hits`] | what the adapters have in common: attributes, filters, passages |
//! | [`credentials`] | where their credentials come from |
//! | [`call`], [`breaker`] | one bounded exchange over HTTP |
//! | [`secret`] | a text that is never shown |

pub mod adapter;
pub mod attributes;
pub mod breaker;
pub mod call;
pub mod configuration;
pub mod credentials;
pub mod hits;
pub mod openai;
pub mod secret;

#[cfg(test)]
mod testing;
