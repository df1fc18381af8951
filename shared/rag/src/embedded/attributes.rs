//! Metadata as terms of the index, so that filters need no column per field.
//!
//! A value becomes one term `field NUL kind value`, a text that reads as a number two. Terms of one
//! field and one kind stand together in the term dictionary and in the order of their values, so that a
//! comparison is a range of terms. What is equal, less and greater is what [`crate::filter_check`]
//! says; a property test holds the two together.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde_json::Value;

use crate::backend::Comparison;

/// The metadata name under which [`crate::backend::Filters::domain`] looks.
pub const DOMAIN: &str = "domain";
/// The metadata name under which [`crate::backend::Filters::document_type`] looks.
pub const DOCUMENT_TYPE: &str = "document_type";
/// Another name for [`DOCUMENT_TYPE`], used by documents that do not have that one.
const DOC_TYPE: &str = "doc_type";

/// Longer texts are compared by their beginning, of at most this many bytes.
const TEXT_MAX_BYTES: usize = 1024;

/// What a term says about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Boolean,
    Number,
    /// A text that is the number written out: it is compared with numbers as one, with texts as text.
    NumberInText,
    Text,
}

impl Kind {
    /// Neighbours differ by two, so that the byte between them ends a kind's terms.
    const fn tag(self) -> char {
        match self {
            Self::Boolean => 'b',
            Self::Number => 'd',
            Self::NumberInText => 'f',
            Self::Text => 'h',
        }
    }

    const fn end(self) -> char {
        match self {
            Self::Boolean => 'c',
            Self::Number => 'e',
            Self::NumberInText => 'g',
            Self::Text => 'i',
        }
    }
}

/// Which terms of a document satisfy a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// This one.
    Term(String),
    /// Any between these.
    Range(Bound<String>, Bound<String>),
}

/// The terms for everything that a document says of itself. Null, objects and lists in lists have none.
#[must_use]
pub fn terms_of_metadata(metadata: &BTreeMap<String, Value>) -> Vec<String> {
    let mut terms = Vec::new();
    for (name, value) in metadata {
        if name == DOC_TYPE && metadata.contains_key(DOCUMENT_TYPE) {
            continue;
        }
        match value {
            Value::Array(values) => {
                terms.extend(values.iter().flat_map(|value| terms_of_value(name, value)));
            }
            value => terms.extend(terms_of_value(name, value)),
        }
    }
    terms
}

fn terms_of_value(field: &str, value: &Value) -> Vec<String> {
    match value {
        Value::Bool(truth) => vec![term(field, Kind::Boolean, &truth.to_string())],
        Value::Number(_) => number(value)
            .map(|number| term(field, Kind::Number, &sortable(number)))
            .into_iter()
            .collect(),
        Value::String(text) => {
            let as_number =
                number(value).map(|number| term(field, Kind::NumberInText, &sortable(number)));
            let as_text = term(field, Kind::Text, beginning(text));
            as_number.into_iter().chain([as_text]).collect()
        }
        Value::Null | Value::Array(_) | Value::Object(_) => Vec::new(),
    }
}

/// What a document must have for `comparison` to hold; for [`Comparison::NoneOf`], what it must not
/// have. Empty when no value can be meant.
#[must_use]
pub fn wanted(field: &str, comparison: &Comparison) -> Vec<Wanted> {
    match comparison {
        Comparison::OneOf(values) | Comparison::NoneOf(values) => values
            .iter()
            .flat_map(|value| equal_terms(field, value))
            .map(Wanted::Term)
            .collect(),
        Comparison::Greater(bound) => above(field, bound, Bound::Excluded),
        Comparison::GreaterOrEqual(bound) => above(field, bound, Bound::Included),
        Comparison::Less(bound) => below(field, bound, Bound::Excluded),
        Comparison::LessOrEqual(bound) => below(field, bound, Bound::Included),
    }
}

fn equal_terms(field: &str, value: &Value) -> Vec<String> {
    match value {
        Value::Bool(truth) => {
            let text = truth.to_string();
            vec![
                term(field, Kind::Boolean, &text),
                term(field, Kind::Text, &text),
            ]
        }
        Value::String(text) if matches!(text.as_str(), "true" | "false") => vec![
            term(field, Kind::Boolean, text),
            term(field, Kind::Text, text),
        ],
        value => bounds(value)
            .into_iter()
            .map(|(kind, bound)| term(field, kind, &bound))
            .collect(),
    }
}

fn above(field: &str, value: &Value, edge: fn(String) -> Bound<String>) -> Vec<Wanted> {
    bounds(value)
        .into_iter()
        .map(|(kind, bound)| {
            let end = prefix(field, kind.end());
            Wanted::Range(edge(term(field, kind, &bound)), Bound::Excluded(end))
        })
        .collect()
}

fn below(field: &str, value: &Value, edge: fn(String) -> Bound<String>) -> Vec<Wanted> {
    bounds(value)
        .into_iter()
        .map(|(kind, bound)| {
            let start = prefix(field, kind.tag());
            Wanted::Range(Bound::Included(start), edge(term(field, kind, &bound)))
        })
        .collect()
}

/// What `value` is compared with: which kinds of terms, and where in each of them it would stand.
fn bounds(value: &Value) -> Vec<(Kind, String)> {
    let as_number = number(value).map(sortable);
    match value {
        Value::String(text) => as_number
            .map(|number| (Kind::Number, number))
            .into_iter()
            .chain([(Kind::Text, beginning(text).to_owned())])
            .collect(),
        Value::Number(_) => as_number
            .into_iter()
            .flat_map(|number| [(Kind::Number, number.clone()), (Kind::NumberInText, number)])
            .collect(),
        _ => Vec::new(),
    }
}

fn term(field: &str, kind: Kind, value: &str) -> String {
    prefix(field, kind.tag()) + value
}

/// NUL and not `=` behind the name: nobody writes one into a name, so that no pair of name and value
/// passes for another one.
fn prefix(field: &str, tag: char) -> String {
    let field = if field == DOC_TYPE {
        DOCUMENT_TYPE
    } else {
        field
    };
    format!("{field}\0{tag}")
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|number| number.is_finite())
}

/// Sixteen hexadecimal digits that are in the order of the numbers (IEEE 754, section 5.10): the bits
/// of a negative number are turned over, and of a positive one only the sign.
fn sortable(number: f64) -> String {
    const SIGN: u64 = 1 << 63;
    // Zero has two signs and one place.
    let bits = if number == 0.0 { 0 } else { number.to_bits() };
    let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
    format!("{ordered:016x}")
}

fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_MAX_BYTES)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn terms(metadata: Value) -> Vec<String> {
        terms_of_metadata(&serde_json::from_value(metadata).unwrap())
    }

    #[test]
    fn lists_give_a_term_each_and_what_has_no_value_gives_none() {
        assert_eq!(
            terms(json!({"tags": ["a", true], "x": {"a": 1}, "y": null, "z": [[1]]})),
            ["tags\0ha", "tags\0btrue"]
        );
    }

    #[test]
    fn no_name_and_value_pass_for_another_pair() {
        assert_ne!(terms(json!({"a=b": "c"})), terms(json!({"a": "b=c"})));
    }

    #[test]
    fn the_other_name_of_the_document_type_counts_only_where_the_first_is_absent() {
        assert_eq!(
            terms(json!({"doc_type": "faq"})),
            terms(json!({"document_type": "faq"}))
        );
        assert_eq!(
            terms(json!({"doc_type": "faq", "document_type": "policy"})),
            terms(json!({"document_type": "policy"}))
        );
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = json!({ "x": "税".repeat(1000) });
        assert!(terms(long)[0].len() <= TEXT_MAX_BYTES + 3);
    }

    proptest! {
        #[test]
        fn numbers_are_in_the_order_of_their_terms(a: f64, b: f64) {
            prop_assume!(a.is_finite() && b.is_finite());
            prop_assert_eq!(a.partial_cmp(&b), Some(sortable(a).cmp(&sortable(b))));
        }
    }
}
