//! The catalogue and the sources belong together: every text is there in every language, nothing is
//! there that nobody says, and what people and models read goes through it.

#![expect(clippy::unwrap_used, reason = "in a test a failure is a failed test")]

mod exceptions;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use sources::{Sentence, root, sentences};

/// Where texts can stand.
const ALL: [&str; 3] = ["functions", "shared", "cli/src"];
/// Where every sentence is for people or models, unless [`exceptions`] says why not.
const FOR_PEOPLE: [&str; 2] = ["functions/mcp/src", "cli/src"];
/// The section whose texts are the command line's help; `cli/src/language.rs` compares it with the
/// commands.
const HELP: &str = "help";

type Sections = BTreeMap<String, BTreeMap<String, String>>;

fn catalogue() -> Sections {
    let path = root().join("shared/texts/catalogue/zh.toml");
    toml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// What the guard calls the things that it finds: looked up where a finding is reported.
fn guard_details() -> BTreeSet<String> {
    let rules = fs::read_to_string(root().join("shared/guard/src/rules.toml")).unwrap();
    let of_patterns = rules
        .lines()
        .filter_map(|line| line.strip_prefix("detail = \"")?.strip_suffix('"'));
    let of_techniques = sentences(&["shared/guard/src"]).into_iter();
    of_techniques
        // The guard's marks inside of texts are a notation, which it recognises itself.
        .filter(|sentence| !sentence.in_catalogue && !sentence.file.ends_with("/unit.rs"))
        .map(|sentence| sentence.text)
        .chain(of_patterns.map(ToOwned::to_owned))
        .collect()
}

fn said() -> BTreeSet<String> {
    let all = sentences(&ALL).into_iter();
    all.filter(|sentence| sentence.in_catalogue)
        .map(|sentence| sentence.text)
        .chain(guard_details())
        .collect()
}

/// The placeholders of a text, sorted.
fn placeholders(text: &str) -> Vec<&str> {
    let mut names: Vec<&str> = text
        .split('{')
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('}')?.0))
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn every_text_is_translated() {
    let catalogue = catalogue();
    let translated: BTreeSet<&String> = catalogue.values().flat_map(BTreeMap::keys).collect();
    let missing: Vec<String> = said()
        .into_iter()
        .filter(|text| !translated.contains(text))
        .map(|text| format!("{text:?} = \"\"\n"))
        .collect();
    assert!(
        missing.is_empty(),
        "shared/texts/catalogue/zh.toml lacks {}:\n{}",
        missing.len(),
        missing.concat()
    );
}

#[test]
fn nothing_is_translated_that_nobody_says() {
    let said = said();
    let others = catalogue()
        .into_iter()
        .filter(|(section, _)| section != HELP);
    let unused: Vec<String> = others
        .flat_map(|(_, texts)| texts.into_keys())
        .filter(|text| !said.contains(text))
        .collect();
    assert!(unused.is_empty(), "nobody says: {unused:#?}");
}

#[test]
fn a_translation_has_the_placeholders_of_the_text() {
    for (english, chinese) in catalogue().into_values().flatten() {
        let distinct = |text| {
            placeholders(text)
                .into_iter()
                .map(ToOwned::to_owned)
                .collect::<BTreeSet<String>>()
        };
        assert_eq!(distinct(&english), distinct(&chinese), "{english}");
    }
}

#[test]
fn a_translation_is_in_chinese() {
    for (english, chinese) in catalogue().into_values().flatten() {
        let is_han = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
        assert!(chinese.contains(is_han), "{english} = {chinese:?}");
        // What is typed or shown as code is the same in every language.
        let code = |text: &str| -> Vec<String> {
            let mut parts: Vec<String> = text
                .split('`')
                .skip(1)
                .step_by(2)
                .map(ToOwned::to_owned)
                .collect();
            parts.sort_unstable();
            parts
        };
        assert_eq!(code(&english), code(&chinese), "{english}");
    }
}

#[test]
fn what_people_and_models_read_goes_through_the_catalogue() {
    let mut unused: BTreeSet<(&str, &str)> = exceptions::SENTENCES
        .iter()
        .map(|e| (e.file, e.text))
        .collect();
    let is_exception = |sentence: &Sentence, unused: &mut BTreeSet<(&str, &str)>| {
        let by_attribute = sentence.in_error_attribute && sentence.file.starts_with("functions/");
        // `cli/src/language.rs` compares the help with the catalogue.
        let is_help = sentence.file.ends_with("/arguments.rs");
        let by_file = exceptions::FILES.contains(&sentence.file.as_str());
        let listed = exceptions::SENTENCES
            .iter()
            .find(|e| e.file == sentence.file && sentence.text.starts_with(e.text));
        if let Some(listed) = listed {
            unused.remove(&(listed.file, listed.text));
        }
        by_attribute || is_help || by_file || listed.is_some()
    };
    let bare: Vec<String> = sentences(&FOR_PEOPLE)
        .into_iter()
        .filter(|sentence| !sentence.in_catalogue && !is_exception(sentence, &mut unused))
        .map(|sentence| format!("{}: {:?}\n", sentence.file, sentence.text))
        .collect();
    assert!(
        bare.is_empty(),
        "{} texts bypass the catalogue: use text!(…), or say in tests/catalogue/exceptions.rs why nobody \
         reads them:\n{}",
        bare.len(),
        bare.concat()
    );
    assert!(unused.is_empty(), "exceptions for nothing: {unused:#?}");
}
