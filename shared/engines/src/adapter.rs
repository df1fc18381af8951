//! Makes an engine out of its configuration.

use std::sync::Arc;

use raglan_rag::backend::Backend;

use crate::call::Surroundings;
use crate::configuration::{Configuration, Kind};

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
    _surroundings: &Surroundings,
) -> Result<Arc<dyn Backend>, NotAvailable> {
    let kind = configuration.kind.name();
    match &configuration.kind {
        Kind::OpenAi(_) | Kind::Dify(_) | Kind::DifyExternal(_) | Kind::RagFlow(_) => {
            Err(NotAvailable {
                name: name.to_owned(),
                kind,
            })
        }
    }
}
