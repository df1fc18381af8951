//! One ranking out of two: by words and by meaning.

use std::collections::BTreeMap;

/// How much the ranking by meaning counts, between 0 and 1; the one by words has the rest.
pub const MEANING_WEIGHT: f32 = 0.4;

/// Brings the scores of both rankings to 0 for their last and 1 for their first entry, and adds them up
/// by weight; an entry that a ranking does not have has 0 there. Best first, equal ones by entry.
///
/// Scores of both kinds say more than ranks, because a clear best passage stays one (reciprocal ranks
/// gave less on every set that this was measured with).
#[must_use]
pub fn fuse(words: &[(f32, u32)], meaning: &[(f32, u32)], meaning_weight: f32) -> Vec<(f32, u32)> {
    let mut sums: BTreeMap<u32, f32> = BTreeMap::new();
    for (ranking, weight) in [(words, 1.0 - meaning_weight), (meaning, meaning_weight)] {
        let scores = || ranking.iter().map(|(score, _)| *score);
        let least = scores().fold(f32::INFINITY, f32::min);
        let span = scores().fold(f32::NEG_INFINITY, f32::max) - least;
        for (score, entry) in ranking {
            let part = if span > 0.0 {
                (score - least) / span
            } else {
                1.0
            };
            *sums.entry(*entry).or_default() += weight * part;
        }
    }
    let mut fused: Vec<_> = sums.into_iter().map(|(entry, sum)| (sum, entry)).collect();
    fused.sort_by(|a, b| b.0.total_cmp(&a.0));
    fused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_find_comes_before_what_one_finds() {
        let words = [(9.0, 1), (8.0, 2), (1.0, 3)];
        let meaning = [(0.9, 4), (0.89, 2), (0.5, 5)];
        let order: Vec<u32> = fuse(&words, &meaning, 0.4)
            .iter()
            .map(|(_, at)| *at)
            .collect();
        assert_eq!(order, [2, 1, 4, 3, 5]);
    }

    #[test]
    fn a_ranking_alone_keeps_its_order_and_a_single_entry_counts_fully() {
        let alone = fuse(&[(3.0, 7), (2.0, 8)], &[], 0.4);
        assert_eq!(alone, [(0.6, 7), (0.0, 8)]);
        assert_eq!(fuse(&[], &[(0.2, 7)], 0.4), [(0.4, 7)]);
        assert!(fuse(&[], &[], 0.4).is_empty());
    }
}
