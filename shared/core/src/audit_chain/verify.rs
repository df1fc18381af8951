//! Finds what was done to a chain after its records were stored.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Digest, HASH, Head, PREVIOUS, SEQUENCE, hash_of};

/// What is needed of a stored record to verify its chain: a few bytes, however large the record is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainRecord {
    event_id: String,
    link: Option<Link>,
    is_intact: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    sequence: u64,
    previous: Digest,
    hash: Digest,
}

impl ChainRecord {
    /// Reads a record as it is stored, with all of its attributes.
    #[must_use]
    pub fn of(fields: &Map<String, Value>) -> Self {
        let digest = |name: &str| Digest::parse(fields.get(name)?.as_str()?).ok();
        let link = || {
            Some(Link {
                sequence: fields.get(SEQUENCE)?.as_u64()?,
                previous: digest(PREVIOUS)?,
                hash: digest(HASH)?,
            })
        };
        let link = link();
        Self {
            event_id: fields
                .get("event_id")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            is_intact: link.is_some_and(|link| link.hash == hash_of(fields)),
            link,
        }
    }
}

/// A root that says how far the chain reached when the day was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witness {
    /// Which closing of the day it was.
    pub closing: u32,
    /// Where the chain ended.
    pub end: Head,
}

/// Something that was done to a chain, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A record that no drain wrote, or whose place was removed.
    #[error("event {event_id} has no place in the chain")]
    Unlinked {
        /// The record.
        event_id: String,
    },
    /// A record that is not as it was stored.
    #[error("event {event_id} at place {sequence} was altered")]
    Altered {
        /// The record.
        event_id: String,
        /// Its place.
        sequence: u64,
    },
    /// Two records at one place.
    #[error("event {event_id} stands at place {sequence}, which another event has")]
    Repeated {
        /// The second one.
        event_id: String,
        /// The place.
        sequence: u64,
    },
    /// Records that are gone.
    #[error("the events at places {from} to {to} are missing")]
    Missing {
        /// The first place without a record.
        from: u64,
        /// The last one.
        to: u64,
    },
    /// A record that does not follow the one before it.
    #[error("event {event_id} at place {sequence} does not follow the event before it")]
    Detached {
        /// The record.
        event_id: String,
        /// Its place.
        sequence: u64,
    },
    /// A record behind the end that the head says.
    #[error("event {event_id} at place {sequence} is behind the chain's end at {end}")]
    BehindHead {
        /// The record.
        event_id: String,
        /// Its place.
        sequence: u64,
        /// Where the chain ends.
        end: u64,
    },
    /// The last record is not the one that the head says.
    #[error("the chain's head does not fit to the event at place {sequence}")]
    HeadDiffers {
        /// The head's place.
        sequence: u64,
    },
    /// The record where a root saw the end is another one now.
    #[error("closing {closing} of the day saw another event at place {sequence}")]
    RootDiffers {
        /// Which closing.
        closing: u32,
        /// The place.
        sequence: u64,
    },
}

/// Verifies one chain, in any order of its records. `head` is what the head said before the records
/// were read, `head_afterwards` what it said after that: records that were stored meanwhile may be
/// among them or not. Without faults, every record up to the greatest place that `head` or a witness
/// names is there, unaltered and in its place.
#[must_use]
pub fn verify(
    records: &[ChainRecord],
    head: Head,
    head_afterwards: Head,
    witnesses: &[Witness],
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let chain = in_place(records, &mut faults);
    let last_witnessed = witnesses.iter().map(|witness| witness.end.sequence).max();
    let complete_to = head.sequence.max(last_witnessed.unwrap_or(0));
    check_links(&chain, complete_to, &mut faults);
    let hash_at = |sequence: u64| match sequence {
        0 => Some(Digest::ZERO),
        _ => chain.get(&sequence).map(|(_, link)| link.hash),
    };
    // A missing record is reported as such.
    let differs = |end: Head| hash_at(end.sequence).is_some_and(|hash| hash != end.hash);
    if differs(head) {
        faults.push(Fault::HeadDiffers {
            sequence: head.sequence,
        });
    }
    if head_afterwards != head && differs(head_afterwards) {
        faults.push(Fault::HeadDiffers {
            sequence: head_afterwards.sequence,
        });
    }
    for witness in witnesses {
        if differs(witness.end) {
            faults.push(Fault::RootDiffers {
                closing: witness.closing,
                sequence: witness.end.sequence,
            });
        }
    }
    let end = head_afterwards.sequence;
    for (&sequence, (record, _)) in chain.range(end.saturating_add(1)..) {
        faults.push(Fault::BehindHead {
            event_id: record.event_id.clone(),
            sequence,
            end,
        });
    }
    faults
}

type Chain<'a> = BTreeMap<u64, (&'a ChainRecord, Link)>;

fn in_place<'a>(records: &'a [ChainRecord], faults: &mut Vec<Fault>) -> Chain<'a> {
    let mut chain = Chain::new();
    for record in records {
        let event_id = record.event_id.clone();
        let Some(link) = record.link.filter(|link| link.sequence > 0) else {
            faults.push(Fault::Unlinked { event_id });
            continue;
        };
        let sequence = link.sequence;
        let before = chain.get(&sequence).map(|(before, _)| before.is_intact);
        if !record.is_intact {
            faults.push(Fault::Altered { event_id, sequence });
        } else if before == Some(true) {
            faults.push(Fault::Repeated { event_id, sequence });
            continue;
        }
        // An intact record wins the place from an altered one.
        if record.is_intact || before.is_none() {
            chain.insert(sequence, (record, link));
        }
    }
    chain
}

fn check_links(chain: &Chain<'_>, complete_to: u64, faults: &mut Vec<Fault>) {
    let mut before = Head::START;
    for (&sequence, (record, link)) in chain {
        if sequence > before.sequence + 1 {
            faults.push(Fault::Missing {
                from: before.sequence + 1,
                to: sequence - 1,
            });
        } else if link.previous != before.hash {
            faults.push(Fault::Detached {
                event_id: record.event_id.clone(),
                sequence,
            });
        }
        before = Head {
            sequence,
            hash: link.hash,
        };
    }
    if before.sequence < complete_to {
        faults.push(Fault::Missing {
            from: before.sequence + 1,
            to: complete_to,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::link;
    use super::super::tests::record;
    use super::*;

    type Fields = Map<String, Value>;

    fn chain(length: u64) -> (Vec<Fields>, Vec<Head>) {
        let mut heads = vec![Head::START];
        let records = (1..=length).map(|n| {
            let mut fields = record(n);
            heads.push(link(&mut fields, *heads.last().unwrap()));
            fields
        });
        let records = records.collect();
        (records, heads)
    }

    fn faults(records: &[Fields], head: Head, witnesses: &[Witness]) -> Vec<Fault> {
        let records: Vec<_> = records.iter().map(ChainRecord::of).collect();
        verify(&records, head, head, witnesses)
    }

    #[test]
    fn an_untouched_chain_has_no_faults_in_whatever_order_it_is_read() {
        let (mut records, heads) = chain(5);
        let end = heads[3];
        let witness = Witness { closing: 1, end };
        records.reverse();
        assert_eq!(faults(&records, heads[5], &[witness]), []);
        assert_eq!(faults(&[], Head::START, &[]), []);
    }

    #[test]
    fn records_that_are_stored_while_the_chain_is_read_may_be_there_or_not() {
        let (records, heads) = chain(5);
        for seen in 3..=5 {
            let read: Vec<_> = records[..seen].iter().map(ChainRecord::of).collect();
            assert_eq!(verify(&read, heads[3], heads[5], &[]), []);
        }
        let read: Vec<_> = records[..2].iter().map(ChainRecord::of).collect();
        let missing = Fault::Missing { from: 3, to: 3 };
        assert_eq!(verify(&read, heads[3], heads[5], &[]), [missing]);
        let read: Vec<_> = records.iter().map(ChainRecord::of).collect();
        assert_eq!(verify(&read, heads[3], heads[4], &[]).len(), 1);
    }

    #[test]
    fn each_fault_says_the_place() {
        let (records, heads) = chain(4);
        let end = heads[4];
        let witness = Witness { closing: 1, end };
        let after = |change: &dyn Fn(&mut Vec<Fields>)| {
            let mut changed = records.clone();
            change(&mut changed);
            let found = faults(&changed, end, &[witness]);
            let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
            texts.join("; ")
        };
        assert_eq!(
            after(&|records| drop(records[1].insert("n".to_owned(), 9.into()))),
            "event event-2 at place 2 was altered"
        );
        assert_eq!(
            after(&|records| drop(records.remove(1))),
            "the events at places 2 to 2 are missing"
        );
        assert_eq!(
            after(&|records| records.truncate(2)),
            "the events at places 3 to 4 are missing"
        );
        assert_eq!(
            after(&|records| records.push(record(9))),
            "event event-9 has no place in the chain"
        );
        assert_eq!(
            after(&|records| {
                let mut added = record(9);
                link(&mut added, end);
                records.push(added);
            }),
            "event event-9 at place 5 is behind the chain's end at 4"
        );
        assert_eq!(
            after(&|records| {
                let mut added = record(9);
                link(&mut added, heads[1]);
                records.push(added);
            }),
            "event event-9 stands at place 2, which another event has"
        );
        assert_eq!(
            after(&|records| {
                let mut copy = records[1].clone();
                copy.insert("event_id".to_owned(), "event-0".into());
                records.insert(0, copy);
            }),
            "event event-0 at place 2 was altered"
        );
        assert_eq!(
            after(&|records| {
                let mut other = record(9);
                link(&mut other, heads[1]);
                records[1] = other;
            }),
            "event event-3 at place 3 does not follow the event before it"
        );
        assert_eq!(
            after(&|records| {
                let mut other = record(9);
                link(&mut other, heads[3]);
                records[3] = other;
            }),
            "the chain's head does not fit to the event at place 4; closing 1 of the day saw another \
             event at place 4"
        );
    }

    #[test]
    fn a_chain_that_is_forged_with_its_head_is_found_by_the_root() {
        let (records, heads) = chain(4);
        let end = heads[4];
        let witness = Witness { closing: 1, end };
        let mut head = Head::START;
        let forged: Vec<_> = records[1..]
            .iter()
            .map(|fields| {
                let mut fields = fields.clone();
                head = link(&mut fields, head);
                fields
            })
            .collect();
        assert_eq!(faults(&forged, head, &[]), []);
        let missing = Fault::Missing { from: 4, to: 4 };
        assert_eq!(faults(&forged, head, &[witness]), [missing]);
        assert_eq!(faults(&[], Head::START, &[witness]).len(), 1);
    }
}
