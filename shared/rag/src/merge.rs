//! Results of several knowledge bases as one list.

use std::collections::HashMap;

use raglan_core::catalog::KnowledgeBaseId;

use crate::backend::{Passage, Retrieval};

/// The constant of reciprocal rank fusion (Cormack, Clarke, Büttcher, SIGIR 2009).
const RANK_OFFSET: f32 = 60.0;

/// A passage with the knowledge base that it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredPassage {
    /// The knowledge base.
    pub kb_id: KnowledgeBaseId,
    /// The passage; its score is the one of the merged list.
    pub passage: Passage,
}

/// One list, best first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Merged {
    /// The passages, at most as many as were asked for.
    pub passages: Vec<ScoredPassage>,
    /// The sum of [`Retrieval::matched`].
    pub matched: u64,
    /// The sum of [`Retrieval::below_threshold`].
    pub below_threshold: u64,
}

/// Merges what several knowledge bases found, each list best first.
///
/// Scores of different engines and different indexes cannot be compared, ranks can: with more than
/// one list the score is the reciprocal rank, 1 / (60 + rank); with one list it stays the engine's.
/// A text of one document that stands in the lists more than once is kept once, at its best rank:
/// that a document was taken into two knowledge bases does not make it a better answer. Documents of
/// different knowledge bases are the same when their URI, file name or title is; white space does not
/// make two texts different. The order depends on the input alone.
#[must_use]
pub fn merge(results: Vec<(KnowledgeBaseId, Retrieval)>, top_k: usize) -> Merged {
    let fused = results.len() > 1;
    let mut merged = Merged::default();
    let mut places_of: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut candidates: Vec<Candidate> = Vec::new();
    for (kb_id, retrieval) in results {
        merged.matched += retrieval.matched;
        merged.below_threshold += retrieval.below_threshold;
        let mut rank = RANK_OFFSET;
        for mut passage in retrieval.passages {
            rank += 1.0;
            let engine_score = passage.score;
            if fused {
                passage.score = 1.0 / rank;
            }
            let places = places_of.entry(fingerprint(&passage.content)).or_default();
            let known = places.iter().copied().find(|&place| {
                let known = &candidates[place].scored.passage;
                is_same_document(known, &passage) && is_same_text(&known.content, &passage.content)
            });
            let candidate = Candidate {
                scored: ScoredPassage {
                    kb_id: kb_id.clone(),
                    passage,
                },
                engine_score,
            };
            match known {
                Some(place) if fused && candidate.by_rank(&candidates[place]).is_lt() => {
                    candidates[place] = candidate;
                }
                Some(_) => {}
                None => {
                    places.push(candidates.len());
                    candidates.push(candidate);
                }
            }
        }
    }
    if fused {
        candidates.sort_by(Candidate::by_rank);
    }
    merged.passages = candidates
        .into_iter()
        .map(|c| c.scored)
        .take(top_k)
        .collect();
    merged
}

/// Whether two texts have the same words: engines split and trim in their own ways.
fn is_same_text(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

/// A number that texts with the same words share, and hardly any others: a sum over the bytes that are
/// in no white space. In UTF-8 that is ASCII and the characters that begin with C2, E1, E2 and E3.
fn fingerprint(text: &str) -> u64 {
    text.bytes()
        .map(|byte| u64::from(CUBES[usize::from(byte)]))
        .fold(0, u64::wrapping_add)
}

/// What each byte adds: looked up, because every byte of every passage is.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the cube of a byte has 24 bits"
)]
const CUBES: [u32; 256] = {
    let mut cubes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if matches!(byte, 0x21..=0x7e | 0xc3..=0xe0 | 0xe4..) {
            cubes[byte] = (byte * byte * byte) as u32;
        }
        byte += 1;
    }
    cubes
};

/// Whether two passages with the same text come from the same document: engines name documents in
/// ways of their own, so one thing in common is enough.
fn is_same_document(a: &Passage, b: &Passage) -> bool {
    let same = |a: &str, b: &str| !a.is_empty() && a == b;
    let same_uri = a.uri.is_some() && a.uri == b.uri;
    same_uri || same(&a.filename, &b.filename) || a.title == b.title
}

struct Candidate {
    scored: ScoredPassage,
    engine_score: f32,
}

impl Candidate {
    /// Best first. Passages of equal rank in different lists are ordered by what their engines think
    /// of them, which is the better guess where the engines are the same, then by identifier.
    fn by_rank(&self, other: &Self) -> std::cmp::Ordering {
        let (a, b) = (&self.scored, &other.scored);
        b.passage
            .score
            .total_cmp(&a.passage.score)
            .then_with(|| other.engine_score.total_cmp(&self.engine_score))
            .then_with(|| a.kb_id.cmp(&b.kb_id))
            .then_with(|| a.passage.id.cmp(&b.passage.id))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn kb(id: &str) -> KnowledgeBaseId {
        KnowledgeBaseId::parse(id).unwrap()
    }

    /// Passages `(title and content, engine score)`, best first.
    fn found(passages: &[(&str, f32)]) -> Retrieval {
        let passages: Vec<Passage> = passages
            .iter()
            .map(|(text, score)| Passage {
                id: (*text).to_owned(),
                document_id: (*text).to_owned(),
                chunk_index: 0,
                score: *score,
                content: (*text).to_owned(),
                title: (*text).to_owned(),
                filename: String::new(),
                uri: None,
                section: None,
                page: None,
                updated_at: None,
                metadata: BTreeMap::new(),
            })
            .collect();
        Retrieval {
            matched: passages.len() as u64,
            passages,
            below_threshold: 1,
            notes: Vec::new(),
        }
    }

    fn order(merged: &Merged) -> Vec<&str> {
        merged
            .passages
            .iter()
            .map(|scored| scored.passage.content.as_str())
            .collect()
    }

    #[test]
    fn one_knowledge_base_keeps_its_scores_and_its_order() {
        let merged = merge(
            vec![(kb("a"), found(&[("x", 9.0), ("y", 2.0), ("x", 1.0)]))],
            10,
        );
        let scores: Vec<f32> = merged
            .passages
            .iter()
            .map(|scored| scored.passage.score)
            .collect();
        assert_eq!((order(&merged), scores), (vec!["x", "y"], vec![9.0, 2.0]));
    }

    #[test]
    fn large_scores_of_one_engine_do_not_push_another_engine_out() {
        let a = found(&[("a1", 900.0), ("a2", 800.0)]);
        let b = found(&[("b1", 0.9), ("b2", 0.8)]);
        let merged = merge(vec![(kb("b"), b), (kb("a"), a)], 3);
        assert_eq!(order(&merged), ["a1", "b1", "a2"]);
        assert_eq!((merged.matched, merged.below_threshold), (4, 2));
    }

    #[test]
    fn a_text_that_two_knowledge_bases_hold_is_shown_once_and_does_not_rise() {
        let a = found(&[("a1", 5.0), ("both", 4.0)]);
        let b = found(&[("b1", 5.0), ("both", 4.0)]);
        let merged = merge(vec![(kb("a"), a), (kb("b"), b)], 10);
        assert_eq!(order(&merged), ["a1", "b1", "both"]);
        assert_eq!(merged.passages[0].kb_id, kb("a"));
    }

    #[test]
    fn one_text_under_names_of_two_engines_is_one_and_of_two_documents_is_two() {
        let mut a = found(&[("same words", 5.0), ("other", 4.0)]);
        a.passages[0].filename = "hr/leave.md".to_owned();
        a.passages[0].uri = Some("https://wiki.example/leave".to_owned());
        let with = |change: fn(&mut Passage)| {
            let mut b = found(&[("same words", 1.0)]);
            let passage = &mut b.passages[0];
            passage.content = " same\n  words ".to_owned();
            passage.title = "leave.md".to_owned();
            change(passage);
            let merged = merge(vec![(kb("a"), a.clone()), (kb("b"), b)], 9);
            merged.passages.len()
        };
        assert_eq!(with(|p| p.filename = "hr/leave.md".to_owned()), 2);
        assert_eq!(with(|p| p.title = "same words".to_owned()), 2);
        assert_eq!(
            with(|p| p.uri = Some("https://wiki.example/leave".to_owned())),
            2
        );
        assert_eq!(with(|_| {}), 3);
    }

    #[test]
    fn of_two_copies_the_better_ranked_is_kept_whoever_was_asked_first() {
        let a = || (kb("a"), found(&[("a1", 5.0), ("both", 4.0)]));
        let b = || (kb("b"), found(&[("both", 0.4), ("b2", 0.3)]));
        for results in [vec![a(), b()], vec![b(), a()]] {
            let merged = merge(results, 9);
            assert_eq!(order(&merged), ["a1", "both", "b2"]);
            assert_eq!(merged.passages[1].kb_id, kb("b"));
        }
    }

    #[test]
    fn white_space_of_any_kind_leaves_the_fingerprint_as_it_is() {
        let spaces: Vec<char> = ('\0'..=char::MAX).filter(|c| c.is_whitespace()).collect();
        assert!(spaces.len() > 20);
        for space in spaces {
            let text = format!("{space}same{space}{space}词 words{space}");
            assert_eq!(
                fingerprint(&text),
                fingerprint("same 词 words"),
                "{space:?}"
            );
            assert!(is_same_text(&text, "same 词 words"), "{space:?}");
        }
    }

    #[test]
    fn the_order_does_not_depend_on_which_knowledge_base_is_asked_first() {
        let a = || (kb("a"), found(&[("a1", 1.0), ("a2", 1.0)]));
        let b = || (kb("b"), found(&[("b1", 1.0), ("b2", 1.0)]));
        assert_eq!(
            order(&merge(vec![a(), b()], 9)),
            order(&merge(vec![b(), a()], 9))
        );
    }
}
