//! Reads engines' replies: what the interface promises is asked for, what may be missing is not missed.

use raglan_rag::backend::BackendError;
use serde_json::Value;

/// The list at `pointer` (RFC 6901).
///
/// # Errors
/// [`BackendError::UnreadableAnswer`] when there is none.
pub fn list<'a>(reply: &'a Value, pointer: &str) -> Result<&'a [Value], BackendError> {
    let list = reply.pointer(pointer).and_then(Value::as_array);
    list.map(Vec::as_slice)
        .ok_or_else(|| BackendError::UnreadableAnswer(format!("no list at {pointer}")))
}

/// A text, or a number as text; empty when there is neither.
pub fn text(value: &Value, name: &str) -> String {
    match value.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// A text that is not empty.
pub fn some_text(value: &Value, name: &str) -> Option<String> {
    Some(text(value, name)).filter(|text| !text.trim().is_empty())
}

/// A whole number.
pub fn count(value: &Value, name: &str) -> Option<u64> {
    value.get(name)?.as_u64()
}

/// A score. An engine that gives none has not said that the passage is relevant: it is the lowest one.
pub fn score(value: &Value, name: &str) -> f32 {
    let number = match value.get(name) {
        // Parsed from the text, which is the nearest number of this width.
        Some(Value::Number(number)) => number.to_string().parse().ok(),
        Some(Value::String(text)) => text.trim().parse().ok(),
        _ => None,
    };
    number
        .filter(|number: &f32| number.is_finite())
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_score_is_a_finite_number_whatever_the_engine_writes() {
        for (written, expected) in [
            (json!(0.5), 0.5),
            (json!("0.25"), 0.25),
            (json!(1e300), 0.0),
            (json!("NaN"), 0.0),
            (json!(null), 0.0),
            (json!([1]), 0.0),
        ] {
            let score = score(&json!({ "score": written }), "score");
            assert!((score - expected).abs() < f32::EPSILON, "{written}");
        }
        assert!(score(&json!("no object"), "score").abs() < f32::EPSILON);
    }

    #[test]
    fn a_list_that_is_missing_is_an_unreadable_answer_and_not_an_empty_one() {
        for reply in [
            json!({}),
            json!({ "data": null }),
            json!({ "data": {} }),
            json!([]),
        ] {
            let error = list(&reply, "/data").unwrap_err();
            assert!(matches!(error, BackendError::UnreadableAnswer(_)));
        }
        assert!(list(&json!({ "data": [] }), "/data").unwrap().is_empty());
    }
}
