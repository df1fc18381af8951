//! How good a ranking is, measured against documents that are known to be relevant.

use std::collections::{BTreeMap, HashSet};

/// nDCG looks at this many of the best documents.
pub const NDCG_CUT: usize = 10;

/// The measures of one query, or their means over several; each is between 0 and 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Scores {
    /// Normalised discounted cumulative gain of the first ten (Järvelin and Kekäläinen 2002): how much
    /// of what is relevant stands above, and how far above.
    pub ndcg_at_10: f64,
    /// The share of the relevant documents that are among the first k.
    pub recall_at_k: f64,
    /// One divided by the rank of the first relevant document; 0 when there is none.
    pub reciprocal_rank: f64,
}

/// Scores a ranking of documents, best first; a document counts where it stands first, so that the
/// documents of ranked passages can be given as they come. `gains` says how relevant documents are,
/// those that are relevant at all, in numbers above 0.
#[must_use]
pub fn score<'a>(
    ranking: impl IntoIterator<Item = &'a str>,
    gains: &BTreeMap<String, f64>,
    k: usize,
) -> Scores {
    let mut seen = HashSet::new();
    let found: Vec<f64> = ranking
        .into_iter()
        .filter(|document| seen.insert(*document))
        .map(|document| gains.get(document).copied().unwrap_or(0.0))
        .collect();
    let mut best: Vec<f64> = gains.values().copied().collect();
    best.sort_by(|a, b| b.total_cmp(a));
    let ideal = discounted_gain(&best);
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let relevant = |gains: &[f64]| gains.iter().filter(|gain| **gain > 0.0).map(|_| 1.0).sum();
    Scores {
        ndcg_at_10: share(discounted_gain(&found), ideal),
        recall_at_k: share(relevant(&found[..k.min(found.len())]), relevant(&best)),
        reciprocal_rank: (1_u32..)
            .zip(&found)
            .find(|(_, gain)| **gain > 0.0)
            .map_or(0.0, |(rank, _)| 1.0 / f64::from(rank)),
    }
}

/// The means; all 0 when there are no scores.
#[must_use]
pub fn mean(scores: &[Scores]) -> Scores {
    let count: f64 = scores.iter().map(|_| 1.0).sum();
    let mean_of =
        |value: fn(&Scores) -> f64| scores.iter().map(value).sum::<f64>() / count.max(1.0);
    Scores {
        ndcg_at_10: mean_of(|scores| scores.ndcg_at_10),
        recall_at_k: mean_of(|scores| scores.recall_at_k),
        reciprocal_rank: mean_of(|scores| scores.reciprocal_rank),
    }
}

fn discounted_gain(gains: &[f64]) -> f64 {
    gains
        .iter()
        .take(NDCG_CUT)
        .zip(2_u32..)
        .map(|(gain, rank)| gain / f64::from(rank).log2())
        .sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gains(list: &[(&str, f64)]) -> BTreeMap<String, f64> {
        list.iter()
            .map(|(id, gain)| ((*id).to_owned(), *gain))
            .collect()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn the_measures_are_those_of_a_calculation_by_hand() {
        // Gains 0, 2, 1 found; ideal 2, 1, 1.
        let scores = score(
            ["x", "a", "a", "b"],
            &gains(&[("a", 2.0), ("b", 1.0), ("c", 1.0)]),
            2,
        );
        let log3 = 3_f64.log2();
        let ideal = 2.0 + 1.0 / log3 + 0.5;
        assert!(close(scores.ndcg_at_10, (2.0 / log3 + 0.5) / ideal));
        assert!(close(scores.recall_at_k, 1.0 / 3.0));
        assert!(close(scores.reciprocal_rank, 0.5));
    }

    #[test]
    fn what_is_never_found_scores_nothing_and_no_queries_have_no_mean() {
        assert_eq!(score(["x"], &gains(&[("a", 1.0)]), 10), Scores::default());
        assert_eq!(score([], &gains(&[]), 10), Scores::default());
        assert_eq!(mean(&[]), Scores::default());
    }

    proptest! {
        #[test]
        fn a_perfect_ranking_has_full_marks_and_no_ranking_more(
            relevant in proptest::collection::btree_map("[a-f]", 0.5_f64..3.0, 1..6),
            ranking in proptest::collection::vec("[a-h]", 0..12),
        ) {
            let mut perfect: Vec<(&String, &f64)> = relevant.iter().collect();
            perfect.sort_by(|a, b| b.1.total_cmp(a.1));
            let best = score(perfect.iter().map(|(id, _)| id.as_str()), &relevant, 10);
            for value in [best.ndcg_at_10, best.recall_at_k, best.reciprocal_rank] {
                prop_assert!(close(value, 1.0));
            }
            let any = score(ranking.iter().map(String::as_str), &relevant, 10);
            for value in [any.ndcg_at_10, any.recall_at_k, any.reciprocal_rank] {
                prop_assert!((0.0..=1.0 + 1e-12).contains(&value));
            }
        }
    }
}
