//! `raglan kb`: the catalogue of knowledge bases.

pub mod arguments;

use futures::{FutureExt as _, TryFutureExt as _};
use raglan_core::catalog::{BackendReference, KnowledgeBase, KnowledgeBaseId};
use raglan_core::clock::Timestamp;
use raglan_store::CatalogStore;
use raglan_store::catalog::PutMode;
use serde_json::{Value, json};

use crate::Outcome;
use crate::failure::Failure;
use crate::key::view::{minute, moment};
use crate::language::text;
use crate::ledger::{Change, Subject, WhenUnrecorded};
use crate::session::{Items, Session, with_session};
use crate::terminal::{labelled, table};

use self::arguments::{AddArguments, EditArguments, KbArguments, KbCommand, OwnerArguments};

/// Runs the command.
///
/// # Errors
/// One line; see [`crate::failure`] for the exit codes.
pub async fn run(arguments: KbArguments) -> anyhow::Result<Outcome> {
    let KbArguments {
        target,
        json,
        command,
    } = arguments;
    with_session(&target, json, async |session| {
        execute(session, command).await
    })
    .await
}

/// Runs the command in an open session.
///
/// # Errors
/// As [`run`].
pub async fn execute(session: &mut Session<'_>, command: KbCommand) -> anyhow::Result<Outcome> {
    match command {
        KbCommand::Add(arguments) => add(session, arguments).await,
        KbCommand::List { owner } => list(session, owner.as_deref()).await,
        KbCommand::Show { id } => {
            let entry = find(&session.target.catalog()?, &id).await?;
            show(session, &entry)?;
            Ok(Outcome::Done)
        }
        KbCommand::Edit(arguments) => edit(session, arguments).await,
        KbCommand::Remove { id, yes } => remove(session, &id, yes).await,
        KbCommand::Owner(arguments) => give(session, arguments).await,
    }
}

async fn add(session: &mut Session<'_>, arguments: AddArguments) -> anyhow::Result<Outcome> {
    let now = session.clock.now();
    let entry = KnowledgeBase {
        name: arguments.name.unwrap_or_else(|| arguments.id.to_string()),
        description: arguments.description,
        owner: arguments.owner,
        backend: BackendReference {
            kind: arguments.backend,
            id: arguments
                .backend_id
                .unwrap_or_else(|| arguments.id.to_string()),
        },
        strategy: arguments.strategy,
        document_count: None,
        chunk_count: None,
        created_at: now,
        updated_at: now,
        id: arguments.id,
    };
    let catalog = session.target.catalog()?;
    if catalog.get(&entry.id).await?.is_some() {
        let message = text!("there is a knowledge base {id} already", id = entry.id);
        return Err(Failure::Refused(message).into());
    }
    let change = Change {
        action: "knowledge_base.add",
        subject: subject(&entry),
        details: said(&entry),
    };
    let ledger = session.ledger(WhenUnrecorded::Refuse).await?;
    let work = catalog.put(&entry, PutMode::CreateOnly).boxed_local();
    let outcome = ledger.make(session.console, &[change], work).await?;
    show(session, &entry)?;
    Ok(outcome)
}

async fn list(session: &mut Session<'_>, owner: Option<&str>) -> anyhow::Result<Outcome> {
    let mut entries = session.target.catalog()?.list_all().await?;
    if owner.is_some() {
        entries.retain(|entry| entry.owner.as_deref() == owner);
    }
    let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
    let heading = [
        text!("ID"),
        text!("OWNER"),
        text!("BACKEND"),
        text!("DOCUMENTS"),
        text!("UPDATED (UTC)"),
        text!("NAME"),
    ];
    session.show(&Items { items: entries }, || table(&heading, &rows))?;
    Ok(Outcome::Done)
}

async fn edit(session: &mut Session<'_>, arguments: EditArguments) -> anyhow::Result<Outcome> {
    let catalog = session.target.catalog()?;
    let before = find(&catalog, &arguments.id).await?;
    let mut after = before.clone();
    let changes = arguments.changes;
    for (field, value) in [
        (&mut after.name, changes.name),
        (&mut after.description, changes.description),
        (&mut after.backend.kind, changes.backend),
        (&mut after.backend.id, changes.backend_id),
        (&mut after.strategy, changes.strategy),
    ] {
        if let Some(value) = value {
            *field = value;
        }
    }
    replace(session, &catalog, "knowledge_base.edit", &before, after).await
}

async fn give(session: &mut Session<'_>, arguments: OwnerArguments) -> anyhow::Result<Outcome> {
    let catalog = session.target.catalog()?;
    let before = find(&catalog, &arguments.id).await?;
    let after = KnowledgeBase {
        owner: arguments.owner,
        ..before.clone()
    };
    replace(session, &catalog, "knowledge_base.move", &before, after).await
}

async fn remove(
    session: &mut Session<'_>,
    id: &KnowledgeBaseId,
    yes: bool,
) -> anyhow::Result<Outcome> {
    let catalog = session.target.catalog()?;
    let entry = find(&catalog, id).await?;
    let question = text!(
        "Take {id} ({name}) out of the catalogue of {target}?",
        id,
        name = entry.name,
        target = session.target.description()
    );
    session.console.confirm(&question, yes)?;
    let change = Change {
        action: "knowledge_base.remove",
        subject: subject(&entry),
        details: said(&entry),
    };
    let ledger = session.ledger(WhenUnrecorded::Refuse).await?;
    // Whether somebody else was faster: it is gone.
    let work = catalog.remove(id).map_ok(|_| ()).boxed_local();
    let outcome = ledger.make(session.console, &[change], work).await?;
    show(session, &entry)?;
    Ok(outcome)
}

async fn replace(
    session: &mut Session<'_>,
    catalog: &CatalogStore,
    action: &'static str,
    before: &KnowledgeBase,
    mut after: KnowledgeBase,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::Done;
    if *before != after {
        // The moment of the last change is what the next change is decided on: it has to differ.
        let earliest = before.updated_at.epoch_ms().saturating_add(1);
        let earliest = Timestamp::from_epoch_ms(earliest);
        after.updated_at = session.clock.now().max(earliest);
        let change = Change {
            action,
            subject: subject(&after),
            details: json!({ "before": said(before), "after": said(&after) }),
        };
        let ledger = session.ledger(WhenUnrecorded::Refuse).await?;
        let work = catalog.replace(before, &after).boxed_local();
        outcome = ledger.make(session.console, &[change], work).await?;
    }
    show(session, &after)?;
    Ok(outcome)
}

async fn find(catalog: &CatalogStore, id: &KnowledgeBaseId) -> anyhow::Result<KnowledgeBase> {
    let entry = catalog.get(id).await?;
    Ok(entry.ok_or_else(|| Failure::NotFound(text!("there is no knowledge base {id}", id)))?)
}

fn subject(entry: &KnowledgeBase) -> Subject {
    Subject::KnowledgeBase {
        kb_id: entry.id.to_string(),
        owner: entry.owner.clone(),
    }
}

/// What operators decide about an entry.
fn said(entry: &KnowledgeBase) -> Value {
    json!({
        "name": entry.name, "description": entry.description, "owner": entry.owner,
        "backend": entry.backend, "strategy": entry.strategy,
    })
}

fn row(entry: &KnowledgeBase) -> Vec<String> {
    vec![
        entry.id.to_string(),
        entry
            .owner
            .clone()
            .unwrap_or_else(|| text!("(system)").to_owned()),
        backend(entry),
        count(entry.document_count),
        minute(entry.updated_at),
        entry.name.clone(),
    ]
}

fn show(session: &mut Session<'_>, entry: &KnowledgeBase) -> anyhow::Result<()> {
    session.show(entry, || {
        let owner = entry
            .owner
            .as_deref()
            .unwrap_or(text!("none (system keys only)"));
        labelled(&[
            (text!("knowledge base"), entry.id.to_string()),
            (text!("name"), entry.name.clone()),
            (text!("description"), entry.description.clone()),
            (text!("owner"), owner.to_owned()),
            (text!("backend"), backend(entry)),
            (text!("strategy"), entry.strategy.clone()),
            (text!("documents"), count(entry.document_count)),
            (text!("passages"), count(entry.chunk_count)),
            (text!("created"), moment(entry.created_at)),
            (text!("updated"), moment(entry.updated_at)),
        ])
    })
}

fn backend(entry: &KnowledgeBase) -> String {
    if entry.backend.id == entry.id.as_str() {
        entry.backend.kind.clone()
    } else {
        format!("{}:{}", entry.backend.kind, entry.backend.id)
    }
}

fn count(count: Option<u64>) -> String {
    count.map_or_else(|| text!("unknown").to_owned(), |count| count.to_string())
}
