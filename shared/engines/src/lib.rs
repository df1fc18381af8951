//! Adapters for retrieval engines that a team already runs, behind [`raglan_rag::backend::Backend`].
//!
//! | module | what it is |
//! |---|---|
//! | [`configuration`] | which engines this deployment has |
//! | [`adapter`] | makes an engine out of its configuration |
//! | [`openai`], [`dify`], [`dify_external`], [`ragflow`] | one adapter each |
//! | [`attributes`], [`hits`] | what the adapters have in common: attributes, filters, passages |
//! | `document_text`, `metadata_condition`, `paging`, `reply` | what some of them have in common |
//! | [`credentials`] | where their credentials come from |
//! | [`call`], [`breaker`] | one bounded exchange over HTTP |
//! | [`chat`] | answers from a model behind an OpenAI-compatible endpoint |
//! | [`secret`] | a text that is never shown |

pub mod adapter;
pub mod attributes;
pub mod breaker;
pub mod call;
pub mod chat;
pub mod configuration;
pub mod credentials;
pub mod dify;
pub mod dify_external;
mod document_text;
pub mod hits;
mod metadata_condition;
pub mod openai;
mod paging;
pub mod ragflow;
mod reply;
pub mod secret;

#[cfg(test)]
mod testing;
