//! The ranking by words: the best passages by the sum of what their terms give ([`super::bm25`]).
//!
//! tantivy goes through the passages and asks the list of every term whether it has the passage. A question
//! has a dozen terms, most passages hold one of them, and how many do is part of the result. Here each term
//! adds to the scores of a window of passages at once. That is done roughly, in small whole numbers, which
//! also tells how many passages have a term; and exactly for the few passages that may be among the best.
//! Exact scores are the same to the last bit as tantivy's, because the sums are made in the same order; a
//! property test compares them.

use std::array::from_fn;
use std::sync::Arc;

use tantivy::{DocId, Score, TantivyError};

use super::frequent::FrequentTerm;
use super::postings::Postings;
use super::window::{GROUP, GROUPS, RoughScores, Units, WINDOW, add_shares, any_above};

/// The units of a score that has all weights: what is missing to 65,535 is room for rounding.
const UNITS: Score = 64_000.0;

/// The best `count` of the passages that have a term of `required`, best first, equal ones by their place
/// in the index; and how many passages have one. Terms of `optional` add to the scores. `among`, in
/// ascending order, are the passages that are looked at, if not all.
///
/// # Errors
/// When the files are damaged.
pub fn rank(
    mut required: Vec<Postings<'_>>,
    mut optional: Vec<Postings<'_>>,
    mut among: Option<&[DocId]>,
    count: usize,
) -> Result<(Vec<(Score, DocId)>, u64), TantivyError> {
    let every = || required.iter().chain(&optional);
    let units_of_1 = UNITS / every().map(Postings::weight).sum::<Score>();
    let tolerance: Score = every().map(|list| list.tolerance(units_of_1)).sum();
    let frequent: Vec<_> = every()
        .filter_map(|list| list.frequent(units_of_1))
        .collect();
    let mut best = Best::new(count);
    let mut bar = Bar::new(count, tolerance);
    let mut matched = 0;
    let mut rough = RoughScores::new();
    let mut candidates = Vec::new();
    let mut after = 0;
    while let Some(next) = required.iter().filter_map(|list| list.next(after)).min() {
        // Damaged lists may lead back; windows never do.
        let start = (next - next % WINDOW).max(after);
        let Some(end) = start.checked_add(WINDOW) else {
            break;
        };
        after = end;
        rough.clear();
        for list in &mut optional {
            list.read(&mut rough, units_of_1, start);
        }
        rough.forget_found();
        for list in &mut required {
            list.read(&mut rough, units_of_1, start);
        }
        if let Some(rows) = &mut among {
            let rest = &rows[rows.partition_point(|row| *row < start)..];
            let (inside, rest) = rest.split_at(rest.partition_point(|row| *row < end));
            *rows = rest;
            rough.keep(inside.iter().map(|row| (row - start) as usize));
        }
        matched += rough.count();

        add_frequent(&frequent, start, &mut rough, &mut bar);
        choose(&rough, bar.needed(), &mut candidates);
        if !candidates.is_empty() {
            let sums = sum(&mut required, &candidates, start)?;
            let extras = sum(&mut optional, &candidates, start)?;
            for (place, (sum, extra)) in candidates.iter().zip(sums.iter().zip(&extras)) {
                best.offer(sum + extra, start + DocId::from(*place));
            }
        }
    }
    Ok((best.found, matched))
}

/// Adds what the frequent terms give to the passages of a window, with the units of their weights, and ends
/// the sums. Groups that have no chance are left out.
fn add_frequent(
    frequent: &[(Arc<FrequentTerm>, u16)],
    start: DocId,
    rough: &mut RoughScores,
    bar: &mut Bar,
) {
    let first_group = start as usize / GROUP;
    let mut possible: Units = from_fn(|group| rough.most(group));
    for (term, units) in frequent {
        if let Some(largest) = term.largest_shares(first_group) {
            add_shares(&mut possible, largest, *units);
        }
    }
    for (group, possible) in possible.into_iter().enumerate() {
        // The sums end one higher.
        if possible.saturating_add(1) < bar.needed() {
            rough.leave_out(group);
            continue;
        }
        for (term, units) in frequent {
            if let Some(shares) = term.shares().get(first_group + group) {
                add_shares(rough.units_mut(group), shares, *units);
            }
        }
        rough.settle(group);
        bar.raise(rough.units(group));
    }
}

/// The places of a window that have as many units as are needed.
fn choose(rough: &RoughScores, needed: u16, places: &mut Vec<u16>) {
    places.clear();
    for group in 0..GROUPS {
        let units = rough.units(group);
        if any_above(units, needed - 1) {
            let of_group = (0..).skip(group * GROUP).zip(units);
            let chosen = of_group.filter(|(_, units)| **units >= needed);
            places.extend(chosen.map(|(place, _)| place));
        }
    }
}

/// The sums of what the terms give to some passages of a window.
fn sum(
    terms: &mut [Postings<'_>],
    places: &[u16],
    start: DocId,
) -> Result<Vec<Score>, TantivyError> {
    let mut sums = vec![0.0; places.len()];
    for list in terms {
        list.add(&mut sums, places, start)?;
    }
    Ok(sums)
}

/// The rough score that a passage needs to be among the best.
struct Bar {
    best: Best<u16, ()>,
    tolerance: u16,
}

impl Bar {
    fn new(count: usize, tolerance: Score) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "what is too large becomes the largest"
        )]
        let tolerance = tolerance.ceil() as u16;
        Self {
            best: Best::new(count),
            tolerance,
        }
    }

    /// Who has less is worse than as many as are asked for. Passages without a term have 0.
    fn needed(&self) -> u16 {
        self.best.least().saturating_sub(self.tolerance).max(1)
    }

    fn raise(&mut self, units: &Units) {
        if any_above(units, self.best.least()) {
            for units in units {
                self.best.offer(*units, ());
            }
        }
    }
}

/// The best scores so far, best first, and whose they are.
struct Best<S, P> {
    found: Vec<(S, P)>,
    count: usize,
}

impl<S: Copy + Default + PartialOrd, P> Best<S, P> {
    fn new(count: usize) -> Self {
        Self {
            found: Vec::with_capacity(count + 1),
            count,
        }
    }

    /// What must be exceeded.
    fn least(&self) -> S {
        match self.found.last() {
            Some((score, _)) if self.found.len() >= self.count => *score,
            _ => S::default(),
        }
    }

    /// Behind those with the same score.
    fn offer(&mut self, score: S, place: P) {
        if score > self.least() {
            let at = self.found.partition_point(|(better, _)| *better >= score);
            self.found.insert(at, (score, place));
            self.found.truncate(self.count);
        }
    }
}

#[cfg(test)]
mod tests;
