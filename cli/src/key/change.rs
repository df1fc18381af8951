//! Changes to keys that exist. Each is decided on the record as it was read, and is written only if
//! nobody else changed it meanwhile.

use futures::FutureExt as _;
use raglan_core::clock::Timestamp;
use raglan_core::key_record::{KeyRecord, Standing};
use raglan_core::life_cycle;
use raglan_store::{KeyStore, ReadRecord, StoreError};
use serde_json::{Map, Value, json};

use super::arguments::{ExpireArguments, GrantArguments, RevokeArguments};
use super::find::find;
use super::view::{self, KeyView};
use super::{grants, issue};
use crate::Outcome;
use crate::failure::Failure;
use crate::language::text;
use crate::ledger::{Change, Subject, WhenUnrecorded};
use crate::session::Session;

/// How often a revocation is tried when others change the key at the same time.
const REVOKE_ATTEMPTS: u32 = 5;

/// `raglan key grant`
pub(super) async fn grant(
    session: &mut Session<'_>,
    arguments: &GrantArguments,
) -> anyhow::Result<Outcome> {
    let keys = session.target.keys()?;
    let before = find(&keys, session.console, &arguments.key).await?;
    let now = session.clock.now();
    if let Some(standing) = life_cycle::ending(&before.record, now) {
        return Err(ended(standing).into());
    }
    let after = grants::changed(&before.record, &arguments.changes)?;
    let outcome = replace(session, &keys, "key.grant", &before, &after).await?;
    issue::warn_about_reach(session, &after).await;
    Ok(outcome)
}

/// `raglan key enable`
pub(super) async fn enable(session: &mut Session<'_>, named: &str) -> anyhow::Result<Outcome> {
    let keys = session.target.keys()?;
    let before = find(&keys, session.console, named).await?;
    let now = session.clock.now();
    let after = life_cycle::set_enabled(&before.record, true, now).map_err(ended)?;
    replace(session, &keys, "key.enable", &before, &after).await
}

/// `raglan key disable`
pub(super) async fn disable(
    session: &mut Session<'_>,
    named: &str,
    allow_unaudited: bool,
) -> anyhow::Result<Outcome> {
    let keys = session.target.keys()?;
    let before = find(&keys, session.console, named).await?;
    let now = session.clock.now();
    let after = life_cycle::set_enabled(&before.record, false, now).map_err(ended)?;
    let change = the_change("key.disable", &before.record, &after);
    let ledger = session.ledger(when_unrecorded(allow_unaudited)).await?;
    let work = keys.replace(&before, &after).boxed_local();
    let outcome = ledger.make(session.console, &[change], work).await?;
    show(session, &after)?;
    Ok(outcome)
}

/// `raglan key revoke`
pub(super) async fn revoke(
    session: &mut Session<'_>,
    arguments: &RevokeArguments,
) -> anyhow::Result<Outcome> {
    let keys = session.target.keys()?;
    let before = find(&keys, session.console, &arguments.key).await?;
    if before.record.revoked_at.is_some() {
        show(session, &before.record)?;
        return Ok(Outcome::Done);
    }
    let question = text!(
        "Revoke {key_id} ({name}, {fingerprint}) in {target}?",
        key_id = before.record.key_id,
        name = before.record.name,
        fingerprint = before.record.fingerprint,
        target = session.target.description()
    );
    session.console.confirm(&question, arguments.yes)?;
    let after = life_cycle::revoke(&before.record, session.clock.now());
    let change = the_change("key.revoke", &before.record, &after);
    let ledger = session
        .ledger(when_unrecorded(arguments.allow_unaudited))
        .await?;
    let work = revoke_whatever_happens(session.clock.now(), &keys, &before).boxed_local();
    let outcome = ledger.make(session.console, &[change], work).await?;
    show(session, &after)?;
    Ok(outcome)
}

/// `raglan key expire`
pub(super) async fn expire(
    session: &mut Session<'_>,
    arguments: &ExpireArguments,
) -> anyhow::Result<Outcome> {
    let keys = session.target.keys()?;
    let before = find(&keys, session.console, &arguments.key).await?;
    let now = session.clock.now();
    let end = arguments.when.from(now);
    let after = life_cycle::set_expiry(&before.record, end, now).map_err(ended)?;
    if end.is_some_and(|end| end <= now) {
        let question = text!(
            "End {key_id} ({name}) in {target} at once?",
            key_id = after.key_id,
            name = after.name,
            target = session.target.description()
        );
        session.console.confirm(&question, arguments.yes)?;
    }
    replace(session, &keys, "key.expire", &before, &after).await
}

/// Who is changed, for the audit trail.
pub(super) fn subject(record: &KeyRecord) -> Subject {
    Subject::Key {
        key_id: record.key_id.clone(),
        owner: record.owner.clone(),
    }
}

async fn replace(
    session: &mut Session<'_>,
    keys: &KeyStore,
    action: &'static str,
    before: &ReadRecord,
    after: &KeyRecord,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::Done;
    // What changes nothing is no change: the trail is for those who look for changes.
    if before.record != *after {
        let change = the_change(action, &before.record, after);
        let ledger = session.ledger(WhenUnrecorded::Refuse).await?;
        let work = keys.replace(before, after).boxed_local();
        outcome = ledger.make(session.console, &[change], work).await?;
    }
    show(session, after)?;
    Ok(outcome)
}

/// A change that somebody else makes at the same time is no reason to leave a key alive.
async fn revoke_whatever_happens(
    now: Timestamp,
    keys: &KeyStore,
    before: &ReadRecord,
) -> Result<(), StoreError> {
    let mut before = before.clone();
    for _ in 1..REVOKE_ATTEMPTS {
        let revoked = life_cycle::revoke(&before.record, now);
        match keys.replace(&before, &revoked).await {
            Err(StoreError::Conflict { .. }) => {}
            result => return result,
        }
        match keys.read(&before.record.key_hash).await? {
            Some(read) => before = read,
            None => return Ok(()),
        }
    }
    let revoked = life_cycle::revoke(&before.record, now);
    keys.replace(&before, &revoked).await
}

fn show(session: &mut Session<'_>, record: &KeyRecord) -> anyhow::Result<()> {
    let now = session.clock.now();
    session.show(&KeyView::of(record, now), || view::describe(record, now))
}

const fn when_unrecorded(allow_unaudited: bool) -> WhenUnrecorded {
    if allow_unaudited {
        WhenUnrecorded::Proceed
    } else {
        WhenUnrecorded::Refuse
    }
}

fn ended(standing: Standing) -> Failure {
    let why = match standing {
        Standing::Revoked => text!("the key was revoked, for good: make a new one"),
        Standing::Expired => text!("the key has expired, for good: make a new one"),
        Standing::Replaced => {
            text!("the key was replaced, and its grace is over, for good: make a new one")
        }
        Standing::Disabled => text!("the key is disabled, for good: make a new one"),
    };
    Failure::Refused(why.to_owned())
}

fn the_change(action: &'static str, before: &KeyRecord, after: &KeyRecord) -> Change {
    Change {
        action,
        subject: subject(after),
        details: difference(before, after),
    }
}

/// The fields that differ, as they were and as they are. A record's hash never differs, and so is
/// never in it.
fn difference(before: &KeyRecord, after: &KeyRecord) -> Value {
    let fields = |record: &KeyRecord| match serde_json::to_value(record) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (before, after) = (fields(before), fields(after));
    let mut was = Map::new();
    let mut is = Map::new();
    for name in before.keys().chain(after.keys()) {
        let (old, new) = (before.get(name), after.get(name));
        if old != new {
            was.insert(name.clone(), old.cloned().unwrap_or_default());
            is.insert(name.clone(), new.cloned().unwrap_or_default());
        }
    }
    json!({ "before": was, "after": is })
}
