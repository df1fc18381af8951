//! Where in a text the words of a query stand.

use std::collections::HashSet;
use std::ops::Range;

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::tokenizer::{index_terms, query_terms};
use crate::runs::is_cjk;

/// The stretches of `text`, in bytes, for which the passage was found: in order, without overlaps, on
/// the borders of characters. Neighbouring characters of Chinese, Japanese and Korean are one stretch;
/// words that make up any question ("the", "what") are left out.
#[must_use]
pub fn highlights(query: &str, text: &str) -> Vec<Range<usize>> {
    let wanted: HashSet<String> = query_terms(query).words.into_iter().collect();
    let mut found: Vec<Range<usize>> = Vec::new();
    for stretch in stretches(text) {
        match stretch {
            Stretch::Word(range) => {
                let terms = index_terms(&text[range.clone()]);
                if terms.iter().any(|term| wanted.contains(term)) {
                    found.push(range);
                }
            }
            Stretch::Cjk(characters) => mark_characters(&characters, &wanted, &mut found),
        }
    }
    found
}

/// A pair that is asked for marks both of its characters.
fn mark_characters(
    characters: &[(char, Range<usize>)],
    wanted: &HashSet<String>,
    found: &mut Vec<Range<usize>>,
) {
    for (index, (character, range)) in characters.iter().enumerate() {
        let pair_with = |other: Option<&(char, Range<usize>)>, before: bool| {
            other.is_some_and(|(other, _)| {
                let pair: String = if before {
                    [*other, *character].iter().collect()
                } else {
                    [*character, *other].iter().collect()
                };
                wanted.contains(&pair)
            })
        };
        let previous = index.checked_sub(1).and_then(|index| characters.get(index));
        let is_wanted = wanted.contains(&character.to_string())
            || pair_with(previous, true)
            || pair_with(characters.get(index + 1), false);
        if !is_wanted {
            continue;
        }
        match found.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => found.push(range.clone()),
        }
    }
}

/// What [`crate::runs`] sees as one run, with its place in the text.
enum Stretch {
    Word(Range<usize>),
    Cjk(Vec<(char, Range<usize>)>),
}

/// Cuts like [`crate::runs`], which looks at folded text and knows no places. A letter is folded with
/// the marks that follow it.
fn stretches(text: &str) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    let mut line_breaks = 0;
    let mut joins = false;
    for cluster in clusters(text) {
        let mut folded = text[cluster.clone()].nfkc().flat_map(char::to_lowercase);
        let Some(first) = folded.next() else { continue };
        if is_cjk(first) {
            // A wrapped line does not end a run, a blank line does.
            match stretches.last_mut() {
                Some(Stretch::Cjk(run)) if joins && line_breaks < 2 => run.push((first, cluster)),
                _ => stretches.push(Stretch::Cjk(vec![(first, cluster)])),
            }
            (joins, line_breaks) = (true, 0);
        } else if first.is_alphanumeric() {
            match stretches.last_mut() {
                Some(Stretch::Word(word)) if word.end == cluster.start => word.end = cluster.end,
                _ => stretches.push(Stretch::Word(cluster)),
            }
            joins = false;
        } else {
            let starts_with_break = line_breaks > 0 || matches!(first, '\n' | '\r');
            joins = joins && first.is_whitespace() && starts_with_break;
            line_breaks += usize::from(first == '\n' || first == '\r');
        }
    }
    stretches
}

/// The characters of `text`, each with the marks that follow it.
fn clusters(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut characters = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let (start, first) = characters.next()?;
        let mut end = start + first.len_utf8();
        while let Some((at, mark)) = characters.next_if(|(_, next)| is_combining_mark(*next)) {
            end = at + mark.len_utf8();
        }
        Some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn marked(query: &str, text: &str) -> Vec<String> {
        highlights(query, text)
            .into_iter()
            .map(|range| text[range].to_owned())
            .collect()
    }

    #[test]
    fn every_form_of_a_word_is_marked_and_small_words_are_not() {
        assert_eq!(
            marked("what is a refund", "A Refund is refunded. What refuse?"),
            ["Refund", "refunded"]
        );
    }

    #[test]
    fn pairs_of_characters_are_marked_together_also_over_a_wrapped_line() {
        assert_eq!(marked("报销单", "提交报销单。报告"), ["报销单"]);
        assert_eq!(marked("知识库", "知\n  识库"), ["知", "识库"]);
        assert_eq!(marked("知识", "知\n\n识"), Vec::<String>::new());
        assert_eq!(marked("税", "纳税人"), ["税"]);
    }

    #[test]
    fn full_width_and_decomposed_letters_are_marked_where_they_stand() {
        assert_eq!(marked("sqs", "用ＳＱＳ队列"), ["ＳＱＳ"]);
        assert_eq!(marked("café", "one cafe\u{301}, please"), ["cafe\u{301}"]);
    }

    proptest! {
        #[test]
        fn ranges_are_in_order_apart_and_on_borders(query in "\\PC{0,20}", text in "(\\PC|\n){0,60}") {
            let mut end = 0;
            for range in highlights(&query, &text) {
                prop_assert!(range.start >= end && range.end > range.start);
                prop_assert!(text.get(range.clone()).is_some());
                end = range.end;
            }
        }

        #[test]
        fn a_text_that_is_found_by_its_words_has_a_mark(text in "([a-z]{1,8}|[税报销单]{1,3}|\u{65}\u{301}| |\n|,){1,30}") {
            let asked = !query_terms(&text).words.is_empty();
            prop_assert_eq!(asked, !highlights(&text, &text).is_empty());
        }
    }
}
