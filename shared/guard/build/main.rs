//! Turns `src/rules.toml` into static tables, so that a mistake in the data stops the build and
//! nothing is parsed or built when a function starts.

mod concepts;
mod lexicon;

#[path = "../src/fold.rs"]
mod fold;
#[path = "../src/hash.rs"]
mod hash;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

use concepts::Concepts;
use lexicon::Lexicon;

/// Characters below this code point (and not ASCII) are folded by table.
const FOLDED_END: u32 = 0x0590;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    known_words: Vec<String>,
    key_words: Vec<String>,
    role_tags: Vec<String>,
    hiding_styles: Vec<String>,
    concepts: BTreeMap<String, Vec<String>>,
    pattern: Vec<Pattern>,
    technique: Vec<Technique>,
}

/// A sequence of concepts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pattern {
    id: String,
    rule: String,
    detail: String,
    #[serde(rename = "match")]
    sequences: Vec<String>,
    examples: Vec<String>,
    #[serde(default)]
    counter_examples: Vec<String>,
}

/// A technique that code recognises by its structure; the data only holds its examples.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Technique {
    id: String,
    rule: String,
    examples: Vec<String>,
    #[serde(default)]
    counter_examples: Vec<String>,
}

#[expect(clippy::print_stdout, reason = "a build script speaks to Cargo so")]
fn main() -> Result<(), Box<dyn Error>> {
    for input in ["build", "src/rules.toml", "src/fold.rs", "src/hash.rs"] {
        println!("cargo::rerun-if-changed={input}");
    }
    let rules: Rules = toml::from_str(&std::fs::read_to_string("src/rules.toml")?)?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("rules.rs"), generate(&rules)?)?;
    Ok(())
}

fn generate(rules: &Rules) -> Result<String, Box<dyn Error>> {
    let mut concepts = Concepts::new(&rules.concepts)?;
    let mut patterns = Vec::new();
    let mut examples = String::new();
    for pattern in &rules.pattern {
        for sequence in &pattern.sequences {
            let elements = concepts
                .elements(sequence)
                .map_err(|problem| format!("pattern {}: {sequence:?}: {problem}", pattern.id))?;
            patterns.push((pattern, elements));
        }
        push_examples(
            &mut examples,
            &pattern.id,
            &pattern.rule,
            &pattern.examples,
            &pattern.counter_examples,
        )?;
    }
    for technique in &rules.technique {
        push_examples(
            &mut examples,
            &technique.id,
            &technique.rule,
            &technique.examples,
            &technique.counter_examples,
        )?;
    }
    let mut tags = rules.role_tags.clone();
    tags.sort();
    let (lead, not) = (concepts.index("lead")?, concepts.index("not")?);
    let lexicon = Lexicon::new(concepts.words(), &rules.known_words, &rules.key_words)?;
    let mut out = lexicon.generate()?;
    writeln!(
        out,
        "pub(crate) static LEAD: LexemeSet = LexemeSet({:?});\n\
        pub(crate) static NOT: LexemeSet = LexemeSet({:?});",
        lexicon.set(&[lead]),
        lexicon.set(&[not])
    )?;
    writeln!(out, "pub(crate) static PATTERNS: &[Pattern] = &[")?;
    for (pattern, elements) in patterns {
        let elements = elements.iter();
        let elements = elements.map(|element| element.source(&lexicon.set(&element.concepts)));
        writeln!(
            out,
            "    Pattern {{ rule: Rule::{}, detail: {:?}, elements: &[{}] }},",
            variant(&pattern.rule),
            pattern.detail,
            elements.collect::<Vec<_>>().join(", ")
        )?;
    }
    writeln!(out, "];")?;
    writeln!(out, "pub(crate) static ROLE_TAGS: &[&str] = &{tags:?};")?;
    writeln!(
        out,
        "pub(crate) static HIDING_STYLES: &[&str] = &{:?};",
        rules.hiding_styles
    )?;
    writeln!(out, "{}", folded_characters()?)?;
    writeln!(
        out,
        "#[cfg(test)]\npub(crate) static EXAMPLES: &[(&str, Rule, &str, bool)] = &[\n{examples}];"
    )?;
    Ok(out)
}

/// A table of what each letter below [`FOLDED_END`] folds to, 0 where that is not one character.
fn folded_characters() -> Result<String, std::fmt::Error> {
    let folded: Vec<u32> = (0x80..FOLDED_END)
        .map(|code| {
            let mut out = Vec::new();
            if let Some(c) = char::from_u32(code).filter(|c| fold::is_word_char(*c)) {
                fold::fold(c, |c| out.push(u32::from(c)));
            }
            match out.as_slice() {
                [one] if *one < 0x1_0000 => *one,
                _ => 0,
            }
        })
        .collect();
    let mut out = String::new();
    write!(
        out,
        "pub(crate) static FOLDED: [u16; {}] = {folded:?};",
        folded.len()
    )?;
    Ok(out)
}

fn push_examples(
    out: &mut String,
    id: &str,
    rule: &str,
    found: &[String],
    passed: &[String],
) -> Result<(), Box<dyn Error>> {
    if found.is_empty() {
        return Err(format!("{id} has no example").into());
    }
    for (texts, expected) in [(found, true), (passed, false)] {
        for text in texts {
            writeln!(
                out,
                "    ({id:?}, Rule::{}, {text:?}, {expected}),",
                variant(rule)
            )?;
        }
    }
    Ok(())
}

/// `fake_role_line` to `FakeRoleLine`; an unknown rule stops the build in the generated code.
fn variant(rule: &str) -> String {
    rule.split('_')
        .map(|part| {
            let (first, rest) = part.split_at(part.len().min(1));
            first.to_ascii_uppercase() + rest
        })
        .collect()
}
