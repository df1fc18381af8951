//! The texts that stand in our sources: which go through the catalogue and which do not.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A string literal that reads like a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    /// The file, from the repository's root.
    pub file: String,
    /// What stands there.
    pub text: String,
    /// Whether it is given to `text!`.
    pub in_catalogue: bool,
    /// Whether it is how an error tells itself (`#[error("…")]`).
    pub in_error_attribute: bool,
}

/// The texts of every source file below these folders, tests left out.
pub fn sentences(folders: &[&str]) -> Vec<Sentence> {
    let mut files = Vec::new();
    for folder in folders {
        source_files(&root().join(folder), &mut files);
    }
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let source = fs::read_to_string(&file).unwrap();
        let tokens: TokenStream = source.parse().unwrap();
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let mut reader = Reader {
            file: name,
            found: &mut found,
        };
        reader.read(tokens, Place::Code);
    }
    found
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn source_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap_or_default();
        if name == "tests" || name == "testing" {
            continue;
        }
        if path.is_dir() {
            source_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Code,
    ErrorAttribute,
}

struct Reader<'a> {
    file: String,
    found: &'a mut Vec<Sentence>,
}

impl Reader<'_> {
    fn read(&mut self, tokens: TokenStream, place: Place) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = self.read_one(&tokens, at, place);
        }
    }

    /// Reads what begins at `at`, and gives where it ends.
    fn read_one(&mut self, tokens: &[TokenTree], at: usize, place: Place) -> usize {
        let attribute = group(tokens, at + 1).or_else(|| group(tokens, at + 2));
        if let (true, Some(attribute)) = (is_punct(tokens, at, '#'), attribute)
            && attribute.delimiter() == Delimiter::Bracket
        {
            let after = at
                + if group(tokens, at + 1).is_some() {
                    2
                } else {
                    3
                };
            let inner: Vec<TokenTree> = attribute.stream().into_iter().collect();
            return match ident(&inner, 0).as_deref() {
                Some("cfg") if attribute.stream().to_string().contains("test") => {
                    end_of_item(tokens, after)
                }
                Some("error") => {
                    self.read(attribute.stream(), Place::ErrorAttribute);
                    after
                }
                _ => after,
            };
        }
        if let (Some(name), true, Some(arguments)) = (
            ident(tokens, at),
            is_punct(tokens, at + 1, '!'),
            group(tokens, at + 2),
        ) {
            let is_log = at >= 3 && ident(tokens, at - 3).as_deref() == Some("tracing");
            match name.as_str() {
                "text" => self.read_text(arguments, place),
                _ if is_log => {}
                _ => self.read(arguments.stream(), place),
            }
            return at + 3;
        }
        match &tokens[at] {
            TokenTree::Group(group) => self.read(group.stream(), place),
            TokenTree::Literal(_) => {
                if let Some(text) = string(tokens, at).filter(|text| is_prose(text)) {
                    self.note(text, false, place);
                }
            }
            _ => {}
        }
        at + 1
    }

    /// `text!("…", …)` or `text!(language, "…", …)`.
    fn read_text(&mut self, arguments: &Group, place: Place) {
        let tokens: Vec<TokenTree> = arguments.stream().into_iter().collect();
        let literal = (0..tokens.len()).find(|at| {
            let begins = *at == 0 || is_punct(&tokens, at - 1, ',');
            begins && string(&tokens, *at).is_some()
        });
        let Some(literal) = literal else {
            // A wrapper that hands its arguments on.
            return;
        };
        if let Some(text) = string(&tokens, literal) {
            self.note(text, true, place);
        }
        let others = [&tokens[..literal], &tokens[literal + 1..]].concat();
        self.read(others.into_iter().collect(), place);
    }

    fn note(&mut self, text: String, in_catalogue: bool, place: Place) {
        self.found.push(Sentence {
            file: self.file.clone(),
            text,
            in_catalogue,
            in_error_attribute: place == Place::ErrorAttribute,
        });
    }
}

/// Past the item that an attribute belongs to: its block or its semicolon.
fn end_of_item(tokens: &[TokenTree], from: usize) -> usize {
    let ends = |at: &usize| {
        is_punct(tokens, *at, ';')
            || group(tokens, *at).is_some_and(|group| group.delimiter() == Delimiter::Brace)
    };
    (from..tokens.len())
        .find(ends)
        .map_or(tokens.len(), |end| end + 1)
}

fn group(tokens: &[TokenTree], at: usize) -> Option<&Group> {
    match tokens.get(at) {
        Some(TokenTree::Group(group)) => Some(group),
        _ => None,
    }
}

fn ident(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at) {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

fn is_punct(tokens: &[TokenTree], at: usize, wanted: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn string(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at) {
        Some(TokenTree::Literal(literal)) => {
            let literal: syn::LitStr = syn::parse_str(&literal.to_string()).ok()?;
            Some(literal.value())
        }
        _ => None,
    }
}

/// Whether two words follow each other, the second in small letters, as in every sentence and in no
/// identifier, header or path.
fn is_prose(text: &str) -> bool {
    let marks = [',', ';', ':', '.', '?', '!', '(', ')', '"', '\''];
    let words: Vec<&str> = text
        .split_whitespace()
        .map(|word| word.trim_matches(marks))
        .collect();
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    words.windows(2).any(|pair| {
        is_word(pair[0])
            && is_word(pair[1])
            && pair[1].len() > 1
            && pair[1].starts_with(|c: char| c.is_ascii_lowercase())
    })
}

#[test]
fn the_reader_tells_texts_apart() {
    let source = r#"
        /// A comment is none.
        #[error("an error tells this {0}")]
        struct A;
        fn a() {
            say(text!("said in the language of the process"));
            json!({ "a": { "description": text!(language, "said in {one} language", one = f("inner bare one")) } });
            tracing::error!(%a, "nobody sees this one");
            let header = "content-type, accept";
            bail!("a bare one, too");
        }
        #[cfg(test)]
        mod tests { fn b() { panic!("in a test nobody minds"); } }
    "#;
    let mut found = Vec::new();
    let mut reader = Reader {
        file: String::new(),
        found: &mut found,
    };
    reader.read(source.parse().unwrap(), Place::Code);
    let told: Vec<(&str, bool, bool)> = found
        .iter()
        .map(|s| (s.text.as_str(), s.in_catalogue, s.in_error_attribute))
        .collect();
    assert_eq!(
        told,
        [
            ("an error tells this {0}", false, true),
            ("said in the language of the process", true, false),
            ("said in {one} language", true, false),
            ("inner bare one", false, false),
            ("a bare one, too", false, false),
        ]
    );
}
