//! Reads a tool's arguments: tolerant where models are known to slip (`"3"` and `3.0` for a whole
//! number, one string for a list of one, JSON text for an object), strict in everything else. All
//! problems are collected, so that a model can mend its call in one go.

use raglan_texts::{Language, text};
use serde_json::{Map, Value};

/// What is wrong with the arguments, in words that the caller's model can act on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the arguments are not valid: {}", .problems.join(" "))]
pub struct InvalidArguments {
    /// One sentence for each problem, in the language of the call.
    pub problems: Vec<String>,
}

impl InvalidArguments {
    /// What the caller is told.
    #[must_use]
    pub fn told(&self, language: Language) -> String {
        text!(
            language,
            "The arguments are not valid. {problems}",
            problems = self.problems.join(" ")
        )
    }
}

/// A reader of one call's arguments. Ask for every field, then call [`Arguments::finish`]: fields
/// that nobody asked for are problems too.
#[derive(Debug)]
pub struct Arguments<'a> {
    values: &'a Map<String, Value>,
    path: &'static str,
    language: Language,
    known: Vec<&'static str>,
    problems: Vec<String>,
}

impl<'a> Arguments<'a> {
    /// Begins to read. `path` is put before the names in problems: `""` or `"filters."`.
    #[must_use]
    pub const fn new(
        values: &'a Map<String, Value>,
        path: &'static str,
        language: Language,
    ) -> Self {
        Self {
            values,
            path,
            language,
            known: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// A text that has to be there and must not be blank.
    pub fn required_text(&mut self, name: &'static str, max_chars: usize) -> String {
        match self.optional_text(name, max_chars) {
            Some(text) if !text.trim().is_empty() => text,
            Some(_) => {
                self.must_not_be_empty(name);
                String::new()
            }
            None => {
                if self.value(name).is_none() {
                    let name = self.path_to(name);
                    self.problem(text!(self.language, "`{name}` is required.", name));
                }
                String::new()
            }
        }
    }

    /// A text that may be left out (or be `null`).
    pub fn optional_text(&mut self, name: &'static str, max_chars: usize) -> Option<String> {
        self.known.push(name);
        match self.value(name)? {
            Value::String(text) if text.chars().nth(max_chars).is_some() => {
                self.problem(text!(
                    self.language,
                    "`{name}` must not be longer than {max_chars} characters.",
                    name = self.path_to(name),
                    max_chars
                ));
                None
            }
            Value::String(text) => Some(text.clone()),
            other => {
                self.problem(text!(
                    self.language,
                    "`{name}` must be a string, not {kind}.",
                    name = self.path_to(name),
                    kind = kind(other, self.language)
                ));
                None
            }
        }
    }

    /// One text or a list of texts; left out, `null` and `[]` are the empty list.
    pub fn texts(&mut self, name: &'static str, max_items: usize, max_chars: usize) -> Vec<String> {
        self.known.push(name);
        let Some(value) = self.value(name) else {
            return Vec::new();
        };
        let mut texts = Vec::new();
        for item in items_of(value).iter() {
            match item {
                Value::String(text)
                    if !text.is_empty() && text.chars().nth(max_chars).is_none() =>
                {
                    texts.push(text.clone());
                }
                _ => {
                    self.problem(text!(
                        self.language,
                        "`{name}` must be a string of 1 to {max_chars} characters, or a list of such \
                         strings.",
                        name = self.path_to(name),
                        max_chars
                    ));
                    return Vec::new();
                }
            }
        }
        if texts.len() > max_items {
            self.problem(text!(
                self.language,
                "`{name}` must not have more than {max_items} items.",
                name = self.path_to(name),
                max_items
            ));
        }
        texts
    }

    /// A whole number of at least `least`: `3`, `3.0` and `"3"` are the same.
    pub fn whole_number(&mut self, name: &'static str, least: u64) -> Option<u64> {
        self.known.push(name);
        let value = self.value(name)?;
        let number = as_number(value).filter(|number| number.fract() == 0.0);
        match number {
            // 2^53: beyond it a float does not hold every whole number; callers clamp far below.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "whole, not below `least`, and brought under 2^53"
            )]
            Some(number) if number >= least as f64 => {
                Some(number.min(9_007_199_254_740_992.0) as u64)
            }
            _ => {
                self.problem(text!(
                    self.language,
                    "`{name}` must be a whole number of at least {least}.",
                    name = self.path_to(name),
                    least
                ));
                None
            }
        }
    }

    /// A number.
    pub fn number(&mut self, name: &'static str) -> Option<f64> {
        self.known.push(name);
        let value = self.value(name)?;
        let number = as_number(value);
        if number.is_none() {
            self.problem(text!(
                self.language,
                "`{name}` must be a number, not {kind}.",
                name = self.path_to(name),
                kind = kind(value, self.language)
            ));
        }
        number
    }

    /// An object, or JSON text of one.
    pub fn object(&mut self, name: &'static str) -> Map<String, Value> {
        self.known.push(name);
        match self.value(name) {
            None => Map::new(),
            Some(Value::Object(object)) => object.clone(),
            Some(Value::String(text)) if text.trim().is_empty() => Map::new(),
            Some(value) => {
                let parsed = value
                    .as_str()
                    .and_then(|text| serde_json::from_str(text).ok());
                parsed.unwrap_or_else(|| {
                    self.problem(text!(
                        self.language,
                        "`{name}` must be an object, not {kind}.",
                        name = self.path_to(name),
                        kind = kind(value, self.language)
                    ));
                    Map::new()
                })
            }
        }
    }

    /// Notes a problem: a whole sentence in [`Arguments::language`].
    pub fn problem(&mut self, sentence: String) {
        self.problems.push(sentence);
    }

    /// Notes that a text is there and blank.
    pub fn must_not_be_empty(&mut self, name: &str) {
        let name = self.path_to(name);
        self.problem(text!(self.language, "`{name}` must not be empty.", name));
    }

    /// A field's name as the caller knows it, with what it is nested in.
    #[must_use]
    pub fn path_to(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// The language of problems.
    #[must_use]
    pub const fn language(&self) -> Language {
        self.language
    }

    /// Takes over the problems of a nested reader.
    pub fn nested(&mut self, result: Result<(), InvalidArguments>) {
        if let Err(error) = result {
            self.problems.extend(error.problems);
        }
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`InvalidArguments`] with everything that is wrong, unknown fields included.
    pub fn finish(mut self) -> Result<(), InvalidArguments> {
        let unknown: Vec<&String> = self
            .values
            .keys()
            .filter(|name| !self.known.contains(&name.as_str()))
            .collect();
        for name in unknown.into_iter().take(5) {
            let shown: String = name.chars().take(40).collect();
            self.problems.push(text!(
                self.language,
                "`{name}` is not known here (known: {known}).",
                name = self.path_to(&shown),
                known = as_code(&self.known)
            ));
        }
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(InvalidArguments {
                problems: self.problems,
            })
        }
    }

    /// The value, where `null` is the same as absent.
    fn value(&self, name: &str) -> Option<&'a Value> {
        self.values.get(name).filter(|value| !value.is_null())
    }
}

/// The items of a list, of JSON text of a list, or the single value itself.
fn items_of(value: &Value) -> std::borrow::Cow<'_, [Value]> {
    match value {
        Value::Array(items) => items.as_slice().into(),
        Value::String(text) if text.trim_start().starts_with('[') => {
            match serde_json::from_str::<Vec<Value>>(text) {
                Ok(items) => items.into(),
                Err(_) => std::slice::from_ref(value).into(),
            }
        }
        other => std::slice::from_ref(other).into(),
    }
}

fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|number| number.is_finite())
}

/// Names as a list of code: `` `a`, `b` ``.
pub fn as_code(names: &[&str]) -> String {
    format!("`{}`", names.join("`, `"))
}

fn kind(value: &Value, language: Language) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => text!(language, "a boolean"),
        Value::Number(_) => text!(language, "a number"),
        Value::String(_) => text!(language, "a string"),
        Value::Array(_) => text!(language, "a list"),
        Value::Object(_) => text!(language, "an object"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(object) => object,
            other => panic!("{other} is no object"),
        }
    }

    #[test]
    fn a_whole_number_may_be_written_as_text_or_with_a_zero_fraction() {
        for (value, expected) in [
            (json!(3), Some(3)),
            (json!("3"), Some(3)),
            (json!(3.0), Some(3)),
            (json!(" 3.0 "), Some(3)),
            (json!(1e300), Some(9_007_199_254_740_992)),
            (json!(null), None),
        ] {
            let values = object(json!({ "top_k": value }));
            let mut arguments = Arguments::new(&values, "", Language::English);
            assert_eq!(arguments.whole_number("top_k", 1), expected, "{value}");
            assert_eq!(arguments.finish(), Ok(()), "{value}");
        }
    }

    #[test]
    fn what_is_no_whole_number_is_named() {
        for value in [
            json!("abc"),
            json!(2.5),
            json!(-1),
            json!(0),
            json!(true),
            json!([1]),
            json!("NaN"),
        ] {
            let values = object(json!({ "top_k": value }));
            let mut arguments = Arguments::new(&values, "", Language::English);
            assert_eq!(arguments.whole_number("top_k", 1), None, "{value}");
            assert_eq!(
                arguments.finish().unwrap_err().problems,
                ["`top_k` must be a whole number of at least 1."],
                "{value}"
            );
        }
    }

    #[test]
    fn one_text_is_a_list_of_one() {
        for value in [json!("a"), json!(["a"]), json!("[\"a\"]")] {
            let values = object(json!({ "kb_id": value }));
            let mut arguments = Arguments::new(&values, "", Language::English);
            assert_eq!(arguments.texts("kb_id", 5, 64), ["a"], "{value}");
            assert_eq!(arguments.finish(), Ok(()));
        }
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let values = object(json!({ "query": 1, "kb_id": [1], "kb_ids": "x" }));
        let mut arguments = Arguments::new(&values, "", Language::English);
        arguments.required_text("query", 10);
        arguments.texts("kb_id", 5, 64);
        arguments.required_text("question", 10);
        insta::assert_snapshot!(arguments.finish().unwrap_err().told(Language::English), @"The arguments are not valid. `query` must be a string, not a number. `kb_id` must be a string of 1 to 64 characters, or a list of such strings. `question` is required. `kb_ids` is not known here (known: `query`, `kb_id`, `question`).");
    }

    proptest! {
        #[test]
        fn no_json_makes_the_reader_panic(text in "[\\[\\]{}\":,0-9a-z\\\\.e+-]{0,40}", number in any::<f64>()) {
            for value in [serde_json::from_str(&text).unwrap_or(Value::Null), json!(text), json!(number)] {
                let values = object(json!({ "a": value }));
                let mut arguments = Arguments::new(&values, "", Language::English);
                arguments.whole_number("a", 1);
                arguments.number("a");
                arguments.texts("a", 3, 10);
                arguments.object("a");
                arguments.required_text("a", 3);
                let _ = arguments.finish();
            }
        }
    }
}
