//! How much of what a question asks about stands in a text.

use std::collections::HashSet;

use crate::runs::{Run, runs};
use crate::stem::english_stem;
use crate::stop_words::{is_generic_word, is_stop_word, segments};

/// Weight of a word or of two Chinese characters that fit almost every question.
const GENERIC_WEIGHT: f32 = 0.25;

/// The words and pairs of characters in a text.
#[derive(Debug, Default)]
pub struct Vocabulary(HashSet<String>);

impl Vocabulary {
    /// Those of `text`.
    pub fn of(text: &str) -> Self {
        let mut terms = HashSet::new();
        for run in runs(text) {
            match run {
                Run::Word(word) => {
                    terms.insert(stem(word));
                }
                Run::Cjk(characters) => {
                    terms.extend(characters.iter().map(char::to_string));
                    terms.extend(
                        characters
                            .windows(2)
                            .map(|pair| pair.iter().collect::<String>()),
                    );
                }
            }
        }
        Self(terms)
    }
}

/// What a question asks about, without the words that make it a question.
#[derive(Debug)]
pub struct Question {
    units: Vec<Unit>,
}

/// A word, or a Chinese character with its neighbours.
#[derive(Debug)]
struct Unit {
    /// It stands in a text when one of these does.
    terms: Vec<String>,
    weight: f32,
}

impl Question {
    /// Reads a question. Words that occur twice count once.
    pub fn new(question: &str) -> Self {
        let mut units: Vec<Unit> = Vec::new();
        for run in runs(question) {
            match run {
                Run::Word(word) if is_stop_word(&word) => {}
                Run::Word(word) => {
                    let weight = if is_generic_word(&word) {
                        GENERIC_WEIGHT
                    } else {
                        1.0
                    };
                    units.push(Unit {
                        terms: vec![stem(word)],
                        weight,
                    });
                }
                Run::Cjk(characters) => {
                    for segment in segments(&characters) {
                        let weight = if segment.generic { GENERIC_WEIGHT } else { 1.0 };
                        units.extend(cjk_units(&segment.characters, weight));
                    }
                }
            }
        }
        let mut seen = HashSet::new();
        units.retain(|unit| seen.insert(unit.terms.clone()));
        Self { units }
    }

    /// Whether it asks about anything in particular: one of its words does not fit every question.
    pub fn is_specific(&self) -> bool {
        self.units.iter().any(|unit| unit.weight > GENERIC_WEIGHT)
    }

    /// How much it asks about: 1 for each word, ½ for each Chinese character, less for those that fit
    /// almost every question.
    pub fn weight(&self) -> f32 {
        self.units.iter().map(|unit| unit.weight).sum()
    }

    /// Weighs the units: one that stands in few of `texts` counts up to three times as much as one
    /// that stands in all of them.
    ///
    /// The inverse document frequency is that of BM25 over `texts`. One is added to it, because
    /// `texts` are few and alike: what they all share is often the very topic of the question.
    #[expect(
        clippy::cast_precision_loss,
        reason = "there are a few hundred sentences at most"
    )]
    pub fn weights(&self, texts: &[Vocabulary]) -> Weights<'_> {
        let count = texts.len() as f32;
        let weights = self
            .units
            .iter()
            .map(|unit| {
                let frequency = texts.iter().filter(|text| unit.stands_in(text)).count() as f32;
                let idf = (1.0 + (count - frequency + 0.5) / (frequency + 0.5)).ln();
                unit.weight * (1.0 + idf)
            })
            .collect();
        Weights {
            question: self,
            weights,
        }
    }
}

/// A question whose units have weights.
#[derive(Debug)]
pub struct Weights<'a> {
    question: &'a Question,
    weights: Vec<f32>,
}

impl Weights<'_> {
    /// The sum of the weights of what stands in `text`.
    pub fn found_in(&self, text: &Vocabulary) -> f32 {
        let units = self.question.units.iter().zip(&self.weights);
        units
            .filter(|(unit, _)| unit.stands_in(text))
            .map(|(_, weight)| weight)
            .sum()
    }

    /// The sum of all weights.
    pub fn total(&self) -> f32 {
        self.weights.iter().sum()
    }
}

impl Unit {
    fn stands_in(&self, text: &Vocabulary) -> bool {
        self.terms.iter().any(|term| text.0.contains(term))
    }
}

/// A unit per character: it stands in a text when it does so together with a neighbour. Where words
/// end is not known, and this way a pair across two words does not count against a text.
fn cjk_units(characters: &[char], weight: f32) -> Vec<Unit> {
    if let [single] = characters {
        return vec![Unit {
            terms: vec![single.to_string()],
            weight: weight / 2.0,
        }];
    }
    let pairs: Vec<String> = characters
        .windows(2)
        .map(|pair| pair.iter().collect())
        .collect();
    (0..characters.len())
        .map(|at| {
            let around = at.saturating_sub(1)..(at + 1).min(pairs.len());
            Unit {
                terms: pairs[around].to_vec(),
                weight: weight / 2.0,
            }
        })
        .collect()
}

/// The form of a word that all its forms share: the one that searching compares, too.
fn stem(word: String) -> String {
    english_stem(&word).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(question: &str, text: &str) -> f32 {
        let question = Question::new(question);
        let texts = [Vocabulary::of(text)];
        let weights = question.weights(&[]);
        weights.found_in(&texts[0]) / weights.total()
    }

    #[test]
    fn endings_do_not_hide_a_word() {
        for (a, b) in [
            ("policies", "policy"),
            ("replaced", "replace"),
            ("keys", "key"),
            ("running", "runs"),
            ("cancellation", "cancellations"),
        ] {
            assert!(share(a, b) > 0.99, "{a} {b}");
        }
        assert!(share("status", "state") < 0.01);
    }

    #[test]
    fn question_words_are_no_evidence() {
        for question in [
            "What is the, how do I?",
            "这是什么？",
            "What is the best way?",
            "公司的问题",
        ] {
            assert!(!Question::new(question).is_specific(), "{question}");
        }
        assert!(Question::new("What is the best way to ask for a refund?").is_specific());
        assert!(Question::new("公司的税").is_specific());
    }

    #[test]
    fn a_pair_across_two_words_does_not_count_against_a_text() {
        assert!(share("退货政策", "我们的政策：七天内可以退货。") > 0.99);
        assert!(share("退货政策", "请假流程") < 0.01);
        assert!(share("税", "增值税专用发票") > 0.99);
    }
}
