//! Texts for people and models, in the language that a deployment chooses.
//!
//! The English sentence stands where it is said, and is the key under which `catalogue/*.toml` holds it
//! in other languages, as in gettext:
//!
//! ```
//! use raglan_texts::{Language, text};
//!
//! let told = text!(Language::English, "Knowledge base `{kb_id}` did not answer.", kb_id = "handbook");
//! assert_eq!(told, "Knowledge base `handbook` did not answer.");
//! ```
//!
//! What programs read never passes through here: codes, field names, log entries, `--json` output.
//! `tests/catalogue.rs` compares the catalogue with the sources; `docs/languages.md` says how to add a
//! sentence or a language.

use std::fmt::{Display, Write as _};
use std::sync::OnceLock;

mod catalogue {
    include!(concat!(env!("OUT_DIR"), "/catalogue.rs"));
}

/// The variable that chooses a deployment's language.
pub const LANGUAGE_VARIABLE: &str = "RAGLAN_LANGUAGE";

/// The languages that there are texts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    /// English, the language of the sources.
    #[default]
    English,
    /// Simplified Chinese.
    Chinese,
}

impl Language {
    /// Every language.
    pub const ALL: [Self; 2] = [Self::English, Self::Chinese];

    /// Its code (ISO 639-1).
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Chinese => "zh",
        }
    }

    /// The language of a code.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|language| language.code() == code)
    }

    /// Its texts by the English ones, which are ascending; none for English.
    #[must_use]
    pub const fn texts(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::English => &[],
            Self::Chinese => catalogue::CHINESE,
        }
    }
}

static PROCESS_LANGUAGE: OnceLock<Language> = OnceLock::new();

/// Chooses the language of a process that speaks to one person, once and before anything is said. The
/// functions never do: their language is part of their configuration.
pub fn choose_process_language(language: Language) {
    let _ = PROCESS_LANGUAGE.set(language);
}

/// The language of a process that speaks to one person; English until it is chosen.
#[must_use]
pub fn process_language() -> Language {
    PROCESS_LANGUAGE.get().copied().unwrap_or_default()
}

/// A text in another language, if the catalogue has it.
#[must_use]
pub fn find(language: Language, english: &str) -> Option<&'static str> {
    let texts = language.texts();
    let at = texts.binary_search_by(|(key, _)| (*key).cmp(english));
    at.ok().map(|at| texts[at].1)
}

/// A text in another language; the English one where there is none. For a text that stands right here,
/// use [`text!`].
#[must_use]
pub fn translated(language: Language, english: &'static str) -> &'static str {
    find(language, english).unwrap_or(english)
}

/// A text in a language.
///
/// `text!(language, "…")` is a `&'static str`; `text!(language, "… {name}", name = value)` a `String`, where
/// `name` alone stands for `name = name`. The names are checked when this is compiled. Placeholders have
/// no format: what needs one is formatted before.
#[macro_export]
macro_rules! text {
    ($language:expr, $english:literal $(,)?) => {
        $crate::translated($language, $english)
    };
    ($language:expr, $english:literal, $($name:ident $(= $value:expr)?),+ $(,)?) => {
        match $language {
            $crate::Language::English => ::std::format!(
                // Not the literal itself: that would quietly take in variables that are not listed.
                ::std::concat!($english),
                $($name = $crate::value_of!($name $(= $value)?)),+
            ),
            language => $crate::fill(
                $crate::translated(language, $english),
                &[$((
                    ::std::stringify!($name),
                    &$crate::value_of!($name $(= $value)?) as &dyn ::std::fmt::Display,
                )),+],
            ),
        }
    };
}

/// The value of one of [`text!`]'s names.
#[doc(hidden)]
#[macro_export]
macro_rules! value_of {
    ($name:ident) => {
        $name
    };
    ($name:ident = $value:expr) => {
        $value
    };
}

/// Puts values into a text with named placeholders (`{name}`); `{{` and `}}` are single braces. A
/// placeholder without a value stays as it is: a text with a gap is better than none.
#[must_use]
pub fn fill(template: &str, values: &[(&str, &dyn Display)]) -> String {
    let mut out = String::with_capacity(template.len() + 16 * values.len());
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        let after = &rest[at + 1..];
        let name = after.find('}').map(|end| &after[..end]);
        let value = values.iter().find(|(known, _)| Some(*known) == name);
        if let Some(after_second) = after.strip_prefix(brace) {
            out.push_str(brace);
            rest = after_second;
        } else if let (Some(name), Some((_, value))) = (name.filter(|_| brace == "{"), value) {
            // Writing to a string cannot fail.
            let _ = write!(out, "{value}");
            rest = &after[name.len() + 1..];
        } else {
            out.push_str(brace);
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_is_found_by_its_own_code_and_by_no_other() {
        for language in Language::ALL {
            assert_eq!(Language::from_code(language.code()), Some(language));
            assert_eq!(Language::from_code(&language.code().to_uppercase()), None);
        }
        assert_eq!(Language::from_code(""), None);
    }

    #[test]
    fn every_text_of_the_catalogue_is_found() {
        assert!(Language::Chinese.texts().is_sorted_by(|a, b| a.0 < b.0));
        for (english, chinese) in Language::Chinese.texts() {
            assert_eq!(translated(Language::Chinese, english), *chinese);
            assert_eq!(translated(Language::English, english), *english);
        }
    }

    #[test]
    fn a_text_without_a_translation_is_told_in_english() {
        let told = text!(Language::Chinese, "{count} zebras, {{as is}}", count = 3);
        assert_eq!(told, "3 zebras, {as is}");
        assert_eq!(text!(Language::Chinese, "No zebras"), "No zebras");
    }

    #[test]
    fn both_ways_of_filling_a_text_agree() {
        let (name, size) = ("{size}", 7_u32);
        let english = text!(
            Language::English,
            "{name}: {{{size}}} of {most}",
            name,
            size,
            most = 1 + 8
        );
        let filled = fill(
            "{name}: {{{size}}} of {most}",
            &[("name", &name), ("size", &size), ("most", &9)],
        );
        assert_eq!(english, "{size}: {7} of 9");
        assert_eq!(filled, english, "a value is never read as a template");
    }

    #[test]
    fn placeholders_may_come_in_another_order_or_more_than_once() {
        assert_eq!(
            fill("{b}{a}{b}", &[("a", &"x"), ("b", &"知识库")]),
            "知识库x知识库"
        );
    }

    #[test]
    fn a_placeholder_without_a_value_stays() {
        for template in ["{c} { } {", "}", "{", "知{识"] {
            assert_eq!(fill(template, &[("a", &1)]), template);
        }
    }
}
