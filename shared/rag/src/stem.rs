//! The stems of English words.

use frostem::{Algorithm, Stemmer};

/// The stem of a word in lower case (Snowball's English algorithm), when it differs from the word.
///
/// Only words of plain letters have one: English has no others, and identifiers, numbers and most
/// words of other languages keep their form.
#[must_use]
pub fn english_stem(word: &str) -> Option<String> {
    if !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return None;
    }
    let stem = Stemmer::new(Algorithm::English).stem(word);
    (stem != word && !stem.is_empty()).then(|| stem.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_one_word_share_a_stem_and_other_words_have_none() {
        assert_eq!(english_stem("refunds").as_deref(), Some("refund"));
        assert_eq!(english_stem("refunding").as_deref(), Some("refund"));
        for word in ["refund", "größen", "v2s", "报销", ""] {
            assert_eq!(english_stem(word), None, "{word}");
        }
    }
}
