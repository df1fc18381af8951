//! New keys: made, taken over from elsewhere, or put in the place of another.

use std::collections::BTreeSet;

use futures::FutureExt as _;
use raglan_core::access::{Grant, Reach};
use raglan_core::clock::Timestamp;
use raglan_core::ids;
use raglan_core::key::{KeyHash, PlainKey};
use raglan_core::key_record::{KeyRecord, ScopeKind};
use raglan_core::rotation::{self, NotRotatable, Rotation, Successor, SuccessorExpiry};
use serde::Serialize;
use serde_json::{Value, json};

use super::arguments::{
    CreateArguments, HandoverArguments, ImportArguments, ImportedHolder, NewGrants, RotateArguments,
};
use super::choices::AuditTextChoice;
use super::find::find;
use super::handover::{Handover, Secret};
use super::view::{self, KeyView};
use super::{change::subject, grants};
use crate::Outcome;
use crate::failure::Failure;
use crate::language::text;
use crate::ledger::{Change, WhenUnrecorded};
use crate::session::Session;
use crate::terminal::labelled;

/// `raglan key create`
pub(super) async fn create(
    session: &mut Session<'_>,
    arguments: CreateArguments,
) -> anyhow::Result<Outcome> {
    let key = PlainKey::generate(session.random)?;
    let record = new_record(
        Identity {
            hash: key.hash(),
            key_id: ids::key_id(session.random)?,
            fingerprint: key.fingerprint(),
            name: arguments.name,
        },
        &arguments.grants,
        session.clock.now(),
    )?;
    let keys = session.target.keys()?;
    let ledger = session.ledger(WhenUnrecorded::Refuse).await?;
    let changes = [Change {
        action: "key.create",
        subject: subject(&record),
        details: details(&record),
    }];
    let mut delivery = Delivery::prepare(session, &arguments.handover, &key)?;
    delivery.write_file(session.json)?;
    let made = ledger
        .make(
            session.console,
            &changes,
            keys.put_new(&record).boxed_local(),
        )
        .await;
    let outcome = delivery.settle(made)?;
    delivery.show(session, &record, None)?;
    warn_about_reach(session, &record).await;
    Ok(outcome)
}

/// `raglan key import`
pub(super) async fn import(
    session: &mut Session<'_>,
    arguments: ImportArguments,
) -> anyhow::Result<Outcome> {
    let hash = imported_hash(&arguments.holder)?;
    let keys = session.target.keys()?;
    if let Some(known) = keys.find(&hash).await? {
        let message = text!(
            "this is known already: it is {key_id}",
            key_id = known.key_id
        );
        return Err(Failure::Refused(message).into());
    }
    let record = new_record(
        Identity {
            fingerprint: if arguments.holder.oauth_subject.is_some() {
                hash.subject_fingerprint()
            } else {
                hash.fingerprint()
            },
            hash,
            key_id: ids::key_id(session.random)?,
            name: arguments.name,
        },
        &arguments.grants,
        session.clock.now(),
    )?;
    let ledger = session.ledger(WhenUnrecorded::Refuse).await?;
    let mut details = details(&record);
    if let Some(oauth_subject) = &arguments.holder.oauth_subject {
        details["oauth_issuer"] = arguments.holder.oauth_issuer.as_deref().into();
        details["oauth_subject"] = oauth_subject.as_str().into();
    }
    let changes = [Change {
        action: "key.import",
        subject: subject(&record),
        details,
    }];
    let outcome = ledger
        .make(
            session.console,
            &changes,
            keys.put_new(&record).boxed_local(),
        )
        .await?;
    let now = session.clock.now();
    session.show(&KeyView::of(&record, now), || view::describe(&record, now))?;
    warn_about_reach(session, &record).await;
    Ok(outcome)
}

/// Under which the record is stored: the hash of a key, or that of an OAuth subject.
fn imported_hash(holder: &ImportedHolder) -> Result<KeyHash, Failure> {
    if let (Some(issuer), Some(subject)) = (&holder.oauth_issuer, &holder.oauth_subject) {
        return Ok(KeyHash::of_subject(issuer, subject));
    }
    let digits = holder.sha256.as_deref().unwrap_or_default().trim();
    KeyHash::try_from(digits.to_ascii_lowercase()).map_err(|_| {
        let expected = text!("expected the SHA-256 of a key: 64 lower-case hexadecimal digits");
        Failure::Usage(expected.to_owned())
    })
}

/// `raglan key rotate`
pub(super) async fn rotate(
    session: &mut Session<'_>,
    arguments: RotateArguments,
) -> anyhow::Result<Outcome> {
    let keys = session.target.keys()?;
    let before = find(&keys, session.console, &arguments.key).await?;
    let now = session.clock.now();
    let key = PlainKey::generate(session.random)?;
    let expires_at = match arguments.expires {
        None => SuccessorExpiry::AsBefore,
        Some(when) => SuccessorExpiry::Chosen(future(when.from(now), now)?),
    };
    let successor = Successor {
        key_hash: key.hash(),
        key_id: ids::key_id(session.random)?,
        fingerprint: key.fingerprint(),
        expires_at,
    };
    let Rotation {
        replaced,
        successor,
    } = rotation::rotate(&before.record, successor, arguments.grace, now)
        .map_err(|error| not_rotatable(&error))?;

    let question = text!(
        "Replace {key_id} ({name}) in {target}? It ends {grace_ends_at}.",
        key_id = replaced.key_id,
        name = replaced.name,
        target = session.target.description(),
        grace_ends_at = replaced.grace_ends_at.map(view::moment).unwrap_or_default()
    );
    session.console.confirm(&question, arguments.yes)?;
    let ledger = session.ledger(WhenUnrecorded::Refuse).await?;
    let changes = [
        Change {
            action: "key.rotate",
            subject: subject(&replaced),
            details: json!({
                "replaced_by": successor.key_id, "grace_ends_at": replaced.grace_ends_at,
            }),
        },
        Change {
            action: "key.create",
            subject: subject(&successor),
            details: {
                let mut details = details(&successor);
                details["replaces"] = replaced.key_id.clone().into();
                details
            },
        },
    ];
    let mut delivery = Delivery::prepare(session, &arguments.handover, &key)?;
    delivery.write_file(session.json)?;
    let work = keys.rotate(&before, &replaced, &successor).boxed_local();
    let made = ledger.make(session.console, &changes, work).await;
    let outcome = delivery.settle(made)?;
    delivery.show(session, &successor, Some(&replaced))?;
    Ok(outcome)
}

fn not_rotatable(error: &NotRotatable) -> Failure {
    Failure::Refused(match error {
        NotRotatable::NotWorking(standing) => {
            text!(
                "only a key that works can be rotated ({standing})",
                standing
            )
        }
        NotRotatable::OfSubject => text!(
            "this is the grant record of an OAuth subject, which has no key to rotate: its tokens \
             come from their issuer; change its grants, disable or revoke it instead"
        )
        .to_owned(),
        NotRotatable::AlreadyReplaced { by } => {
            text!("it was replaced by {by} already: rotate that one", by)
        }
    })
}

/// What distinguishes one key from another one.
struct Identity {
    hash: KeyHash,
    key_id: String,
    fingerprint: String,
    name: String,
}

fn new_record(
    identity: Identity,
    grants: &NewGrants,
    now: Timestamp,
) -> Result<KeyRecord, Failure> {
    let (scope, kb_ids) = grants::scope(&grants.knowledge_bases)?;
    let mut record = KeyRecord {
        owner: grants.owner.clone(),
        tools: grants::tools(&grants.tools)?,
        scope,
        kb_ids,
        expires_at: future(grants.expires.from(now), now)?,
        audit_text: grants.audit_text.and_then(AuditTextChoice::policy),
        ..KeyRecord::without_rights(
            identity.hash,
            identity.fingerprint,
            identity.key_id,
            identity.name,
            now,
        )
    };
    grants::set_limits(&mut record, grants.limits.rate_limit, &grants.limits.quotas);
    Ok(record)
}

/// A new key that has ended already is a slip.
fn future(end: Option<Timestamp>, now: Timestamp) -> Result<Option<Timestamp>, Failure> {
    if end.is_some_and(|end| end <= now) {
        return Err(Failure::Usage(
            text!("the key would have ended already").to_owned(),
        ));
    }
    Ok(end)
}

/// What a new key may do, for the audit trail.
fn details(record: &KeyRecord) -> Value {
    json!({
        "name": record.name, "fingerprint": record.fingerprint, "tools": record.tools,
        "scope": record.scope, "kb_ids": record.kb_ids, "expires_at": record.expires_at,
        "rate_limit": record.rate_limit, "daily_quotas": record.daily_quotas,
        "audit_text": record.audit_text,
    })
}

/// A new key on its way to the operator.
struct Delivery<'a> {
    handover: Option<Handover>,
    secret: Secret<'a>,
    has_endpoint: bool,
}

impl<'a> Delivery<'a> {
    fn prepare(
        session: &Session<'a>,
        arguments: &'a HandoverArguments,
        key: &'a PlainKey,
    ) -> anyhow::Result<Self> {
        let endpoint = arguments.url.as_deref().or(session.target.endpoint());
        Ok(Self {
            handover: Some(Handover::prepare(arguments, session.console)?),
            secret: Secret::of(key, endpoint),
            has_endpoint: endpoint.is_some(),
        })
    }

    fn write_file(&mut self, json: bool) -> anyhow::Result<()> {
        match &mut self.handover {
            Some(handover) => handover.write_file(&self.secret, json),
            None => Ok(()),
        }
    }

    /// Keeps the file if the key was made.
    fn settle(&mut self, made: anyhow::Result<Outcome>) -> anyhow::Result<Outcome> {
        if made.is_err()
            && let Some(handover) = self.handover.take()
        {
            handover.abandon();
        }
        made
    }

    /// Shows the record, and the key where it belongs.
    fn show(
        &self,
        session: &mut Session<'_>,
        record: &KeyRecord,
        replaced: Option<&KeyRecord>,
    ) -> anyhow::Result<()> {
        #[derive(Serialize)]
        struct Issued<'a> {
            #[serde(flatten)]
            record: KeyView<'a>,
            #[serde(skip_serializing_if = "Option::is_none")]
            replaces: Option<KeyView<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            written_to: Option<String>,
            #[serde(flatten)]
            secret: Option<&'a Secret<'a>>,
        }
        let now = session.clock.now();
        let written_to = self.handover.as_ref().and_then(Handover::path);
        let issued = Issued {
            record: KeyView::of(record, now),
            replaces: replaced.map(|record| KeyView::of(record, now)),
            secret: written_to.is_none().then_some(&self.secret),
            written_to: written_to.clone(),
        };
        session.show(&issued, || {
            let mut lines = vec![view::describe(record, now)];
            if let Some(replaced) = replaced {
                let end = replaced.grace_ends_at.map(view::moment).unwrap_or_default();
                let value = text!("{key_id}, which ends {end}", key_id = replaced.key_id, end);
                lines.push(labelled(&[(text!("replaces"), value)]));
            }
            lines.push(match &written_to {
                Some(path) => text!(
                    "\nThe key is the first line of {path}, and nowhere else.",
                    path
                ),
                None => text!(
                    "\nThe key, shown this once:\n\n{key}",
                    key = self.secret.text().trim_end()
                ),
            });
            lines.join("\n")
        })?;
        if !self.has_endpoint {
            session.console.note(text!(
                "The deployment does not say its endpoint: with --url the clients' configurations \
                 would be here as well."
            ));
        }
        Ok(())
    }
}

/// Tells when a key may do less than its operator may believe. Looking is a courtesy: the key is made
/// already, and a catalogue that cannot be read takes nothing away from it.
pub(super) async fn warn_about_reach(session: &mut Session<'_>, record: &KeyRecord) {
    let Grant { tools, .. } = record.grant();
    if tools.is_empty() {
        session.console.note(text!(
            "The key may call no tool yet: raglan key grant … --add-tools"
        ));
    }
    if record.scope == ScopeKind::None {
        session.console.note(text!(
            "The key may ask no knowledge base yet: raglan key grant … --add-kb"
        ));
    }
    let grant = record.grant();
    let Reach::Listed { ids, .. } = grant.reach() else {
        return;
    };
    let Ok(catalog) = session.target.catalog() else {
        return;
    };
    let Ok(entries) = catalog.read(&grant.reach()).await else {
        return;
    };
    let found: BTreeSet<_> = entries.iter().map(|entry| &entry.id).collect();
    for id in ids.iter().filter(|id| !found.contains(id)) {
        session.console.note(match &record.owner {
            Some(owner) => text!(
                "There is no knowledge base {id} of {owner} at the moment.",
                id,
                owner
            ),
            None => text!("There is no knowledge base {id} at the moment.", id),
        });
    }
}
