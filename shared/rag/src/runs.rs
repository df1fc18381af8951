//! Cuts text into words and runs of Chinese, Japanese and Korean characters.

use std::iter::Peekable;

use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfkc_quick};

/// A stretch of text without separators, folded: NFKC (full-width forms become plain ones) and
/// lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// Letters and digits of a script that puts spaces between words.
    Word(String),
    /// Characters of a script that does not (Han, kana) or whose words take many endings (hangul).
    Cjk(Vec<char>),
}

/// The runs of `text`, in order.
pub fn runs(text: &str) -> impl Iterator<Item = Run> + '_ {
    // Most texts are normal, and seeing that takes a tenth of the time that normalizing them again takes.
    let (normal, other) = match is_nfkc_quick(text.chars()) {
        IsNormalized::Yes => (Some(text.chars()), None),
        IsNormalized::No | IsNormalized::Maybe => (None, Some(text.nfkc())),
    };
    let characters = normal.into_iter().flatten();
    runs_of(characters.chain(other.into_iter().flatten()))
}

fn runs_of(normal: impl Iterator<Item = char>) -> impl Iterator<Item = Run> {
    let mut characters = normal.flat_map(char::to_lowercase).peekable();
    std::iter::from_fn(move || next_run(&mut characters))
}

/// Whether `character` is written without spaces between words, or is hangul.
#[must_use]
pub const fn is_cjk(character: char) -> bool {
    matches!(character,
        '\u{4E00}'..='\u{9FFF}'      // Han
        | '\u{3400}'..='\u{4DBF}'    // Han, extension A
        | '\u{20000}'..='\u{3FFFF}'  // Han, extensions B and later
        | '\u{F900}'..='\u{FAFF}'    // Han, compatibility
        | '\u{3005}'..='\u{3007}'    // iteration mark, closing mark, zero
        | '\u{3041}'..='\u{309F}'    // hiragana
        | '\u{30A1}'..='\u{30FA}'    // katakana
        | '\u{30FC}'..='\u{30FF}'    // katakana length mark and after
        | '\u{31F0}'..='\u{31FF}'    // katakana, phonetic extensions
        | '\u{FF66}'..='\u{FF9F}'    // katakana, half-width
        | '\u{AC00}'..='\u{D7AF}'    // hangul syllables
        | '\u{1100}'..='\u{11FF}'    // hangul letters
        | '\u{3130}'..='\u{318F}'    // hangul letters, compatibility
    )
}

fn next_run(characters: &mut Peekable<impl Iterator<Item = char>>) -> Option<Run> {
    let first = characters.find(|c| c.is_alphanumeric() || is_cjk(*c))?;
    if is_cjk(first) {
        return Some(Run::Cjk(cjk_run(first, characters)));
    }
    let mut word = String::from(first);
    while let Some(next) =
        characters.next_if(|c| (c.is_alphanumeric() && !is_cjk(*c)) || is_combining_mark(*c))
    {
        word.push(next);
    }
    Some(Run::Word(word))
}

/// A single line break does not end a run: text that was wrapped at a width has one in the middle of
/// a word. A blank line does.
fn cjk_run(first: char, characters: &mut Peekable<impl Iterator<Item = char>>) -> Vec<char> {
    let mut run = vec![first];
    loop {
        while let Some(next) = characters.next_if(|c| is_cjk(*c)) {
            run.push(next);
        }
        let mut line_breaks = 0;
        if !characters.peek().is_some_and(|c| matches!(c, '\n' | '\r')) {
            return run;
        }
        while let Some(space) = characters.next_if(|c| c.is_whitespace()) {
            line_breaks += usize::from(space == '\n');
        }
        if line_breaks > 1 || !characters.peek().is_some_and(|c| is_cjk(*c)) {
            return run;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> Vec<String> {
        runs(text)
            .map(|run| match run {
                Run::Word(word) => word,
                Run::Cjk(characters) => characters.into_iter().collect(),
            })
            .collect()
    }

    #[test]
    fn mixed_scripts_part_at_the_script_and_full_width_becomes_plain() {
        assert_eq!(
            shown("使用ＳＱＳ队列,v2.0"),
            ["使用", "sqs", "队列", "v2", "0"]
        );
        assert_eq!(shown("カタカナ・ｶﾀｶﾅ"), ["カタカナ", "カタカナ"]);
        assert_eq!(shown("हिन्दी भाषा"), ["हिन्दी", "भाषा"]);
    }

    #[test]
    fn a_wrapped_line_does_not_tear_a_chinese_word_and_a_blank_line_does() {
        assert_eq!(shown("知识\r\n  库"), ["知识库"]);
        assert_eq!(shown("知识\n\n库"), ["知识", "库"]);
        assert_eq!(shown("知识 库"), ["知识", "库"]);
    }

    proptest! {
        #[test]
        fn a_normal_text_is_cut_as_if_it_had_been_normalized(text in "\\PC*|[a-zA-Zé-ü .'\u{300}\u{4e00}-\u{4e20}ａ-ｚ]*") {
            prop_assert_eq!(runs(&text).collect::<Vec<_>>(), runs_of(text.nfkc()).collect::<Vec<_>>());
        }

        #[test]
        fn runs_are_never_empty_and_hold_no_separators(text in "\\PC*") {
            for run in runs(&text) {
                match run {
                    Run::Word(word) => prop_assert!(!word.is_empty() && !word.contains(char::is_whitespace)),
                    Run::Cjk(characters) => prop_assert!(!characters.is_empty() && characters.iter().all(|c| is_cjk(*c))),
                }
            }
        }
    }
}
