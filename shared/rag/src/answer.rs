//! Answers made of sentences that stand in the passages.
//!
//! No model is asked. The sentences that hold most of what the question asks about are put together
//! in the order in which they stand, with the passages that they come from.

use std::fmt::Write as _;

use crate::evidence::{Question, Vocabulary};
use crate::merge::ScoredPassage;
use crate::runs::is_cjk;
use crate::sentences::sentences;

/// The share of what the question asks about that one passage must hold to be about the question.
///
/// Chosen on the questions about `examples/knowledge` with five passages each: 33 of 40 pass, and
/// none of 48 questions that the documents do not answer.
const RELEVANCE_FLOOR: f32 = 0.55;

/// Passages that an answer draws on at most.
const MAX_PASSAGES: usize = 3;
/// Sentences that are chosen for what they hold, at most.
const MAX_CHOSEN: usize = 4;
/// Sentences of an answer to a Chinese question, with those beside the best one.
const MAX_SENTENCES_CJK: usize = 5;

/// A sentence with less evidence than this share of the best one's is left out.
const SENTENCE_FLOOR: f32 = 0.3;
/// What a sentence's evidence is worth in the second passage, against the first.
const NEXT_PASSAGE_DISCOUNT: f32 = 0.9;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractiveAnswer {
    /// The sentences; those from one passage are followed by its citation, `[1]`, `[2]`, …
    pub text: String,
    /// For citation `[n]`, at `n - 1`: the index of the passage in the list that was given.
    pub citations: Vec<usize>,
}

/// The sentences that answer `question` best; `None` when no passage is about it.
///
/// `passages` are best first. Titles and headings count as evidence for what stands below them.
#[must_use]
pub fn extractive_answer(question: &str, passages: &[ScoredPassage]) -> Option<ExtractiveAnswer> {
    let asked = Question::new(question);
    if !asked.is_specific() {
        return None;
    }
    let relevant = relevant_passages(&asked, passages);
    let candidates = candidates(&asked, passages, &relevant);
    let chosen = choose(&candidates, question.chars().any(is_cjk));
    (!chosen.is_empty()).then(|| compose(&candidates, &chosen))
}

/// The indexes of the passages that are about the question, best first.
fn relevant_passages(asked: &Question, passages: &[ScoredPassage]) -> Vec<usize> {
    let texts: Vec<Vocabulary> = passages
        .iter()
        .map(|ScoredPassage { passage, .. }| {
            let section = passage.section.as_deref().unwrap_or_default();
            Vocabulary::of(&format!(
                "{}\n\n{section}\n\n{}",
                passage.title, passage.content
            ))
        })
        .collect();
    let weights = asked.weights(&texts);
    let total = weights.total();
    (0..passages.len())
        .filter(|index| weights.found_in(&texts[*index]) >= RELEVANCE_FLOOR * total)
        .take(MAX_PASSAGES)
        .collect()
}

/// A sentence that may become part of the answer.
struct Candidate {
    /// Index of its passage.
    passage: usize,
    text: String,
    evidence: f32,
}

/// All sentences of the relevant passages, in order.
fn candidates(asked: &Question, passages: &[ScoredPassage], relevant: &[usize]) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    let mut worth = Vec::new();
    let mut discount = 1.0;
    for &passage in relevant {
        for text in sentences(&passages[passage].passage.content) {
            candidates.push(Candidate {
                passage,
                text,
                evidence: 0.0,
            });
            worth.push(discount);
        }
        discount *= NEXT_PASSAGE_DISCOUNT;
    }
    let texts: Vec<Vocabulary> = candidates.iter().map(|c| Vocabulary::of(&c.text)).collect();
    let weights = asked.weights(&texts);
    for ((candidate, text), worth) in candidates.iter_mut().zip(&texts).zip(worth) {
        candidate.evidence = weights.found_in(text) * worth;
    }
    candidates
}

/// The indexes of the sentences to show, ascending.
fn choose(candidates: &[Candidate], cjk: bool) -> Vec<usize> {
    let mut chosen: Vec<usize> = (0..candidates.len())
        .filter(|&at| candidates[at].evidence > 0.0)
        .collect();
    chosen.sort_by(|&a, &b| candidates[b].evidence.total_cmp(&candidates[a].evidence));
    let Some(&best) = chosen.first() else {
        return Vec::new();
    };
    let least = candidates[best].evidence * SENTENCE_FLOOR;
    chosen.retain(|&at| candidates[at].evidence >= least);
    chosen.truncate(MAX_CHOSEN);
    if cjk {
        // Chinese sentences are short, and what is asked for often stands in the next one.
        for at in [best.checked_add(1), best.checked_sub(1)]
            .into_iter()
            .flatten()
        {
            let beside = candidates
                .get(at)
                .is_some_and(|c| c.passage == candidates[best].passage);
            if beside && chosen.len() < MAX_SENTENCES_CJK && !chosen.contains(&at) {
                chosen.push(at);
            }
        }
    }
    chosen.sort_unstable();
    chosen
}

/// The sentences with their citations. Nothing stands between two Chinese sentences, a space between
/// others.
fn compose(candidates: &[Candidate], chosen: &[usize]) -> ExtractiveAnswer {
    let mut text = String::new();
    let mut citations: Vec<usize> = Vec::new();
    for group in chosen.chunk_by(|&a, &b| candidates[a].passage == candidates[b].passage) {
        for &at in group {
            if !text.is_empty() && !text.ends_with(['。', '；', '！', '？']) {
                text.push(' ');
            }
            text.push_str(&candidates[at].text);
        }
        citations.push(candidates[group[0]].passage);
        // Writing to a string cannot fail.
        let _ = write!(text, " [{}]", citations.len());
    }
    ExtractiveAnswer { text, citations }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use raglan_core::catalog::KnowledgeBaseId;

    use super::*;
    use crate::backend::Passage;

    fn passage(title: &str, content: &str) -> ScoredPassage {
        ScoredPassage {
            kb_id: KnowledgeBaseId::parse("handbook").unwrap(),
            passage: Passage {
                id: format!("{title}/{content}"),
                document_id: title.to_owned(),
                chunk_index: 0,
                score: 1.0,
                content: content.to_owned(),
                title: title.to_owned(),
                filename: String::new(),
                uri: None,
                section: None,
                page: None,
                updated_at: None,
                metadata: BTreeMap::new(),
            },
        }
    }

    fn handbook() -> Vec<ScoredPassage> {
        vec![
            passage(
                "Refund policy",
                "We are glad to help. A refund can be requested within 30 days of purchase. It is \
                 paid to the card that was used. Shipping costs are not refunded.",
            ),
            passage(
                "Leave",
                "Employees have 25 days of annual leave. Ask your manager first.",
            ),
            passage(
                "年假",
                "本制度自 1 月起执行。入职满一年的员工有 12 天年假。没有休完的可以结转。最多 4 天。",
            ),
        ]
    }

    #[test]
    fn an_answer_is_made_of_sentences_of_the_passage_that_it_cites() {
        let answer = extractive_answer("When can a refund be requested?", &handbook()).unwrap();
        assert!(
            answer
                .text
                .contains("A refund can be requested within 30 days of purchase.")
        );
        assert!(!answer.text.contains("glad to help"), "{}", answer.text);
        assert!(answer.text.ends_with(" [1]"), "{}", answer.text);
        assert_eq!(answer.citations, [0]);
    }

    #[test]
    fn a_chinese_answer_brings_the_sentence_after_the_best_one() {
        let answer = extractive_answer("入职一年有多少年假？", &handbook()).unwrap();
        assert!(
            answer.text.contains("有 12 天年假。没有休完的可以结转。"),
            "{}",
            answer.text
        );
        assert_eq!(answer.citations, [2]);
    }

    #[test]
    fn a_question_that_shares_only_question_words_with_the_passages_has_no_answer() {
        for question in [
            "What is the?",
            "What can be used within it?",
            "的 是 什么",
            "这是什么？",
            "What is the capital of France?",
            "法国的首都是哪里？",
            "",
            "???",
        ] {
            assert_eq!(extractive_answer(question, &handbook()), None, "{question}");
        }
    }

    #[test]
    fn half_of_what_is_asked_about_is_not_enough() {
        assert_eq!(
            extractive_answer("Who founded the refund department?", &handbook()),
            None
        );
        assert_eq!(extractive_answer("年假期间食堂开门吗", &handbook()), None);
    }

    #[test]
    fn without_passages_there_is_no_answer() {
        assert_eq!(extractive_answer("refund", &[]), None);
    }

    proptest! {
        #[test]
        fn every_citation_names_a_passage_once_and_stands_in_the_text(
            question in "(refund|leave|card|days|年假|结转|what|的| ){1,6}",
            contents in proptest::collection::vec("(refund|leave|card|days|年假|结转|[a-z ]{3}|[。. ]){0,40}", 0..6),
        ) {
            let passages: Vec<ScoredPassage> = contents.iter().map(|c| passage("t", c)).collect();
            if let Some(answer) = extractive_answer(&question, &passages) {
                prop_assert!(!answer.citations.is_empty());
                for (n, index) in (1..).zip(&answer.citations) {
                    prop_assert!(*index < passages.len());
                    let mark = format!("[{n}]");
                    prop_assert!(answer.text.contains(&mark));
                }
                prop_assert!(answer.citations.is_sorted_by(|a, b| a < b));
            }
        }
    }
}
