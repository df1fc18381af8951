//! Rotation: a new key with the same grants, and an old one that goes on working for a while, so that
//! clients can be moved over one after the other.

use crate::clock::Timestamp;
use crate::key::KeyHash;
use crate::key_record::{KeyRecord, Standing};

/// The longest grace: 7 days.
pub const GRACE_MAX_SECONDS: i64 = 7 * 24 * 3600;

/// How long a replaced key still works, 0 to 7 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    seconds: i64,
}

/// The grace is negative or longer than 7 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a grace is 0 to 7 days long")]
pub struct InvalidGrace;

impl Grace {
    /// A grace of so many seconds.
    ///
    /// # Errors
    /// [`InvalidGrace`] below zero and above [`GRACE_MAX_SECONDS`].
    pub const fn from_seconds(seconds: i64) -> Result<Self, InvalidGrace> {
        if seconds < 0 || seconds > GRACE_MAX_SECONDS {
            return Err(InvalidGrace);
        }
        Ok(Self { seconds })
    }
}

/// The key that takes the place of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Successor {
    /// Its hash.
    pub key_hash: KeyHash,
    /// Its identifier.
    pub key_id: String,
    /// What people recognise it by.
    pub fingerprint: String,
    /// When it ends.
    pub expires_at: SuccessorExpiry,
}

/// When the new key ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuccessorExpiry {
    /// When the old one would have: a rotation alone gives nobody more time.
    AsBefore,
    /// At another moment, or never (`None`), because the operator says so.
    Chosen(Option<Timestamp>),
}

/// What a rotation writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// The old key's record, with its successor and the end of its grace.
    pub replaced: KeyRecord,
    /// The new key's record.
    pub successor: KeyRecord,
}

/// Why a key cannot be rotated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRotatable {
    /// It does not work. For a key that is only switched off this is deliberate too: its successor
    /// would work, so a rotation would undo what somebody switched off.
    #[error("only a key that works can be rotated ({0})")]
    NotWorking(Standing),
    /// It is what an OAuth subject may do: access tokens are renewed by their issuer.
    #[error(
        "this is the grant record of an OAuth subject, which has no key to rotate: its tokens come from \
         their issuer; change its grants, disable or revoke it instead"
    )]
    OfSubject,
    /// It was rotated already: its successor is the one to rotate.
    #[error("it was replaced by {by} already: rotate that one")]
    AlreadyReplaced {
        /// The successor's identifier.
        by: String,
    },
}

/// The records after a rotation at `now`. The old key works until the grace ends or until its own end,
/// whichever comes first; with a grace of zero it stops at once.
///
/// # Errors
/// [`NotRotatable`]
pub fn rotate(
    old: &KeyRecord,
    successor: Successor,
    grace: Grace,
    now: Timestamp,
) -> Result<Rotation, NotRotatable> {
    if old.is_of_subject() {
        return Err(NotRotatable::OfSubject);
    }
    old.check(now).map_err(NotRotatable::NotWorking)?;
    if let Some(by) = &old.replaced_by {
        return Err(NotRotatable::AlreadyReplaced { by: by.clone() });
    }
    let grace_end = now.plus_seconds(grace.seconds);
    let grace_end = old.expires_at.map_or(grace_end, |end| end.min(grace_end));
    let replaced = KeyRecord {
        replaced_by: Some(successor.key_id.clone()),
        grace_ends_at: Some(grace_end),
        ..old.clone()
    };
    let expires_at = match successor.expires_at {
        SuccessorExpiry::AsBefore => old.expires_at,
        SuccessorExpiry::Chosen(expires_at) => expires_at,
    };
    let successor = KeyRecord {
        key_hash: successor.key_hash,
        key_id: successor.key_id,
        fingerprint: successor.fingerprint,
        created_at: now,
        expires_at,
        last_used_at: None,
        ..old.clone()
    };
    Ok(Rotation {
        replaced,
        successor,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::PlainKey;
    use crate::life_cycle;
    use crate::life_cycle::tests::{NOW, record};
    use crate::random::SequenceRandom;

    fn successor(expires_at: SuccessorExpiry) -> Successor {
        let key = PlainKey::generate(&SequenceRandom::seeded(2)).unwrap();
        Successor {
            key_hash: key.hash(),
            key_id: "key-2".to_owned(),
            fingerprint: key.fingerprint(),
            expires_at,
        }
    }

    fn rotated(old: &KeyRecord, grace_seconds: i64) -> Result<Rotation, NotRotatable> {
        let grace = Grace::from_seconds(grace_seconds).unwrap();
        rotate(old, successor(SuccessorExpiry::AsBefore), grace, NOW)
    }

    #[test]
    fn both_keys_work_during_the_grace_and_only_the_new_one_after_it() {
        let Rotation {
            replaced,
            successor,
        } = rotated(&record(), 60).unwrap();
        for (seconds, old) in [
            (0, Ok(())),
            (59, Ok(())),
            (60, Err(Standing::Replaced)),
            (GRACE_MAX_SECONDS, Err(Standing::Replaced)),
        ] {
            assert_eq!(replaced.check(NOW.plus_seconds(seconds)), old);
            assert_eq!(successor.check(NOW.plus_seconds(seconds)), Ok(()));
        }
    }

    #[test]
    fn the_new_key_has_the_same_grants_limits_and_end_and_is_another_key() {
        let old = KeyRecord {
            expires_at: Some(NOW.plus_seconds(500)),
            last_used_at: Some(NOW),
            ..record()
        };
        let new = rotated(&old, 0).unwrap().successor;
        assert_eq!(new.grant(), old.grant());
        assert_eq!(new.expires_at, old.expires_at);
        let expected = KeyRecord {
            key_hash: new.key_hash.clone(),
            key_id: "key-2".to_owned(),
            fingerprint: new.fingerprint.clone(),
            created_at: NOW,
            last_used_at: None,
            ..old.clone()
        };
        assert_eq!(new, expected);
        assert_ne!(new.key_hash, old.key_hash);
    }

    #[test]
    fn the_new_key_ends_when_the_operator_says_so() {
        let old = KeyRecord {
            expires_at: Some(NOW.plus_seconds(500)),
            ..record()
        };
        for end in [None, Some(NOW.plus_seconds(9000))] {
            let successor = successor(SuccessorExpiry::Chosen(end));
            let grace = Grace::from_seconds(1000).unwrap();
            let rotation = rotate(&old, successor, grace, NOW).unwrap();
            assert_eq!(rotation.successor.expires_at, end);
            assert_eq!(rotation.replaced.grace_ends_at, old.expires_at);
        }
    }

    #[test]
    fn a_key_that_does_not_work_cannot_be_rotated() {
        let rows = [
            (life_cycle::revoke(&record(), NOW), Standing::Revoked),
            (
                life_cycle::set_enabled(&record(), false, NOW).unwrap(),
                Standing::Disabled,
            ),
            (
                life_cycle::set_expiry(&record(), Some(NOW), NOW).unwrap(),
                Standing::Expired,
            ),
            (rotated(&record(), 0).unwrap().replaced, Standing::Replaced),
        ];
        for (key, standing) in rows {
            assert_eq!(rotated(&key, 60), Err(NotRotatable::NotWorking(standing)));
        }
    }

    #[test]
    fn a_key_has_one_successor() {
        let first = rotated(&record(), 60).unwrap();
        let again = NotRotatable::AlreadyReplaced {
            by: "key-2".to_owned(),
        };
        assert_eq!(rotated(&first.replaced, 60), Err(again));
        assert!(rotated(&first.successor, 60).is_ok());
    }

    #[test]
    fn a_grace_is_nothing_to_seven_days() {
        for good in [0, 1, GRACE_MAX_SECONDS] {
            assert!(Grace::from_seconds(good).is_ok());
        }
        for bad in [-1, GRACE_MAX_SECONDS + 1, i64::MAX, i64::MIN] {
            assert_eq!(Grace::from_seconds(bad), Err(InvalidGrace));
        }
    }

    proptest! {
        #[test]
        fn a_replaced_key_never_outlives_its_own_end_nor_seven_days(
            grace in 0..=GRACE_MAX_SECONDS,
            end in proptest::option::of(1_i64..2 * GRACE_MAX_SECONDS),
            moment in 0_i64..3 * GRACE_MAX_SECONDS,
        ) {
            let expires_at = end.map(|end| NOW.plus_seconds(end));
            let old = KeyRecord { expires_at, ..record() };
            let replaced = rotated(&old, grace).unwrap().replaced;
            let works = replaced.check(NOW.plus_seconds(moment)).is_ok();
            prop_assert_eq!(works, moment < grace && end.is_none_or(|end| moment < end));
        }
    }
}
