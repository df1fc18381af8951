//! `raglan kb discover`: what the configured engines hold, and what of it is in the catalogue.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use raglan_aws::LazyAccount;
use raglan_core::catalog::KnowledgeBase;
use raglan_core::clock::SystemClock;
use raglan_core::random::SystemRandom;
use raglan_engines::call::Surroundings;
use raglan_engines::configuration::{Configurations, FILE, INLINE, from_settings};
use raglan_mcp::backends::build;
use raglan_rag::backend::{Backend, BackendError, EngineCall, EngineKnowledgeBase};
use raglan_telemetry::settings::Settings;
use serde::Serialize;

use crate::Outcome;
use crate::failure::Failure;
use crate::language::text;
use crate::session::{Items, Session};
use crate::terminal::table;

use super::count;

/// How long one page may take.
const PAGE_PATIENCE: Duration = Duration::from_secs(20);
const PAGE_LENGTH: usize = 100;
/// Pages of one engine: nobody reads more.
const PAGES_MAX: usize = 20;

/// One knowledge base of an engine.
#[derive(Debug, Serialize)]
struct Discovered {
    /// The engine's name in the configuration.
    engine: String,
    #[serde(flatten)]
    knowledge_base: EngineKnowledgeBase,
    /// The catalogue's entries that lead to it.
    entered_as: Vec<String>,
}

/// The engines that this process's environment names.
///
/// # Errors
/// One line that names every problem of the configuration.
pub(super) fn configured() -> anyhow::Result<Configurations> {
    let mut settings = Settings::new(|name: &str| std::env::var(name).ok());
    let engines = from_settings(&mut settings);
    Ok(settings.finish(engines)?)
}

/// Connections and credentials for them, with the account of the deployment where there is one.
pub(super) fn surroundings(session: &Session<'_>) -> Surroundings {
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    match session.target.aws_config() {
        Some(config) => {
            let account = LazyAccount::loaded(config.clone());
            Surroundings::of_account(account, clock, random)
        }
        None => Surroundings::from_environment(clock, random),
    }
}

/// Lists what the engines hold; `only` is the name of one of them.
///
/// # Errors
/// [`Failure::Usage`] when no engine is configured, [`Failure::NotFound`] when there is none of that
/// name.
pub(super) async fn discover(
    session: &mut Session<'_>,
    engines: &Configurations,
    surroundings: &Surroundings,
    only: Option<&str>,
) -> anyhow::Result<Outcome> {
    if engines.is_empty() {
        let message = text!(
            "no engine is configured here: set {inline} or {file}",
            inline = INLINE,
            file = FILE
        );
        return Err(Failure::Usage(message).into());
    }
    let mut chosen = Vec::new();
    for (name, configuration) in engines {
        if only.is_none_or(|only| only == name) {
            chosen.push((name.as_str(), build(name, configuration, surroundings)?));
        }
    }
    if let (true, Some(only)) = (chosen.is_empty(), only) {
        let names: Vec<&str> = engines.keys().map(String::as_str).collect();
        let names = names.join(", ");
        let message = text!(
            "there is no engine {only}; configured are {names}",
            only,
            names
        );
        return Err(Failure::NotFound(message).into());
    }
    let entries = session.target.catalog()?.list_all().await?;
    let answers = join_all(chosen.iter().map(|(_, engine)| everything(engine.as_ref()))).await;
    let mut found = Vec::new();
    let mut outcome = Outcome::Done;
    for ((engine, _), (knowledge_bases, failure)) in chosen.iter().zip(answers) {
        for knowledge_base in knowledge_bases {
            found.push(Discovered {
                engine: (*engine).to_owned(),
                entered_as: entered_as(&entries, engine, &knowledge_base.id),
                knowledge_base,
            });
        }
        if let Some(error) = failure {
            outcome = Outcome::Incomplete;
            session.console.note(text!(
                "the knowledge bases of {engine} are not all here: {error}",
                engine,
                error
            ));
        }
    }
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    let heading = [
        text!("ENGINE"),
        text!("ID"),
        text!("DOCUMENTS"),
        text!("IN THE CATALOGUE"),
        text!("NAME"),
    ];
    session.show(&Items { items: found }, || table(&heading, &rows))?;
    Ok(outcome)
}

/// All knowledge bases of an engine, and why there are no more.
async fn everything(engine: &dyn Backend) -> (Vec<EngineKnowledgeBase>, Option<BackendError>) {
    let (mut all, mut position) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let call = EngineCall::within(PAGE_PATIENCE);
        let page = engine.list_knowledge_bases(position.as_deref(), PAGE_LENGTH, &call);
        match page.await {
            Ok(page) => {
                all.extend(page.knowledge_bases);
                position = page.next;
            }
            Err(error) => return (all, Some(error)),
        }
        if position.is_none() {
            break;
        }
    }
    (all, None)
}

fn entered_as(entries: &[KnowledgeBase], engine: &str, id: &str) -> Vec<String> {
    entries
        .iter()
        .filter(|entry| entry.backend.kind == engine && entry.backend.id == id)
        .map(|entry| entry.id.to_string())
        .collect()
}

fn row(found: &Discovered) -> Vec<String> {
    let entered = if found.entered_as.is_empty() {
        text!("none").to_owned()
    } else {
        found.entered_as.join(", ")
    };
    vec![
        found.engine.clone(),
        found.knowledge_base.id.clone(),
        count(found.knowledge_base.document_count),
        entered,
        found.knowledge_base.name.clone(),
    ]
}
