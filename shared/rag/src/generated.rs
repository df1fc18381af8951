//! What a model wrote, made into an answer: without what it thought, and with citations of passages
//! that it was given and of no others.

/// What the model is told to write when the passages do not answer the question.
pub const NO_ANSWER: &str = "NO_ANSWER";

/// Tags around what a model thought, where its interface does not keep that apart.
const THINKING_TAGS: [&str; 4] = ["think", "thinking", "thought", "reasoning"];
/// Words that models put in front of the number in a citation.
const CITATION_WORDS: [&str; 8] = [
    "passages", "passage", "sources", "source", "doc", "ref", "段落", "来源",
];
/// A longer list in one pair of brackets is no citation of ours.
const RANGE_MAX: u64 = 50;

/// A text whose citations were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The text. Every number in square brackets is one of `citations`, counted from 1.
    pub text: String,
    /// For citation `[n]`, at `n - 1`: the index of the passage among those that were given.
    pub citations: Vec<usize>,
    /// How many citations named no passage that was given; they are not in the text any more.
    pub invented: usize,
}

/// Maps the citations in `text` to `given` passages, which the model knows as 1 to `given`.
///
/// A citation is one or more numbers in square brackets: `[1]`, `[1, 3]`, `[1-3]`, `[^1]`, `[source 1]`,
/// `【1】`. Those that remain are written `[1]` and numbered in the order in which they first occur.
#[must_use]
pub fn check_citations(text: &str, given: usize) -> Checked {
    let mut checked = Checked {
        text: String::with_capacity(text.len()),
        citations: Vec::new(),
        invented: 0,
    };
    // Where brackets opened in the new text, as long as a citation may begin there.
    let mut open: Vec<usize> = Vec::new();
    for character in text.chars() {
        if is_opening(character) {
            open.push(checked.text.len());
        }
        checked.text.push(character);
        if !is_closing(character) {
            continue;
        }
        let Some(begin) = open.pop() else {
            continue;
        };
        let inner = &checked.text[begin..];
        let mut inner = inner.chars();
        inner.next();
        inner.next_back();
        let Some(cited) = numbers(inner.as_str()) else {
            open.clear();
            continue;
        };
        checked.text.truncate(begin);
        let mut markers = String::new();
        for number in cited {
            let index = usize::try_from(number)
                .unwrap_or(usize::MAX)
                .wrapping_sub(1);
            if index >= given {
                checked.invented += 1;
                continue;
            }
            let place = checked.citations.iter().position(|known| *known == index);
            let place = place.unwrap_or_else(|| {
                checked.citations.push(index);
                checked.citations.len() - 1
            });
            let marker = format!("[{}]", place + 1);
            if !markers.contains(&marker) {
                markers.push_str(&marker);
            }
        }
        if markers.is_empty() {
            if checked.text.ends_with(' ') {
                checked.text.pop();
            }
        } else {
            // What opened before cannot be a citation any more: it would have one inside.
            open.clear();
            checked.text.push_str(&markers);
        }
    }
    checked.text.truncate(checked.text.trim_end().len());
    let blank_bytes = checked.text.len() - checked.text.trim_start().len();
    checked.text.drain(..blank_bytes);
    checked
}

/// The text without any citation: for an earlier answer, whose numbers mean nothing any more.
#[must_use]
pub fn without_citations(text: &str) -> String {
    check_citations(text, 0).text
}

/// Whether the model says that the passages do not answer the question.
#[must_use]
pub fn says_no_answer(text: &str) -> bool {
    text.contains(NO_ANSWER)
}

/// The text without what the model thought before: everything between `<think>` and `</think>`, before
/// an end without a beginning (some templates put the beginning into the prompt), and after a beginning
/// without an end.
#[must_use]
pub fn without_thinking(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    let mut depth = 0_usize;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        if depth == 0 {
            kept.push_str(before);
        }
        rest = match thinking_tag(tag) {
            Some((true, after)) => {
                depth += 1;
                after
            }
            Some((false, after)) => {
                if depth == 0 {
                    kept.clear();
                }
                depth = depth.saturating_sub(1);
                after
            }
            None => {
                if depth == 0 {
                    kept.push('<');
                }
                &tag[1..]
            }
        };
    }
    if depth == 0 {
        kept.push_str(rest);
    }
    kept.trim().to_owned()
}

/// Whether the text begins with a tag around thinking: true for its beginning, and what comes after it.
fn thinking_tag(text: &str) -> Option<(bool, &str)> {
    let inner = text.strip_prefix('<')?.trim_start();
    let (begins, inner) = match inner.strip_prefix('/') {
        Some(inner) => (false, inner.trim_start()),
        None => (true, inner),
    };
    let length = inner.find(|c: char| !c.is_ascii_alphabetic())?;
    let (name, after) = inner.split_at(length);
    let is_known = THINKING_TAGS
        .iter()
        .any(|tag| tag.eq_ignore_ascii_case(name));
    let after = after.trim_start().strip_prefix('>')?;
    is_known.then_some((begins, after))
}

/// A text that was cut somewhere, up to the end of its last whole sentence; as it is when there is none.
#[must_use]
pub fn whole_sentences(text: &str) -> &str {
    let mut end = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        let ends_here = match character {
            '。' | '！' | '？' | '\n' => true,
            '.' | '!' | '?' => next.is_none_or(|next| next.is_whitespace() || is_opening(next)),
            // The citation behind a sentence belongs to it.
            _ if is_closing(character) => {
                text[..at]
                    .trim_end_matches(|c: char| c.is_ascii_digit() || is_opening(c))
                    .trim_end()
                    == text[..end].trim_end()
            }
            _ => false,
        };
        if ends_here {
            end = at + character.len_utf8();
        }
    }
    let whole = text[..end].trim_end();
    if whole.is_empty() { text } else { whole }
}

/// The first address in `text` that stands in none of the `known` texts.
///
/// An address is `scheme://…`, `www.…`, or the target of a Markdown link. A model that obeys a passage can
/// make it carry what the conversation holds; one that stands in a document word for word cannot.
#[must_use]
pub fn foreign_address<'a>(text: &'a str, known: &[&str]) -> Option<&'a str> {
    addresses(text)
        .into_iter()
        .find(|address| !known.iter().any(|text| text.contains(address)))
}

fn addresses(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("://") {
        let before = &text[..at];
        let scheme = before
            .char_indices()
            .rev()
            .take_while(|(_, c)| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
            .last();
        let begin = scheme.map_or(at, |(begin, _)| begin);
        found.push(address_at(text, begin));
    }
    for (at, _) in text.match_indices("www.").chain(text.match_indices("WWW.")) {
        let is_word = text[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '/' | '.'));
        if !is_word {
            found.push(address_at(text, at));
        }
    }
    for (at, _) in text.match_indices("](") {
        let target = text[at + 2..].trim_start().trim_start_matches('<');
        found.push(address_at(target, 0));
    }
    found.retain(|address| !address.is_empty());
    found
}

/// The address that begins at `begin`, without the punctuation of the sentence that it stands in.
fn address_at(text: &str, begin: usize) -> &str {
    let rest = &text[begin..];
    let ends = |c: char| {
        c.is_whitespace()
            || matches!(c, '<' | '>' | '"' | '`' | '(' | ')' | '[' | ']' | '{' | '}')
            || ('\u{3000}'..='\u{303f}').contains(&c)
            || ('\u{ff00}'..='\u{ffef}').contains(&c)
    };
    let length = rest.find(ends).unwrap_or(rest.len());
    rest[..length].trim_end_matches(['.', ',', ';', ':', '!', '?', '\'', '*', '_'])
}

const fn is_opening(character: char) -> bool {
    matches!(character, '[' | '【' | '［' | '〔')
}

const fn is_closing(character: char) -> bool {
    matches!(character, ']' | '】' | '］' | '〕')
}

/// The numbers of a citation, from what stands between its brackets; `None` when it is none.
fn numbers(inner: &str) -> Option<Vec<u64>> {
    let mut rest = inner.trim().trim_start_matches('^').trim_start();
    for word in CITATION_WORDS {
        let begins = rest
            .get(..word.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(word));
        if begins {
            rest = rest[word.len()..].trim_start_matches([' ', ':', '#', '.']);
            break;
        }
    }
    let mut numbers = Vec::new();
    for part in rest.split([',', '，', '、', ';', '；', ' ']) {
        let part = part.trim().trim_start_matches('^');
        if part.is_empty() {
            continue;
        }
        match part.split_once(['-', '–', '~']) {
            None => numbers.push(number(part)?),
            Some((first, last)) => {
                let (first, last) = (number(first.trim())?, number(last.trim())?);
                if last
                    .checked_sub(first)
                    .is_some_and(|count| count < RANGE_MAX)
                {
                    numbers.extend(first..=last);
                } else {
                    numbers.extend([first, last]);
                }
            }
        }
    }
    (!numbers.is_empty()).then_some(numbers)
}

/// A number in ASCII or full-width digits; one that is too large is the largest.
fn number(text: &str) -> Option<u64> {
    let mut value: u64 = 0;
    for character in text.chars() {
        let digit = match character {
            '0'..='9' => u64::from(character) - u64::from('0'),
            '０'..='９' => u64::from(character) - u64::from('０'),
            _ => return None,
        };
        value = value.saturating_mul(10).saturating_add(digit);
    }
    (!text.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checked(text: &str, given: usize) -> (String, Vec<usize>, usize) {
        let checked = check_citations(text, given);
        (checked.text, checked.citations, checked.invented)
    }

    #[test]
    fn citations_are_numbered_in_the_order_in_which_they_occur() {
        for (text, expected) in [
            (
                "Thirty days [2]. Ask first [1].",
                "Thirty days [1]. Ask first [2].",
            ),
            ("Thirty days [2][1].", "Thirty days [1][2]."),
            ("Thirty days [2, 1].", "Thirty days [1][2]."),
            ("Thirty days [2; 2].", "Thirty days [1]."),
            ("Thirty days [^2].", "Thirty days [1]."),
            ("Thirty days [Source 2].", "Thirty days [1]."),
            ("三十天【2】。", "三十天[1]。"),
            ("三十天［２］。", "三十天[1]。"),
            ("三十天[来源2]。", "三十天[1]。"),
        ] {
            let (checked, citations, invented) = checked(text, 3);
            assert_eq!(checked, expected, "{text}");
            assert_eq!(citations[0], 1, "{text}");
            assert_eq!(invented, 0, "{text}");
        }
        assert_eq!(checked("All [1-3]", 3).1, [0, 1, 2]);
    }

    #[test]
    fn an_invented_citation_is_dropped_and_counted() {
        for (text, expected, invented) in [
            ("Thirty days [9].", "Thirty days.", 1),
            ("Thirty days [1][9].", "Thirty days [1].", 1),
            ("Thirty days [0].", "Thirty days.", 1),
            ("Thirty days [3-5].", "Thirty days.", 3),
            (
                "Thirty days [1-99999999999999999999999].",
                "Thirty days [1].",
                1,
            ),
            // What would become a citation when another one is taken out of it.
            ("[[9]1]", "[1]", 1),
            ("[[9]8]", "", 2),
        ] {
            let (checked, _, count) = checked(text, 2);
            assert_eq!((checked.as_str(), count), (expected, invented), "{text}");
        }
    }

    #[test]
    fn brackets_around_words_stay() {
        let text = "See [the policy](x), [sic], [1a], [] and x[i]. - [ ] open";
        assert_eq!(checked(text, 2), (text.to_owned(), Vec::new(), 0));
    }

    #[test]
    fn thinking_is_taken_out_wherever_its_tags_stand() {
        for (text, expected) in [
            (
                "<think>Hm. [1]</think>\n\nThirty days [1].",
                "Thirty days [1].",
            ),
            ("<THINKING >a</ thinking>b", "b"),
            ("Hm, so it is thirty.</think>Thirty days.", "Thirty days."),
            ("Thirty days.<think>was that right", "Thirty days."),
            ("<think>a<think>b</think>c</think>d", "d"),
            ("a < b and <b>c</b> <think", "a < b and <b>c</b> <think"),
            ("<think></think>", ""),
        ] {
            assert_eq!(without_thinking(text), expected, "{text}");
        }
    }

    #[test]
    fn a_cut_text_ends_with_its_last_whole_sentence() {
        for (text, expected) in [
            ("Thirty days. [1] Ask your mana", "Thirty days. [1]"),
            ("Thirty days [1]. Version 2.5 is", "Thirty days [1]."),
            ("三十天。[1]请先", "三十天。[1]"),
            ("no end at all", "no end at all"),
        ] {
            assert_eq!(whole_sentences(text), expected, "{text}");
        }
    }

    #[test]
    fn only_addresses_that_stand_in_the_documents_may_be_named() {
        let known = [
            "See https://wiki.example/leave and [form](/forms/7).",
            "www.example.org",
        ];
        for text in [
            "See https://wiki.example/leave.",
            "[form](/forms/7)",
            "见 https://wiki.example/leave。",
            "www.example.org, a < b, [1] (2)",
        ] {
            assert_eq!(foreign_address(text, &known), None, "{text}");
        }
        for (text, address) in [
            (
                "![](https://wiki.example/leave?q=secret)",
                "https://wiki.example/leave?q=secret",
            ),
            ("[a](//evil.example/x)", "//evil.example/x"),
            ("go to www.evil.example/x now", "www.evil.example/x"),
            ("<img src=\"ftp://evil.example\">", "ftp://evil.example"),
        ] {
            assert_eq!(foreign_address(text, &known), Some(address), "{text}");
        }
    }

    /// Every number in plain brackets, read in another way than above.
    fn bracketed_numbers(text: &str) -> Vec<u128> {
        let parts = text.split('[').skip(1);
        parts
            .filter_map(|part| part.split_once(']'))
            .filter(|(inner, _)| !inner.is_empty() && inner.bytes().all(|b| b.is_ascii_digit()))
            .map(|(inner, _)| inner.parse().unwrap_or(u128::MAX))
            .collect()
    }

    proptest! {
        #[test]
        fn no_text_yields_a_citation_outside_of_what_was_given(
            text in "([\\[\\]【】［0-9 ,^-]|\\[[0-9]{1,3}\\]|\\PC){0,60}", given in 0_usize..12,
        ) {
            let checked = check_citations(&text, given);
            for number in bracketed_numbers(&checked.text) {
                prop_assert!(number >= 1 && number <= checked.citations.len() as u128, "{}", checked.text);
            }
            for (at, index) in checked.citations.iter().enumerate() {
                prop_assert!(*index < given);
                prop_assert!(!checked.citations[..at].contains(index));
            }
            // Checked once more, as an answer to as many passages, it stays as it is.
            let again = check_citations(&checked.text, checked.citations.len());
            prop_assert_eq!(&again.text, &checked.text);
            prop_assert_eq!(again.invented, 0);
        }

        #[test]
        fn no_thinking_survives(
            before in "[a-z .]{0,10}", thought in "([a-z ]|<think>x</think>){0,10}", after in "[a-z .]{0,10}",
        ) {
            let text = format!("{before}<think>{thought} SECRET</think>{after}");
            prop_assert!(!without_thinking(&text).contains("SECRET"));
        }

        #[test]
        fn no_text_makes_the_checks_panic(text in "([\\[\\]<>/:w.]|think|://|www|\\PC){0,40}") {
            let _ = (without_thinking(&text), whole_sentences(&text), foreign_address(&text, &[]));
        }
    }
}
