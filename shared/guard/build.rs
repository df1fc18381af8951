//! Turns `src/rules.toml` into static tables, so that a mistake in the data stops the build and
//! nothing is parsed when a function starts.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

/// Longest pattern in tokens, gaps included; the matcher's blocks overlap by this much.
const MAX_PATTERN_TOKENS: usize = 48;
/// Most concepts; the matcher clears a word for each in every block.
const MAX_CONCEPTS: usize = 512;
/// Most elements of one pattern.
const MAX_PATTERN_ELEMENTS: usize = 8;

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

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=src/rules.toml");
    println!("cargo::rerun-if-changed=build.rs");
    let rules: Rules = toml::from_str(&std::fs::read_to_string("src/rules.toml")?)?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("rules.rs"), generate(&rules)?)?;
    Ok(())
}

fn generate(rules: &Rules) -> Result<String, Box<dyn Error>> {
    let mut concepts = Concepts::new(&rules.concepts)?;
    let mut patterns = String::new();
    let mut examples = String::new();
    for pattern in &rules.pattern {
        for sequence in &pattern.sequences {
            let elements = concepts
                .elements(sequence)
                .map_err(|problem| format!("pattern {}: {sequence:?}: {problem}", pattern.id))?;
            writeln!(
                patterns,
                "    Pattern {{ id: {:?}, rule: Rule::{}, detail: {:?}, elements: &[{elements}] }},",
                pattern.id,
                variant(&pattern.rule),
                pattern.detail
            )?;
        }
        push_examples(&mut examples, &pattern.id, &pattern.rule, &pattern.examples, &pattern.counter_examples)?;
    }
    for technique in &rules.technique {
        push_examples(&mut examples, &technique.id, &technique.rule, &technique.examples, &technique.counter_examples)?;
    }
    let mut tags = rules.role_tags.clone();
    tags.sort();
    let mut out = String::new();
    writeln!(out, "/// How many concepts there are.")?;
    writeln!(out, "pub(crate) const CONCEPT_COUNT: usize = {};", concepts.words.len())?;
    writeln!(out, "/// The words of each concept; a final `*` stands for any ending.")?;
    writeln!(out, "pub(crate) static CONCEPTS: [&[&str]; CONCEPT_COUNT] = [")?;
    for words in &concepts.words {
        writeln!(out, "    &{words:?},")?;
    }
    writeln!(out, "];")?;
    writeln!(out, "/// The concept of words that may stand between the start of a clause and its verb.")?;
    writeln!(out, "pub(crate) const LEAD: u16 = {};", concepts.index("lead")?)?;
    writeln!(out, "/// The concept of negations.")?;
    writeln!(out, "pub(crate) const NOT: u16 = {};", concepts.index("not")?)?;
    writeln!(out, "/// The patterns, in the order of the data.")?;
    writeln!(out, "pub(crate) static PATTERNS: &[Pattern] = &[\n{patterns}];")?;
    writeln!(out, "/// Words that are no misspelling of a key word although one edit away.")?;
    writeln!(out, "pub(crate) static KNOWN_WORDS: &[&str] = &{:?};", rules.known_words)?;
    writeln!(out, "/// Words that are recognised with one edit.")?;
    writeln!(out, "pub(crate) static KEY_WORDS: &[&str] = &{:?};", rules.key_words)?;
    writeln!(out, "/// Names of prompt-template and tool-protocol tags, sorted.")?;
    writeln!(out, "pub(crate) static ROLE_TAGS: &[&str] = &{tags:?};")?;
    writeln!(out, "/// Style declarations that hide an element, without white space.")?;
    writeln!(out, "pub(crate) static HIDING_STYLES: &[&str] = &{:?};", rules.hiding_styles)?;
    writeln!(out, "/// `(id, rule, text, whether the rule finds something in it)`.")?;
    writeln!(out, "#[cfg(test)]\npub(crate) static EXAMPLES: &[(&str, Rule, &str, bool)] = &[\n{examples}];")?;
    Ok(out)
}

fn push_examples(out: &mut String, id: &str, rule: &str, found: &[String], passed: &[String]) -> Result<(), Box<dyn Error>> {
    if found.is_empty() {
        return Err(format!("{id} has no example").into());
    }
    for (texts, expected) in [(found, true), (passed, false)] {
        for text in texts {
            writeln!(out, "    ({id:?}, Rule::{}, {text:?}, {expected}),", variant(rule))?;
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

/// The named concepts, and one more for each quoted word of a pattern.
struct Concepts {
    indices: BTreeMap<String, usize>,
    words: Vec<Vec<String>>,
}

impl Concepts {
    fn new(named: &BTreeMap<String, Vec<String>>) -> Result<Self, Box<dyn Error>> {
        let mut concepts = Self { indices: BTreeMap::new(), words: Vec::new() };
        for (name, words) in named {
            let mut all = Vec::new();
            for word in words {
                match word.strip_prefix('@') {
                    None => all.push(word.clone()),
                    Some(other) => all.extend_from_slice(
                        named.get(other).ok_or_else(|| format!("concept {name}: no concept {other}"))?,
                    ),
                }
            }
            if let Some(nested) = all.iter().find(|word| word.starts_with('@')) {
                return Err(format!("concept {name}: {nested} is included over two steps").into());
            }
            concepts.indices.insert(name.clone(), concepts.words.len());
            concepts.words.push(all);
        }
        Ok(concepts)
    }

    fn index(&mut self, name: &str) -> Result<usize, Box<dyn Error>> {
        if let Some(index) = self.indices.get(name) {
            return Ok(*index);
        }
        let word = name
            .strip_prefix('\'')
            .and_then(|rest| rest.strip_suffix('\''))
            .ok_or_else(|| format!("no concept {name}"))?;
        if self.words.len() == MAX_CONCEPTS {
            return Err("too many concepts".into());
        }
        self.indices.insert(name.to_owned(), self.words.len());
        self.words.push(vec![word.to_owned()]);
        Ok(self.words.len() - 1)
    }

    /// Parses `^ignore ~4 earlier ~3 directions`; the notation is explained in `rules.toml`.
    fn elements(&mut self, sequence: &str) -> Result<String, Box<dyn Error>> {
        let mut out = String::new();
        let (mut gap, mut crosses) = (0, false);
        let (mut count, mut tokens) = (0, 0);
        for part in sequence.split_whitespace() {
            if let Some(number) = part.strip_prefix('~') {
                let number = number.strip_prefix('~').inspect(|_| crosses = true).unwrap_or(number);
                gap = number.parse()?;
                continue;
            }
            let mut flags = Vec::new();
            let mut names = part;
            loop {
                let (flag, rest) = if let Some(rest) = names.strip_prefix("^^") {
                    ("LINE_START", rest)
                } else if let Some(rest) = names.strip_prefix('^') {
                    ("CLAUSE_START", rest)
                } else if let Some(rest) = names.strip_prefix('+') {
                    ("NOT_NEGATED", rest)
                } else if let Some(rest) = names.strip_prefix('(') {
                    ("OPENED", rest)
                } else if let Some(rest) = names.strip_suffix(':') {
                    ("COLON", rest)
                } else if let Some(rest) = names.strip_suffix(')') {
                    ("CLOSED", rest)
                } else if let Some(rest) = names.strip_suffix('"') {
                    ("KEY", rest)
                } else {
                    break;
                };
                flags.push(flag);
                names = rest;
            }
            let indices = names.split('|').map(|name| self.index(name)).collect::<Result<Vec<_>, _>>()?;
            let flags = if flags.is_empty() { "0".to_owned() } else { flags.join(" | ") };
            write!(out, "Element {{ concepts: &{indices:?}, gap: {gap}, crosses: {crosses}, flags: {flags} }}, ")?;
            tokens += 1 + if count == 0 { 0 } else { gap };
            count += 1;
            (gap, crosses) = (0, false);
        }
        if !(1..=MAX_PATTERN_ELEMENTS).contains(&count) || tokens > MAX_PATTERN_TOKENS {
            return Err(format!("{count} elements over {tokens} tokens").into());
        }
        Ok(out)
    }
}
