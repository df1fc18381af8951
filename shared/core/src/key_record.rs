//! What is stored about a key, and whether the key is good at a given moment.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};

use crate::access::{Grant, Scope};
use crate::audit::privacy::TextPolicy;
use crate::catalog::KnowledgeBaseId;
use crate::clock::Timestamp;
use crate::key::{KeyHash, SUBJECT_FINGERPRINT_PREFIX};
use crate::tool::Tool;

/// A key's record. The key itself is not in it: [`KeyRecord::key_hash`] is all that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// SHA-256 of the key; the table's partition key.
    pub key_hash: KeyHash,
    /// Identifier for people, audit and logs; not secret.
    pub key_id: String,
    /// What the key is for.
    pub name: String,
    /// What people recognise the key by: `rgl_abc…xyz`.
    pub fingerprint: String,
    /// The owner; `None` for a system key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The tools that may be called. Names that this version does not know are dropped.
    #[serde(default, deserialize_with = "known_tools")]
    pub tools: BTreeSet<Tool>,
    /// Which knowledge bases the key names. What this version does not know is `none`.
    #[serde(default)]
    pub scope: ScopeKind,
    /// The knowledge bases of scope `list`. Names that cannot exist are dropped.
    #[serde(
        default,
        deserialize_with = "valid_ids",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub kb_ids: BTreeSet<KnowledgeBaseId>,
    /// Whether the operator lets the key work. Absent means no.
    #[serde(default)]
    pub enabled: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// From this moment on it does not work any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked, for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, within the exactness that usage is kept at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    /// The `key_id` of the key that took its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
    /// From this moment on the replaced key does not work any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ends_at: Option<Timestamp>,
    /// Requests per minute and burst; `None` takes the deployment's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// Calls per day (UTC) and tool; a tool that is not named takes the deployment's default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub daily_quotas: BTreeMap<String, u64>,
    /// What the audit trail keeps of the words of this key's callers; `None` takes the deployment's
    /// default. What this version does not know is [`TextPolicy::Drop`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_text: Option<TextPolicy>,
}

/// How a key's knowledge bases are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeKind {
    /// All that the key's kind may see.
    All,
    /// Those in `kb_ids`.
    List,
    /// None; also what an unknown word is taken for.
    #[default]
    #[serde(other)]
    None,
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    /// Sustained requests per minute.
    pub requests_per_minute: u32,
    /// Requests that may come at once.
    pub burst: u32,
}

/// Why a known key does not work. For the log and the audit trail only: the caller is told the same
/// in every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Standing {
    /// The operator switched it off.
    #[error("key_disabled")]
    Disabled,
    /// Its time is over.
    #[error("key_expired")]
    Expired,
    /// It was revoked.
    #[error("key_revoked")]
    Revoked,
    /// It was replaced, and its grace is over.
    #[error("key_replaced")]
    Replaced,
}

impl KeyRecord {
    /// The record of a system key that works from `now` on and has no right yet: no tool, no knowledge
    /// base; no end, and the deployment's limits.
    #[must_use]
    pub const fn without_rights(
        key_hash: KeyHash,
        fingerprint: String,
        key_id: String,
        name: String,
        now: Timestamp,
    ) -> Self {
        Self {
            key_hash,
            key_id,
            name,
            fingerprint,
            owner: None,
            tools: BTreeSet::new(),
            scope: ScopeKind::None,
            kb_ids: BTreeSet::new(),
            enabled: true,
            created_at: now,
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
            replaced_by: None,
            grace_ends_at: None,
            rate_limit: None,
            daily_quotas: BTreeMap::new(),
            audit_text: None,
        }
    }

    /// Whether the record says what an OAuth subject may do, and belongs to no key.
    #[must_use]
    pub fn is_of_subject(&self) -> bool {
        self.fingerprint.starts_with(SUBJECT_FINGERPRINT_PREFIX)
    }

    /// Whether the key works at `now`.
    ///
    /// # Errors
    /// The first reason against it.
    pub fn check(&self, now: Timestamp) -> Result<(), Standing> {
        if self.revoked_at.is_some() {
            return Err(Standing::Revoked);
        }
        if !self.enabled {
            return Err(Standing::Disabled);
        }
        if self.expires_at.is_some_and(|end| now >= end) {
            return Err(Standing::Expired);
        }
        // A replaced key without an end of its grace has no grace.
        let replaced = self.replaced_by.is_some() || self.grace_ends_at.is_some();
        if replaced && self.grace_ends_at.is_none_or(|end| now >= end) {
            return Err(Standing::Replaced);
        }
        Ok(())
    }

    /// What the key may do while it works.
    #[must_use]
    pub fn grant(&self) -> Grant {
        let scope = match self.scope {
            ScopeKind::None => Scope::None,
            ScopeKind::All => Scope::All,
            ScopeKind::List => Scope::List(self.kb_ids.clone()),
        };
        Grant {
            owner: self.owner.clone(),
            tools: self.tools.clone(),
            scope,
        }
    }
}

fn known_tools<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<Tool>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    Ok(names
        .iter()
        .filter_map(|name| Tool::from_name(name))
        .collect())
}

fn valid_ids<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeSet<KnowledgeBaseId>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    Ok(names
        .iter()
        .filter_map(|name| KnowledgeBaseId::parse(name).ok())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::PlainKey;
    use crate::random::SequenceRandom;

    const NOW: Timestamp = Timestamp::from_epoch_seconds(1_800_000_000);

    fn record() -> KeyRecord {
        let key = PlainKey::generate(&SequenceRandom::seeded(1)).unwrap();
        let (id, name) = ("key-1".to_owned(), "test".to_owned());
        KeyRecord {
            tools: BTreeSet::from([Tool::Retrieve]),
            scope: ScopeKind::All,
            ..KeyRecord::without_rights(
                key.hash(),
                key.fingerprint(),
                id,
                name,
                NOW.plus_seconds(-100),
            )
        }
    }

    #[test]
    fn a_record_without_rights_permits_no_tool_and_reaches_no_knowledge_base() {
        let key = PlainKey::generate(&SequenceRandom::seeded(1)).unwrap();
        let (id, name) = ("key-1".to_owned(), "test".to_owned());
        let record = KeyRecord::without_rights(key.hash(), key.fingerprint(), id, name, NOW);
        assert_eq!(record.check(NOW), Ok(()));
        let grant = record.grant();
        for tool in Tool::ALL {
            assert!(grant.permit_tool(tool).is_err(), "{tool}");
        }
        assert_eq!(grant.scope, Scope::None);
    }

    #[test]
    fn a_key_works_until_the_moment_it_ends_and_not_at_it() {
        let key = KeyRecord {
            expires_at: Some(NOW),
            ..record()
        };
        assert_eq!(key.check(NOW.plus_seconds(-1)), Ok(()));
        assert_eq!(key.check(NOW), Err(Standing::Expired));
    }

    #[test]
    fn each_reason_alone_stops_a_key() {
        let rows = [
            (
                KeyRecord {
                    enabled: false,
                    ..record()
                },
                Standing::Disabled,
            ),
            (
                KeyRecord {
                    revoked_at: Some(NOW.plus_seconds(9)),
                    ..record()
                },
                Standing::Revoked,
            ),
            (
                KeyRecord {
                    expires_at: Some(NOW.plus_seconds(-9)),
                    ..record()
                },
                Standing::Expired,
            ),
            (
                KeyRecord {
                    replaced_by: Some("key-2".to_owned()),
                    ..record()
                },
                Standing::Replaced,
            ),
            (
                KeyRecord {
                    grace_ends_at: Some(NOW),
                    ..record()
                },
                Standing::Replaced,
            ),
        ];
        assert_eq!(record().check(NOW), Ok(()));
        for (key, reason) in rows {
            assert_eq!(key.check(NOW), Err(reason));
        }
    }

    #[test]
    fn a_grace_never_outlives_the_keys_own_end() {
        let key = KeyRecord {
            replaced_by: Some("key-2".to_owned()),
            grace_ends_at: Some(NOW.plus_seconds(100)),
            expires_at: Some(NOW.plus_seconds(10)),
            ..record()
        };
        assert_eq!(key.check(NOW), Ok(()));
        assert_eq!(key.check(NOW.plus_seconds(10)), Err(Standing::Expired));
    }

    #[test]
    fn what_is_missing_or_unknown_in_a_record_grants_nothing() {
        let bare = serde_json::json!({
            "key_hash": record().key_hash, "key_id": "k", "name": "n", "fingerprint": "f",
            "created_at": "2026-11-30",
        });
        let key: KeyRecord = serde_json::from_value(bare.clone()).unwrap();
        assert_eq!(key.check(NOW), Err(Standing::Disabled));
        assert_eq!(key.grant(), Grant::default());

        let mut odd = bare;
        odd["scope"] = "everything".into();
        odd["tools"] = serde_json::json!(["retrieve", "delete_everything", "Ask"]);
        odd["kb_ids"] = serde_json::json!(["ok", "*", "../x"]);
        let key: KeyRecord = serde_json::from_value(odd.clone()).unwrap();
        assert_eq!(key.grant().scope, Scope::None);
        assert_eq!(key.tools, BTreeSet::from([Tool::Retrieve]));

        assert_eq!(key.audit_text, None);

        odd["scope"] = "list".into();
        odd["audit_text"] = "shout".into();
        let key: KeyRecord = serde_json::from_value(odd).unwrap();
        let only = KnowledgeBaseId::parse("ok").unwrap();
        assert_eq!(key.grant().scope, Scope::List(BTreeSet::from([only])));
        assert_eq!(key.audit_text, Some(TextPolicy::Drop));
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let full = KeyRecord {
            owner: Some("anna".to_owned()),
            expires_at: Some(NOW),
            rate_limit: Some(RateLimit {
                requests_per_minute: 60,
                burst: 10,
            }),
            daily_quotas: BTreeMap::from([("ask".to_owned(), 100)]),
            audit_text: Some(TextPolicy::Hash),
            ..record()
        };
        let text = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<KeyRecord>(&text).unwrap(), full);
    }
}
