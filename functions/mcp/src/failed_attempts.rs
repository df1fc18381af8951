//! How often an address may fail to present a good key, decided in this process before the store is
//! asked.
//!
//! Only failures count: an address may fail so often at once and so often a minute. An address beyond
//! that is answered with 429 and costs no store request. A key that has worked in this instance is not
//! held up by its address ([`crate::limit::Limiter::knows`]), so a flood from behind the same address
//! translation cannot lock such a caller out; a good key that this instance does not know yet has to
//! wait with the flood, and competes for the attempts that come back every few seconds.
//!
//! The table has a fixed size. Two addresses that fall on the same place push each other out, which
//! forgets failures and never invents any; the places are drawn with a secret, so nobody can aim at
//! them. IPv6 callers own whole networks, so a /64 counts as one address. Each instance counts for
//! itself: the bound for all is this one times the number of instances.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use raglan_core::clock::Timestamp;
use raglan_core::key_record::RateLimit;
use raglan_core::limits::{Bucket, Fill, epoch_us};
use raglan_core::random::Random;

/// 16 bytes each.
const PLACES: usize = 4096;

/// The failures of recent addresses.
#[derive(Debug)]
pub struct FailedAttempts {
    bucket: Option<Bucket>,
    secret: [u8; 16],
    places: Mutex<Vec<Place>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    address: u64,
    full_at_us: i64,
}

impl FailedAttempts {
    /// Lets an address fail so often a minute; 0 counts nothing.
    #[must_use]
    pub fn new(per_minute: u32, random: &dyn Random) -> Self {
        let mut secret = [0; 16];
        // Without randomness somebody could aim at places; that is no reason not to start.
        let _ = random.fill(&mut secret);
        let limit = RateLimit {
            requests_per_minute: per_minute,
            burst: per_minute,
        };
        Self {
            bucket: Bucket::new(limit),
            secret,
            places: Mutex::new(vec![Place::default(); PLACES]),
        }
    }

    /// Seconds that the address has to wait; `None` when it may try.
    #[must_use]
    pub fn wait_seconds(&self, source_ip: Option<&str>, now: Timestamp) -> Option<u64> {
        let (bucket, address) = (self.bucket?, self.address(source_ip?));
        let now_us = epoch_us(now);
        self.with_place(address, |place| {
            let full_at_us = place.full_at_us;
            let blocked =
                place.address == address && bucket.fill(full_at_us, now_us, 1) == Fill::Empty;
            blocked.then(|| bucket.wait_seconds(full_at_us, now_us, 1))
        })
    }

    /// The address has failed once more.
    pub fn note(&self, source_ip: Option<&str>, now: Timestamp) {
        let (Some(bucket), Some(source_ip)) = (self.bucket, source_ip) else {
            return;
        };
        let address = self.address(source_ip);
        self.with_place(address, |place| {
            if place.address != address {
                *place = Place {
                    address,
                    full_at_us: 0,
                };
            }
            // Attempts that were under way when the bucket ran empty do not prolong the wait.
            if let Some(next) = bucket.take(place.full_at_us, epoch_us(now), 1) {
                place.full_at_us = next;
            }
        });
    }

    fn address(&self, source_ip: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.secret.hash(&mut hasher);
        match source_ip
            .parse()
            .map(|address: IpAddr| address.to_canonical())
        {
            Ok(IpAddr::V6(address)) => address.octets()[..8].hash(&mut hasher),
            Ok(IpAddr::V4(address)) => address.octets().hash(&mut hasher),
            Err(_) => source_ip.hash(&mut hasher),
        }
        hasher.finish()
    }

    fn with_place<T>(&self, address: u64, work: impl FnOnce(&mut Place) -> T) -> T {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(address % PLACES as u64).unwrap_or(0);
        work(&mut places[index])
    }
}

#[cfg(test)]
mod tests {
    use raglan_core::random::SequenceRandom;

    use super::*;

    const NOW: Timestamp = Timestamp::from_epoch_seconds(1_800_000_000);

    fn attempts(per_minute: u32) -> FailedAttempts {
        FailedAttempts::new(per_minute, &SequenceRandom::seeded(1))
    }

    #[test]
    fn an_address_that_fails_too_often_waits_and_no_other_does() {
        let attempts = attempts(6);
        for _ in 0..6 {
            assert_eq!(attempts.wait_seconds(Some("192.0.2.1"), NOW), None);
            attempts.note(Some("192.0.2.1"), NOW);
        }
        assert_eq!(attempts.wait_seconds(Some("192.0.2.1"), NOW), Some(10));
        assert_eq!(
            attempts.wait_seconds(Some("::ffff:192.0.2.1"), NOW),
            Some(10)
        );
        assert_eq!(attempts.wait_seconds(Some("192.0.2.2"), NOW), None);
        assert_eq!(attempts.wait_seconds(None, NOW), None);

        let later = NOW.plus_seconds(10);
        assert_eq!(attempts.wait_seconds(Some("192.0.2.1"), later), None);
        attempts.note(Some("192.0.2.1"), later);
        assert!(attempts.wait_seconds(Some("192.0.2.1"), later).is_some());
    }

    #[test]
    fn a_network_of_ipv6_addresses_is_one_address() {
        let attempts = attempts(1);
        attempts.note(Some("2001:db8:1:2::1"), NOW);
        assert!(
            attempts
                .wait_seconds(Some("2001:db8:1:2:ffff::9"), NOW)
                .is_some()
        );
        assert_eq!(attempts.wait_seconds(Some("2001:db8:1:3::1"), NOW), None);
    }

    #[test]
    fn a_wait_is_never_prolonged_by_failing_on() {
        let attempts = attempts(6);
        for _ in 0..1000 {
            attempts.note(Some("192.0.2.1"), NOW);
        }
        assert_eq!(attempts.wait_seconds(Some("192.0.2.1"), NOW), Some(10));
    }

    #[test]
    fn any_number_of_addresses_takes_the_same_memory_and_switched_off_nothing_is_counted() {
        let attempts_of_many = attempts(6);
        for n in 0..20_000_u32 {
            attempts_of_many.note(Some(&std::net::Ipv4Addr::from(n).to_string()), NOW);
        }
        assert_eq!(attempts_of_many.places.lock().unwrap().len(), PLACES);

        let off = attempts(0);
        for _ in 0..1000 {
            off.note(Some("192.0.2.1"), NOW);
        }
        assert_eq!(off.wait_seconds(Some("192.0.2.1"), NOW), None);
    }
}
