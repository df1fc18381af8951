//! One text for one JSON value, whatever the order of its fields and the spelling of its numbers.
//!
//! In the manner of RFC 8785: no white space, the names of an object in the order of their bytes, texts
//! escaped as `serde_json` does. Numbers follow what a table returns: DynamoDB keeps `1.0` as `1`, so a
//! number that is whole is written as a whole number.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

/// Whole numbers of greater size do not all exist as `f64`.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The canonical text of an object, one field left out.
pub(super) fn object(fields: &Map<String, Value>, without: Option<&str>) -> String {
    let mut text = String::new();
    write_object(fields, without, &mut text);
    text
}

fn write_object(fields: &Map<String, Value>, without: Option<&str>, text: &mut String) {
    let mut sorted: Vec<_> = fields
        .iter()
        .filter(|(name, _)| Some(name.as_str()) != without)
        .collect();
    sorted.sort_unstable_by_key(|(name, _)| name.as_bytes());
    text.push('{');
    for (n, (name, value)) in sorted.into_iter().enumerate() {
        if n > 0 {
            text.push(',');
        }
        write_text(name, text);
        text.push(':');
        write_value(value, text);
    }
    text.push('}');
}

fn write_value(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => write_number(number, text),
        Value::String(string) => write_text(string, text),
        Value::Array(items) => {
            text.push('[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    text.push(',');
                }
                write_value(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => write_object(fields, None, text),
    }
}

fn write_text(string: &str, text: &mut String) {
    text.push_str(&Value::from(string).to_string());
}

fn write_number(number: &Number, text: &mut String) {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT_MAX => {
            // Adding zero makes -0 a 0, as which a table keeps it.
            let _ = write!(text, "{:.0}", float + 0.0);
        }
        _ => text.push_str(&number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn of(value: &Value) -> String {
        object(value.as_object().unwrap(), None)
    }

    #[test]
    fn order_and_spelling_make_no_difference() {
        let one: Value = serde_json::from_str(r#"{"b": 1.0, "a": {"d": -0.0, "c": 1e2}}"#).unwrap();
        let other: Value = serde_json::from_str(r#"{"a":{"c":100,"d":0},"b":1}"#).unwrap();
        assert_eq!(of(&one), of(&other));
        assert_eq!(of(&one), r#"{"a":{"c":100,"d":0},"b":1}"#);
    }

    #[test]
    fn different_values_have_different_texts() {
        let values = [
            json!({"a": 1}),
            json!({"a": "1"}),
            json!({"a": 1.5}),
            json!({"a": [1]}),
            json!({"a": null}),
            json!({}),
            json!({"a": {"b": 1}}),
            json!({"a": "b\":1"}),
        ];
        let texts: std::collections::BTreeSet<_> = values.iter().map(of).collect();
        assert_eq!(texts.len(), values.len());
    }

    proptest! {
        #[test]
        fn the_text_is_json_of_the_same_value(name in ".*", string in ".*", number in any::<i64>()) {
            let value = json!({name: [string, number]});
            prop_assert_eq!(serde_json::from_str::<Value>(&of(&value)).unwrap(), value);
        }
    }
}
