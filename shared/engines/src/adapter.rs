//! Makes an engine out of its configuration.

use std::sync::Arc;

use raglan_rag::backend::Backend;

use crate::call::{CredentialHeader, EngineClient, Surroundings};
use crate::configuration::{Configuration, EngineUrl, Kind};
use crate::openai::OpenAiBackend;

/// This version has no adapter for the interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: the type {kind} is not available in this version")]
pub struct NotAvailable {
    /// The engine.
    pub name: String,
    /// Its type.
    pub kind: &'static str,
}

/// The engine `name`. Nothing is asked of it and no credential is read before its first request.
///
/// # Errors
/// [`NotAvailable`]
pub fn build(
    name: &str,
    configuration: &Configuration,
    surroundings: &Surroundings,
) -> Result<Arc<dyn Backend>, NotAvailable> {
    let client = |url: &EngineUrl, header: &CredentialHeader| {
        EngineClient::new(
            name.to_owned(),
            url.clone(),
            configuration.credential.clone(),
            header.clone(),
            configuration.limits,
            surroundings.clone(),
        )
    };
    Ok(match &configuration.kind {
        Kind::OpenAi(settings) => Arc::new(OpenAiBackend::new(
            client(&settings.url, &settings.credential_header),
            settings.clone(),
            configuration.attributes.clone(),
            configuration.score_threshold,
        )),
        Kind::Dify(_) | Kind::DifyExternal(_) | Kind::RagFlow(_) => {
            return Err(NotAvailable {
                name: name.to_owned(),
                kind: configuration.kind.name(),
            });
        }
    })
}
