//! YAML front matter: a block between two lines `---` at the start of a Markdown file.

use std::collections::BTreeMap;

use raglan_core::clock::Timestamp;
use raglan_texts::process_language;
use saphyr::{LoadableYamlNode as _, Scalar, Yaml};
use serde_json::Value;

use super::ReadError;

/// What front matter says.
#[derive(Debug, Default, PartialEq)]
pub struct FrontMatter {
    /// `title`.
    pub title: Option<String>,
    /// `uri`.
    pub uri: Option<String>,
    /// `updated_at`.
    pub updated_at: Option<Timestamp>,
    /// Everything else that is a string, a number, a boolean or a list of them.
    pub metadata: BTreeMap<String, Value>,
}

/// Front matter and the text after it. A text that starts with a mere rule (`---`) has none.
///
/// # Errors
/// [`ReadError::FrontMatter`] and [`ReadError::FrontMatterField`].
pub fn parse(text: &str) -> Result<(FrontMatter, &str), ReadError> {
    let Some((yaml, rest)) = cut(text) else {
        return Ok((FrontMatter::default(), text));
    };
    let documents =
        Yaml::load_from_str(yaml).map_err(|error| ReadError::FrontMatter(error.to_string()))?;
    match documents.first() {
        Some(Yaml::Mapping(fields)) => {
            let mut front_matter = FrontMatter::default();
            for (name, value) in fields {
                if let Some(name) = name.as_str() {
                    front_matter.set(name, value)?;
                }
            }
            Ok((front_matter, rest))
        }
        None => Ok((FrontMatter::default(), rest)),
        Some(_) => Ok((FrontMatter::default(), text)),
    }
}

/// The YAML between the two lines and the text after them.
fn cut(text: &str) -> Option<(&str, &str)> {
    let after = text.strip_prefix("---")?;
    let first_line_end = after.find('\n')?;
    if !after[..first_line_end].trim().is_empty() {
        return None;
    }
    let body = &after[first_line_end + 1..];
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        if matches!(line.trim_end(), "---" | "...") {
            return Some((&body[..at], &body[at + line.len()..]));
        }
        at += line.len();
    }
    None
}

impl FrontMatter {
    fn set(&mut self, name: &str, value: &Yaml<'_>) -> Result<(), ReadError> {
        let Some(value) = json(value) else {
            return Ok(());
        };
        match name {
            "title" => self.title = Some(text("title", &value)?),
            "uri" => self.uri = Some(text("uri", &value)?),
            "updated_at" => {
                let moment = Timestamp::parse(&text("updated_at", &value)?).map_err(|_| {
                    let expected = raglan_texts::text!(
                        process_language(),
                        "expected a date (2026-11-30) or an RFC 3339 date-time (2026-11-30T08:15:00Z)"
                    );
                    ReadError::FrontMatterField {
                        field: "updated_at",
                        reason: expected.to_owned(),
                    }
                })?;
                self.updated_at = Some(moment);
            }
            _ => {
                self.metadata.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }
}

fn text(field: &'static str, value: &Value) -> Result<String, ReadError> {
    match value {
        Value::String(text) => Ok(text.trim().to_owned()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(ReadError::FrontMatterField {
            field,
            reason: raglan_texts::text!(process_language(), "expected a text").to_owned(),
        }),
    }
}

/// A scalar or a list of scalars; `None` for null, for what is nested deeper and for numbers that
/// JSON does not have.
fn json(value: &Yaml<'_>) -> Option<Value> {
    match value {
        Yaml::Value(Scalar::String(text)) => Some(Value::String(text.to_string())),
        Yaml::Value(Scalar::Boolean(flag)) => Some(Value::Bool(*flag)),
        Yaml::Value(Scalar::Integer(number)) => Some(Value::from(*number)),
        Yaml::Value(Scalar::FloatingPoint(number)) => {
            serde_json::Number::from_f64(number.into_inner()).map(Value::Number)
        }
        Yaml::Sequence(values) => {
            let scalars = values
                .iter()
                .filter(|value| !value.is_sequence())
                .filter_map(json);
            Some(Value::Array(scalars.collect()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn known_fields_are_taken_out_and_other_scalars_are_metadata() {
        let text = "---\ntitle: 差旅报销\ndomain: finance\nupdated_at: 2026-03-01\nuri: https://x/y\n\
                    year: 2026\ndraft: false\ntags: [a, 2]\nnested: {a: 1}\nnothing:\n---\nText\n";
        let (front_matter, rest) = parse(text).unwrap();
        assert_eq!(rest, "Text\n");
        assert_eq!(front_matter.title.as_deref(), Some("差旅报销"));
        assert_eq!(front_matter.uri.as_deref(), Some("https://x/y"));
        assert_eq!(front_matter.updated_at, Timestamp::parse("2026-03-01").ok());
        let metadata = json!({"domain": "finance", "year": 2026, "draft": false, "tags": ["a", 2]});
        assert_eq!(
            serde_json::to_value(front_matter.metadata).unwrap(),
            metadata
        );
    }

    #[test]
    fn a_rule_at_the_start_is_no_front_matter() {
        for text in [
            "---\nJust a line.\n---\nMore",
            "---\nno end",
            "--- a\nb: c\n---\n",
            "text",
        ] {
            assert_eq!(
                parse(text).unwrap(),
                (FrontMatter::default(), text),
                "{text}"
            );
        }
    }

    #[test]
    fn broken_yaml_and_a_date_that_is_none_are_named() {
        assert!(matches!(
            parse("---\na: [1\n---\n"),
            Err(ReadError::FrontMatter(_))
        ));
        let error = parse("---\nupdated_at: last week\n---\n").unwrap_err();
        assert!(error.to_string().contains("updated_at"), "{error}");
    }

    #[test]
    fn nested_aliases_do_not_exhaust_memory() {
        let mut yaml = String::from("---\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..12 {
            let list = vec![format!("*a{}", n - 1); 10].join(", ");
            writeln!(yaml, "a{n}: &a{n} [{list}]").unwrap();
        }
        yaml.push_str("---\n");
        assert!(matches!(parse(&yaml), Err(ReadError::FrontMatter(_))));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(---\n)?[a-z:\\-\\[\\]{}&*!|>'\"# \n]{0,60}(---\n)?.{0,10}") {
            let _ = parse(&text);
        }
    }
}
