//! Manipulations of stored days: whoever can write the table changes what is in it, and the roots, which
//! lie apart, tell.

use serde_json::{Map, Value, json};

use super::super::{ChainEnd, ChainRecord, HASH, PREVIOUS, SEQUENCE, hash_of, link, verify};
use super::*;
use crate::random::{Random as _, SequenceRandom};

type Fields = Map<String, Value>;

const KEYS: [&str; 3] = ["key-1", "key-2", "kb:handbook"];
const DAYS: [&str; 3] = ["2027-01-14", "2027-01-15", "2027-01-16"];

/// A table as an intruder sees it: records and heads by chain.
#[derive(Clone, PartialEq)]
struct Stored {
    chains: BTreeMap<(usize, usize), Vec<Fields>>,
    heads: BTreeMap<(usize, usize), Head>,
}

/// What the intruder cannot reach.
struct Archive {
    roots: Vec<BTreeMap<u32, Option<DayRoot>>>,
}

struct Dice(SequenceRandom);

impl Dice {
    fn below(&self, sides: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes).unwrap();
        let sides = u64::try_from(sides).unwrap();
        usize::try_from(u64::from_le_bytes(bytes) % sides).unwrap()
    }
}

fn event(day: usize, key: usize, n: usize) -> Fields {
    let (day, key) = (DAYS[day], KEYS[key]);
    let value = json!({
        "partition": format!("{key}#{day}"), "event_id": format!("{day}-{key}-{n:04}"),
        "at": format!("{day}T08:15:00.{n:03}Z"), "request_id": format!("request-{n}"),
        "decision": "allowed", "http_status": 200, "tool": "retrieve", "owner": "anna",
        "key_id": key, "duration_ms": 10 + n, "parameters": "{\"query\":\"leave\"}",
        "knowledge_bases": ["handbook"], "guard_findings": {"override": n},
        "day_shard": format!("{day}#{}", n % 8), "expires_at": 1_834_560_000 + n,
    });
    serde_json::from_value(value).unwrap()
}

/// Three closed days; the first one was closed twice, because events came late.
fn closed_days(dice: &Dice) -> (Stored, Archive) {
    let mut stored = Stored {
        chains: BTreeMap::new(),
        heads: BTreeMap::new(),
    };
    let mut archive = Archive {
        roots: vec![BTreeMap::new(); DAYS.len()],
    };
    for (closing, days) in [(1, 0..3), (2, 0..1)] {
        for day in days {
            for key in 0..KEYS.len() {
                append(&mut stored, day, key, 2 + dice.below(4));
            }
            let root = stored.root(day).numbered(closing);
            archive.roots[day].insert(closing, Some(root));
        }
    }
    (stored, archive)
}

fn append(stored: &mut Stored, day: usize, key: usize, count: usize) {
    let chain = stored.chains.entry((day, key)).or_default();
    let head = stored.heads.entry((day, key)).or_insert(Head::START);
    for _ in 0..count {
        let mut fields = event(day, key, chain.len());
        *head = link(&mut fields, *head);
        chain.push(fields);
    }
}

impl Stored {
    fn heads_of(&self, day: usize) -> BTreeMap<String, Head> {
        let of_day = self.heads.iter().filter(|((of, _), _)| *of == day);
        of_day
            .map(|((_, key), head)| (KEYS[*key].to_owned(), *head))
            .collect()
    }

    fn root(&self, day: usize) -> DayRoot {
        let ends = self.heads_of(day).into_iter();
        let ends = ends.map(|(key, head)| ChainEnd { key, head }).collect();
        let at = Timestamp::parse(DAYS[day]).unwrap().plus_seconds(90_000);
        DayRoot::close(DAYS[day], ends, at, at.plus_seconds(34_560_000))
    }

    /// The chain, and with it the record, that a manipulation is done to.
    fn chosen(&self, dice: &Dice) -> ((usize, usize), usize) {
        let places: Vec<_> = self.chains.keys().copied().collect();
        let place = places[dice.below(places.len())];
        (place, dice.below(self.chains[&place].len()))
    }

    /// Makes a chain that holds together again: hashes, places and head.
    fn forge(&mut self, place: (usize, usize)) {
        let mut head = Head::START;
        for fields in self.chains.entry(place).or_default() {
            head = link(fields, head);
        }
        self.heads.insert(place, head);
    }
}

/// All faults of all days.
fn faults(stored: &Stored, archive: &Archive) -> Vec<String> {
    let mut faults = Vec::new();
    for (day, roots) in archive.roots.iter().enumerate() {
        let (witnesses, of_roots) = DayWitnesses::of(DAYS[day], roots.clone());
        faults.extend(of_roots.iter().map(ToString::to_string));
        let heads = stored.heads_of(day);
        let of_day = stored.chains.iter().filter(|((of, _), _)| *of == day);
        let of_day: BTreeMap<_, _> = of_day
            .map(|((_, key), records)| (KEYS[*key].to_owned(), records))
            .collect();
        let seen = of_day.iter().filter(|(_, records)| !records.is_empty());
        for key in witnesses.keys(&heads, seen.map(|(key, _)| key.clone()).collect()) {
            let records = of_day.get(&key).copied().into_iter().flatten();
            let records: Vec<_> = records.map(ChainRecord::of).collect();
            let head = heads.get(&key).copied().unwrap_or(Head::START);
            let found = verify(&records, head, head, &witnesses.of_chain(&key));
            faults.extend(found.iter().map(ToString::to_string));
        }
    }
    faults
}

type Manipulation = fn(&mut Stored, &Dice);

/// One after the other: what is done to the records alone, and what is done by somebody who knows how
/// chains are made and makes hashes and heads anew.
const MANIPULATIONS: [(&str, Manipulation); 13] = [
    ("a field is changed", |stored, dice| {
        change_a_field(stored, dice);
    }),
    (
        "a field is changed, and the record's hash with it",
        |stored, dice| {
            let (place, n) = change_a_field(stored, dice);
            let fields = &mut stored.chains.get_mut(&place).unwrap()[n];
            let hash = hash_of(fields).to_string();
            fields.insert(HASH.to_owned(), hash.into());
        },
    ),
    (
        "a field is changed, and the chain made anew",
        |stored, dice| {
            let (place, n) = stored.chosen(dice);
            // What the chain itself holds would only be put right again.
            let fields = &mut stored.chains.get_mut(&place).unwrap()[n];
            fields.insert("parameters".to_owned(), "{\"query\":\"pay\"}".into());
            stored.forge(place);
        },
    ),
    ("a record is deleted", |stored, dice| {
        let (place, n) = stored.chosen(dice);
        stored.chains.get_mut(&place).unwrap().remove(n);
    }),
    (
        "a record is deleted, and the chain made anew",
        |stored, dice| {
            let (place, n) = stored.chosen(dice);
            stored.chains.get_mut(&place).unwrap().remove(n);
            stored.forge(place);
        },
    ),
    ("two records exchange their places", |stored, dice| {
        let (place, one) = stored.chosen(dice);
        let records = stored.chains.get_mut(&place).unwrap();
        let other = another(dice, one, records.len());
        for name in [SEQUENCE, PREVIOUS, HASH] {
            let value = records[one][name].clone();
            let value = records[other].insert(name.to_owned(), value).unwrap();
            records[one].insert(name.to_owned(), value);
        }
    }),
    (
        "two records exchange their places, and the chain is made anew",
        |stored, dice| {
            let (place, one) = stored.chosen(dice);
            let records = stored.chains.get_mut(&place).unwrap();
            let other = another(dice, one, records.len());
            records.swap(one, other);
            stored.forge(place);
        },
    ),
    ("a record is added without a place", |stored, dice| {
        let (place, _) = stored.chosen(dice);
        let added = event(place.0, place.1, 900);
        stored.chains.get_mut(&place).unwrap().push(added);
    }),
    (
        "a record is added between others, and the chain made anew",
        |stored, dice| {
            let (place, n) = stored.chosen(dice);
            let added = event(place.0, place.1, 900);
            stored.chains.get_mut(&place).unwrap().insert(n, added);
            stored.forge(place);
        },
    ),
    ("a record moves into another chain", |stored, dice| {
        let (from, n) = stored.chosen(dice);
        let to = loop {
            let (to, _) = stored.chosen(dice);
            if to != from {
                break to;
            }
        };
        let mut moved = stored.chains.get_mut(&from).unwrap().remove(n);
        if dice.below(2) == 0 {
            let partition = format!("{}#{}", KEYS[to.1], DAYS[to.0]);
            moved.insert("partition".to_owned(), partition.into());
            let head = stored.heads[&to];
            stored.heads.insert(to, link(&mut moved, head));
        }
        stored.chains.get_mut(&to).unwrap().push(moved);
    }),
    (
        "the newest records are cut off, and the head moved back",
        |stored, dice| {
            let (place, n) = stored.chosen(dice);
            stored.chains.get_mut(&place).unwrap().truncate(n);
            stored.forge(place);
        },
    ),
    ("a chain is deleted with its head", |stored, dice| {
        let (place, _) = stored.chosen(dice);
        stored.chains.remove(&place);
        stored.heads.remove(&place);
    }),
    ("a day is deleted with its heads", |stored, dice| {
        let day = dice.below(DAYS.len());
        stored.chains.retain(|(of, _), _| *of != day);
        stored.heads.retain(|(of, _), _| *of != day);
    }),
];

/// Changes, adds or removes any attribute, the chain's own among them.
fn change_a_field(stored: &mut Stored, dice: &Dice) -> ((usize, usize), usize) {
    let (place, n) = stored.chosen(dice);
    let fields = &mut stored.chains.get_mut(&place).unwrap()[n];
    let names: Vec<_> = fields.keys().cloned().collect();
    let name = names[dice.below(names.len())].clone();
    match dice.below(4) {
        0 => drop(fields.remove(&name)),
        1 => drop(fields.insert("added".to_owned(), json!(dice.below(100)))),
        2 => drop(fields.insert(name, Value::Null)),
        _ => {
            let changed = match &fields[&name] {
                Value::Number(number) => json!(number.as_u64().unwrap() + 1),
                Value::String(text) => json!(format!("{text}0")),
                other => json!([other]),
            };
            fields.insert(name, changed);
        }
    }
    (place, n)
}

fn another(dice: &Dice, than: usize, length: usize) -> usize {
    (than + 1 + dice.below(length - 1)) % length
}

#[test]
fn a_thousand_manipulations_of_closed_days_are_all_detected() {
    let bases: Vec<_> = (0..10)
        .map(|seed| closed_days(&Dice(SequenceRandom::seeded(seed))))
        .collect();
    for (stored, archive) in &bases {
        assert_eq!(faults(stored, archive), [""; 0]);
    }
    let mut undetected = Vec::new();
    for n in 0..1_000 {
        let (stored, archive) = &bases[n % bases.len()];
        let dice = Dice(SequenceRandom::seeded(1_000 + n as u64));
        let (name, manipulate) = MANIPULATIONS[n % MANIPULATIONS.len()];
        let changed = loop {
            let mut changed = stored.clone();
            manipulate(&mut changed, &dice);
            // A hash that was changed and computed anew is the old one again.
            if changed != *stored {
                break changed;
            }
        };
        if faults(&changed, archive).is_empty() {
            undetected.push(format!("{n}: {name}"));
        }
    }
    assert_eq!(undetected, [""; 0]);
}

/// The limits of what a chain can tell, so that nobody promises more.
#[test]
fn what_was_changed_before_the_day_was_closed_is_found_only_if_the_head_was_left_alone() {
    let dice = Dice(SequenceRandom::seeded(1));
    let (stored, mut archive) = closed_days(&dice);
    archive.roots[2].clear();
    let place = (2, 0);
    let mut cut = stored.clone();
    cut.chains.get_mut(&place).unwrap().pop();
    assert_eq!(faults(&cut, &archive).len(), 1);
    cut.forge(place);
    assert_eq!(faults(&cut, &archive), [""; 0]);
    // Appending is what every late event does.
    let mut added = stored;
    append(&mut added, 0, 0, 1);
    assert_eq!(faults(&added, &archive), [""; 0]);
}

#[test]
fn a_root_that_is_missing_altered_or_of_another_day_is_a_fault_and_no_witness() {
    let dice = Dice(SequenceRandom::seeded(1));
    let (stored, archive) = closed_days(&dice);
    let first = || archive.roots[0].clone();
    let of = |found| {
        let (witnesses, faults) = DayWitnesses::of(DAYS[0], found);
        (witnesses.of_chain(KEYS[0]).len(), faults)
    };
    assert_eq!(of(first()), (2, vec![]));
    let mut found = first();
    found.remove(&1);
    assert_eq!(of(found), (1, vec![RootFault::Missing { closing: 1 }]));
    for altered in [
        None,
        Some(stored.root(1).numbered(2)),
        Some(stored.root(0).numbered(3)),
        Some(DayRoot {
            event_count: 1,
            ..stored.root(0).numbered(2)
        }),
    ] {
        let mut found = first();
        found.insert(2, altered);
        assert_eq!(of(found), (1, vec![RootFault::Altered { closing: 2 }]));
    }
}
