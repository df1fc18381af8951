//! How a key's state may change. A key that has ended (revoked, expired, or replaced with its grace
//! over) never works again: nothing but a revocation, which only says so more clearly, can be written
//! about it. Everything else would let an expired key come back, and so get around the rule that it
//! cannot be rotated.

use crate::clock::Timestamp;
use crate::key_record::{KeyRecord, Standing};

/// Why the key is at its end at `now`; `None` while it works or could be enabled again.
#[must_use]
pub fn ending(record: &KeyRecord, now: Timestamp) -> Option<Standing> {
    let enabled = KeyRecord {
        enabled: true,
        ..record.clone()
    };
    enabled.check(now).err()
}

/// The record with `change` made to it.
///
/// # Errors
/// The [`Standing`] of a key that has ended.
pub fn change(
    record: &KeyRecord,
    now: Timestamp,
    change: impl FnOnce(&mut KeyRecord),
) -> Result<KeyRecord, Standing> {
    if let Some(standing) = ending(record, now) {
        return Err(standing);
    }
    let mut changed = record.clone();
    change(&mut changed);
    Ok(changed)
}

/// The record, revoked for good from `now` on. A key that was revoked before stays as it is.
#[must_use]
pub fn revoke(record: &KeyRecord, now: Timestamp) -> KeyRecord {
    KeyRecord {
        revoked_at: record.revoked_at.or(Some(now)),
        ..record.clone()
    }
}

/// The record, switched on or off.
///
/// # Errors
/// The [`Standing`] of a key that has ended.
pub fn set_enabled(
    record: &KeyRecord,
    enabled: bool,
    now: Timestamp,
) -> Result<KeyRecord, Standing> {
    change(record, now, |key| key.enabled = enabled)
}

/// The record with another end (`None`: no end). A grace that runs is cut to the new end, and is never
/// made longer.
///
/// # Errors
/// The [`Standing`] of a key that has ended.
pub fn set_expiry(
    record: &KeyRecord,
    expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<KeyRecord, Standing> {
    change(record, now, |key| {
        key.expires_at = expires_at;
        if let (Some(grace), Some(end)) = (key.grace_ends_at, expires_at) {
            key.grace_ends_at = Some(grace.min(end));
        }
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::key::PlainKey;
    use crate::key_record::ScopeKind;
    use crate::random::SequenceRandom;
    use crate::tool::Tool;

    pub(crate) const NOW: Timestamp = Timestamp::from_epoch_seconds(1_800_000_000);

    pub(crate) fn record() -> KeyRecord {
        let key = PlainKey::generate(&SequenceRandom::seeded(1)).unwrap();
        KeyRecord {
            key_hash: key.hash(),
            key_id: "key-1".to_owned(),
            name: "test".to_owned(),
            fingerprint: key.fingerprint(),
            owner: Some("anna".to_owned()),
            tools: BTreeSet::from([Tool::Ask]),
            scope: ScopeKind::All,
            kb_ids: BTreeSet::new(),
            enabled: true,
            created_at: NOW.plus_seconds(-100),
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
            replaced_by: None,
            grace_ends_at: None,
            rate_limit: None,
            daily_quotas: BTreeMap::from([("ask".to_owned(), 5)]),
            audit_text: None,
        }
    }

    fn ended() -> [(KeyRecord, Standing); 4] {
        [
            (revoke(&record(), NOW), Standing::Revoked),
            (
                KeyRecord {
                    expires_at: Some(NOW),
                    ..record()
                },
                Standing::Expired,
            ),
            (
                KeyRecord {
                    replaced_by: Some("key-2".to_owned()),
                    grace_ends_at: Some(NOW),
                    ..record()
                },
                Standing::Replaced,
            ),
            (
                // Being switched off as well does not hide that it has ended.
                KeyRecord {
                    expires_at: Some(NOW),
                    enabled: false,
                    ..record()
                },
                Standing::Expired,
            ),
        ]
    }

    #[test]
    fn a_key_that_has_ended_cannot_come_back() {
        for (key, standing) in ended() {
            assert_eq!(ending(&key, NOW), Some(standing));
            assert_eq!(set_enabled(&key, true, NOW), Err(standing));
            assert_eq!(set_expiry(&key, None, NOW), Err(standing));
            let later = Some(NOW.plus_seconds(9));
            assert_eq!(set_expiry(&key, later, NOW), Err(standing));
            let grant = |key: &mut KeyRecord| key.tools.extend(Tool::ALL);
            assert_eq!(change(&key, NOW, grant), Err(standing));
        }
    }

    #[test]
    fn every_key_can_be_revoked_and_stays_revoked_since_the_first_time() {
        let others = [record()];
        for key in ended().into_iter().map(|(key, _)| key).chain(others) {
            let revoked = revoke(&key, NOW.plus_seconds(5));
            assert_eq!(revoked.check(NOW), Err(Standing::Revoked));
            assert_eq!(revoke(&revoked, NOW.plus_seconds(9)), revoked);
        }
    }

    #[test]
    fn a_key_that_is_switched_off_can_be_switched_on_again() {
        let off = set_enabled(&record(), false, NOW).unwrap();
        assert_eq!(off.check(NOW), Err(Standing::Disabled));
        assert_eq!(ending(&off, NOW), None);
        assert_eq!(set_enabled(&off, true, NOW), Ok(record()));
    }

    #[test]
    fn an_end_may_be_moved_in_both_directions_until_it_is_reached() {
        let key = set_expiry(&record(), Some(NOW.plus_seconds(10)), NOW).unwrap();
        assert_eq!(key.check(NOW.plus_seconds(10)), Err(Standing::Expired));
        let longer = set_expiry(&key, Some(NOW.plus_seconds(20)), NOW).unwrap();
        assert_eq!(longer.check(NOW.plus_seconds(10)), Ok(()));
        assert_eq!(set_expiry(&longer, None, NOW), Ok(record()));
        let ended = set_expiry(&key, Some(NOW), NOW).unwrap();
        assert_eq!(ended.check(NOW), Err(Standing::Expired));
    }

    proptest! {
        #[test]
        fn no_new_end_makes_a_grace_longer(grace in 1_i64..1000, end in proptest::option::of(-1000_i64..1000)) {
            let key = KeyRecord {
                replaced_by: Some("key-2".to_owned()),
                grace_ends_at: Some(NOW.plus_seconds(grace)),
                ..record()
            };
            let changed = set_expiry(&key, end.map(|end| NOW.plus_seconds(end)), NOW).unwrap();
            prop_assert!(changed.grace_ends_at <= key.grace_ends_at);
            if let Some(end) = changed.expires_at {
                prop_assert!(changed.grace_ends_at <= Some(end));
            }
        }
    }
}
