//! The embedding model that the environment names, for `raglan index`, `raglan search` and `raglan eval`.

use std::sync::Arc;

use raglan_core::clock::SystemClock;
use raglan_core::random::SystemRandom;
use raglan_embeddings::{OpenAiEmbedder, configuration};
use raglan_engines::call::Surroundings;
use raglan_rag::embedded::embedding::Embedder;
use raglan_telemetry::settings::Settings;

/// The model; `None` when `EMBEDDINGS_URL` is not set. Nothing is asked yet.
///
/// # Errors
/// One line that names every bad variable.
pub fn from_environment() -> anyhow::Result<Option<Arc<dyn Embedder>>> {
    let lookup = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut settings = Settings::new(lookup);
    let configured = configuration::from_settings(&mut settings);
    let configured = settings.finish(configured)?;
    Ok(configured.map(|embeddings| {
        let surroundings =
            Surroundings::from_environment(Arc::new(SystemClock), Arc::new(SystemRandom));
        Arc::new(OpenAiEmbedder::new(embeddings, surroundings)) as Arc<dyn Embedder>
    }))
}
