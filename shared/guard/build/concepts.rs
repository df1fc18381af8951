//! The concepts of `rules.toml` and the notation of its patterns.

use std::collections::BTreeMap;
use std::error::Error;

/// Longest pattern in tokens, gaps included; the matcher's blocks overlap by this much.
const MAX_PATTERN_TOKENS: usize = 48;
/// Most elements of one pattern.
const MAX_PATTERN_ELEMENTS: usize = 8;
/// Most concepts; the matcher clears a word for each in every block.
const MAX_CONCEPTS: usize = 512;

/// The named concepts, and one more for each quoted word of a pattern.
pub struct Concepts {
    indices: BTreeMap<String, usize>,
    words: Vec<Vec<String>>,
}

impl Concepts {
    /// Takes the named concepts and resolves their `@name` entries.
    pub fn new(named: &BTreeMap<String, Vec<String>>) -> Result<Self, Box<dyn Error>> {
        let mut concepts = Self {
            indices: BTreeMap::new(),
            words: Vec::new(),
        };
        for (name, words) in named {
            let mut all = Vec::new();
            for word in words {
                match word.strip_prefix('@') {
                    None => all.push(word.clone()),
                    Some(other) => all.extend_from_slice(
                        named
                            .get(other)
                            .ok_or_else(|| format!("concept {name}: no concept {other}"))?,
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

    /// The words of each concept, by index.
    pub fn words(&self) -> &[Vec<String>] {
        &self.words
    }

    /// The index of a named concept, or of the concept of a quoted word.
    pub fn index(&mut self, name: &str) -> Result<usize, Box<dyn Error>> {
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

    /// Parses `^ignore ~4 earlier ~3 directions` into the elements of a pattern; the notation is explained
    /// in `rules.toml`.
    pub fn elements(&mut self, sequence: &str) -> Result<Vec<Element>, Box<dyn Error>> {
        let mut elements = Vec::new();
        let (mut gap, mut crosses) = (0, false);
        let mut tokens = 0;
        for part in sequence.split_whitespace() {
            if let Some(number) = part.strip_prefix('~') {
                let number = number
                    .strip_prefix('~')
                    .inspect(|_| crosses = true)
                    .unwrap_or(number);
                gap = number.parse()?;
                continue;
            }
            let (flags, names) = flags(part);
            let concepts = names
                .split('|')
                .map(|name| self.index(name))
                .collect::<Result<Vec<_>, _>>()?;
            tokens += 1 + if elements.is_empty() { 0 } else { gap };
            elements.push(Element {
                concepts,
                gap,
                crosses,
                flags,
            });
            (gap, crosses) = (0, false);
        }
        if !(1..=MAX_PATTERN_ELEMENTS).contains(&elements.len()) || tokens > MAX_PATTERN_TOKENS {
            let count = elements.len();
            return Err(format!("{count} elements over {tokens} tokens").into());
        }
        Ok(elements)
    }
}

/// One place of a pattern.
pub struct Element {
    pub concepts: Vec<usize>,
    gap: usize,
    crosses: bool,
    flags: Vec<&'static str>,
}

impl Element {
    /// The element as Rust source, with the lexemes of its concepts.
    pub fn source(&self, lexemes: &[u64]) -> String {
        let Self { gap, crosses, .. } = self;
        let flags = if self.flags.is_empty() {
            "0".to_owned()
        } else {
            self.flags.join(" | ")
        };
        format!(
            "Element {{ lexemes: LexemeSet({lexemes:?}), gap: {gap}, crosses: {crosses}, flags: {flags} }}"
        )
    }
}

/// The flags around the names of an element, and the names.
fn flags(element: &str) -> (Vec<&'static str>, &str) {
    let mut flags = Vec::new();
    let mut names = element;
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
            return (flags, names);
        };
        flags.push(flag);
        names = rest;
    }
}
