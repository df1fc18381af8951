//! Which script a text is written in, as far as words can match across texts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::runs::is_cjk;

/// A character of these scripts says as much as this many letters.
const LETTERS_PER_CJK_CHARACTER: u64 = 3;
/// A script is one of an index when this part of its passages is written in it: one in ten.
const LEAST_PART: u64 = 10;

/// A script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Script {
    /// Han, kana and hangul.
    Cjk,
    /// Latin.
    Latin,
    /// Cyrillic.
    Cyrillic,
    /// Greek.
    Greek,
    /// Arabic.
    Arabic,
    /// Hebrew.
    Hebrew,
    /// The scripts of India.
    Indic,
    /// Thai.
    Thai,
    /// Any other.
    Other,
}

impl Script {
    const fn of_letter(letter: char) -> Self {
        match letter {
            'A'..='Z' | 'a'..='z' | '\u{C0}'..='\u{24F}' | '\u{1E00}'..='\u{1EFF}' => Self::Latin,
            '\u{370}'..='\u{3FF}' | '\u{1F00}'..='\u{1FFF}' => Self::Greek,
            '\u{400}'..='\u{52F}' => Self::Cyrillic,
            '\u{590}'..='\u{5FF}' => Self::Hebrew,
            '\u{600}'..='\u{6FF}' | '\u{750}'..='\u{77F}' => Self::Arabic,
            '\u{900}'..='\u{DFF}' => Self::Indic,
            '\u{E00}'..='\u{E7F}' => Self::Thai,
            _ => Self::Other,
        }
    }

    /// The script that most of the text is written in; `None` without any letter.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let mut weights: BTreeMap<Self, u64> = BTreeMap::new();
        for letter in text.chars() {
            if is_cjk(letter) {
                *weights.entry(Self::Cjk).or_default() += LETTERS_PER_CJK_CHARACTER;
            } else if letter.is_alphabetic() {
                *weights.entry(Self::of_letter(letter)).or_default() += 1;
            }
        }
        let heaviest = weights.into_iter().max_by_key(|(_, weight)| *weight);
        heaviest.map(|(script, _)| script)
    }
}

/// Counts the scripts of passages.
#[derive(Debug, Clone, Default)]
pub struct ScriptCount(BTreeMap<Script, u64>);

impl ScriptCount {
    /// Takes a passage in.
    pub fn add(&mut self, text: &str) {
        if let Some(script) = Script::of(text) {
            *self.0.entry(script).or_default() += 1;
        }
    }

    /// The scripts of a good part of the passages.
    #[must_use]
    pub fn common(&self) -> Vec<Script> {
        let all: u64 = self.0.values().sum();
        let common = self
            .0
            .iter()
            .filter(|(_, count)| *count * LEAST_PART >= all);
        common.map(|(script, _)| *script).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_do_not_change_the_script_of_a_text() {
        for (text, script) in [
            ("How long do refunds take?", Some(Script::Latin)),
            ("使用 systemctl 命令重新启动服务", Some(Script::Cjk)),
            ("知识库", Some(Script::Cjk)),
            ("Сколько дней отпуска?", Some(Script::Cyrillic)),
            ("1234 !?", None),
        ] {
            assert_eq!(Script::of(text), script, "{text}");
        }
    }

    #[test]
    fn a_few_passages_in_another_script_are_not_a_script_of_the_index() {
        let mut count = ScriptCount::default();
        for _ in 0..19 {
            count.add("年假");
        }
        count.add("leave");
        assert_eq!(count.common(), [Script::Cjk]);
        count.add("leave");
        count.add("leave");
        assert_eq!(count.common(), [Script::Cjk, Script::Latin]);
        assert_eq!(ScriptCount::default().common(), []);
    }
}
