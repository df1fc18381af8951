//! Conditions on metadata in the form that Dify defined and RAGFlow took over: one flat list of
//! `{name, comparison_operator, value}` under one logic.
//!
//! A document without the field satisfies no condition in these engines, not even an exclusion: `ne`
//! and `nin` find less there than [`raglan_rag::backend::Condition`] allows, and never more.

use raglan_core::clock::Timestamp;
use raglan_rag::backend::{BackendError, Comparison, Condition};
use serde_json::{Value, json};

use crate::attributes::operator;

/// What Dify's operators for order take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// Numbers: Dify itself casts the field to a number, and fails on a bound that is a text.
    Numbers,
    /// Numbers, and dates as text with `before` and `after`, as in the external knowledge API.
    NumbersAndDates,
}

/// All of the conditions, in Dify's words.
///
/// # Errors
/// [`BackendError::UnsupportedFilter`]
pub fn dify(conditions: &[Condition], bounds: Bounds) -> Result<Vec<Value>, BackendError> {
    conditions
        .iter()
        .map(|condition| {
            let (operator, value) = dify_comparison(&condition.comparison, bounds)
                .ok_or_else(|| unsupported(condition, ""))?;
            Ok(written(condition, operator, &value))
        })
        .collect()
}

fn dify_comparison(comparison: &Comparison, bounds: Bounds) -> Option<(&'static str, Value)> {
    let texts = |values: &[Value]| -> Value { values.iter().map(as_text).collect() };
    let bound = |sign: &'static str, date: Option<&'static str>, value: &Value| match value {
        Value::Number(_) => Some((sign, value.clone())),
        Value::String(text) => {
            if let Some(number) = as_number(text) {
                return Some((sign, number));
            }
            let is_date = bounds == Bounds::NumbersAndDates && Timestamp::parse(text).is_ok();
            Some((date.filter(|_| is_date)?, value.clone()))
        }
        _ => None,
    };
    match comparison {
        Comparison::OneOf(values) => match values.as_slice() {
            [number @ Value::Number(_)] => Some(("=", number.clone())),
            [value] => Some(("is", as_text(value))),
            several => Some(("in", texts(several))),
        },
        Comparison::NoneOf(values) => match values.as_slice() {
            [number @ Value::Number(_)] => Some(("≠", number.clone())),
            [value] => Some(("is not", as_text(value))),
            several => Some(("not in", texts(several))),
        },
        Comparison::Greater(value) => bound(">", Some("after"), value),
        Comparison::GreaterOrEqual(value) => bound("≥", None, value),
        Comparison::Less(value) => bound("<", Some("before"), value),
        Comparison::LessOrEqual(value) => bound("≤", None, value),
    }
}

/// All of the conditions, as RAGFlow's `metadata_condition`; values are texts there. Its `in` looks for
/// a piece of text, so that several values of one field are asked for as `=` under the logic `or`, which
/// leaves no place for a second condition.
///
/// # Errors
/// [`BackendError::UnsupportedFilter`]
pub fn ragflow(conditions: &[Condition]) -> Result<Value, BackendError> {
    if let [condition] = conditions
        && let Comparison::OneOf(values) = &condition.comparison
    {
        let any_of: Vec<Value> = values
            .iter()
            .map(|value| written(condition, "=", &as_python(value)))
            .collect();
        let logic = if any_of.len() == 1 { "and" } else { "or" };
        return Ok(json!({ "logic": logic, "conditions": any_of }));
    }
    let mut all = Vec::new();
    for condition in conditions {
        let mut add = |sign, value| all.push(written(condition, sign, &as_python(value)));
        match &condition.comparison {
            Comparison::OneOf(values) => match values.as_slice() {
                [value] => add("=", value),
                _ => return Err(unsupported(condition, " beside other filters")),
            },
            Comparison::NoneOf(values) => values.iter().for_each(|value| add("≠", value)),
            Comparison::Greater(value) => add(">", value),
            Comparison::GreaterOrEqual(value) => add("≥", value),
            Comparison::Less(value) => add("<", value),
            Comparison::LessOrEqual(value) => add("≤", value),
        }
    }
    Ok(json!({ "logic": "and", "conditions": all }))
}

fn written(condition: &Condition, operator: &str, value: &Value) -> Value {
    json!({ "name": condition.field, "comparison_operator": operator, "value": value })
}

fn unsupported(condition: &Condition, circumstance: &str) -> BackendError {
    let (field, operator) = (&condition.field, operator(&condition.comparison));
    BackendError::UnsupportedFilter(format!("{field} {operator}{circumstance}"))
}

/// A value as text; whole numbers without a fraction, as the engines keep them.
fn as_text(value: &Value) -> Value {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 => format!("{float:.0}"),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
    .into()
}

/// A value as text that RAGFlow reads back: it takes texts that are Python literals for what they mean.
fn as_python(value: &Value) -> Value {
    match value {
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        other => as_text(other),
    }
}

/// The number that a text is.
fn as_number(text: &str) -> Option<Value> {
    let text = text.trim();
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    let number: f64 = text.parse().ok()?;
    serde_json::Number::from_f64(number).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual, NoneOf, OneOf};

    fn on(field: &str, comparison: Comparison) -> Condition {
        Condition {
            field: field.to_owned(),
            comparison,
        }
    }

    #[test]
    fn every_operator_is_written_as_dify_knows_it() {
        let table = [
            (OneOf(vec![json!("hr")]), "is", json!("hr")),
            (OneOf(vec![json!("2024")]), "is", json!("2024")),
            (OneOf(vec![json!(2024)]), "=", json!(2024)),
            (OneOf(vec![json!(true)]), "is", json!("true")),
            (
                OneOf(vec![json!("a"), json!(2), json!(2.0), json!(2.5)]),
                "in",
                json!(["a", "2", "2", "2.5"]),
            ),
            (NoneOf(vec![json!("hr")]), "is not", json!("hr")),
            (NoneOf(vec![json!(2024)]), "≠", json!(2024)),
            (
                NoneOf(vec![json!("a"), json!(false)]),
                "not in",
                json!(["a", "false"]),
            ),
            (Greater(json!(2024)), ">", json!(2024)),
            (GreaterOrEqual(json!(2.5)), "≥", json!(2.5)),
            (Less(json!("2024")), "<", json!(2024)),
            (LessOrEqual(json!(" 0.5")), "≤", json!(0.5)),
        ];
        for (comparison, operator, value) in table {
            let condition = on("field", comparison);
            let expected =
                json!([{ "name": "field", "comparison_operator": operator, "value": value }]);
            for bounds in [Bounds::Numbers, Bounds::NumbersAndDates] {
                let written = dify(std::slice::from_ref(&condition), bounds).unwrap();
                assert_eq!(Value::from(written), expected, "{condition:?}");
            }
        }
    }

    #[test]
    fn dify_takes_dates_as_text_in_its_external_interface_only() {
        let after = [on("updated", Greater(json!("2026-11-30T08:15:00Z")))];
        let before = [on("updated", Less(json!("2026-11-30")))];
        let written = |conditions: &[Condition]| dify(conditions, Bounds::NumbersAndDates).unwrap();
        assert_eq!(written(&after)[0]["comparison_operator"], "after");
        assert_eq!(written(&before)[0]["comparison_operator"], "before");
        for conditions in [&after, &before] {
            assert!(dify(conditions, Bounds::Numbers).is_err());
        }
        // There is no "not before", and texts that are no dates have no order.
        for comparison in [GreaterOrEqual(json!("2026-11-30")), Less(json!("spring"))] {
            let error = dify(&[on("updated", comparison)], Bounds::NumbersAndDates).unwrap_err();
            assert!(matches!(error, BackendError::UnsupportedFilter(filter)
                if filter.starts_with("updated ")));
        }
    }

    #[test]
    fn every_operator_is_written_as_ragflow_knows_it() {
        let table = [
            (OneOf(vec![json!("hr")]), "and", vec![("=", "hr")]),
            (
                OneOf(vec![json!("hr"), json!(2024.0)]),
                "or",
                vec![("=", "hr"), ("=", "2024")],
            ),
            (OneOf(vec![json!(true)]), "and", vec![("=", "True")]),
            (NoneOf(vec![json!("hr")]), "and", vec![("≠", "hr")]),
            (
                NoneOf(vec![json!("hr"), json!(3)]),
                "and",
                vec![("≠", "hr"), ("≠", "3")],
            ),
            (Greater(json!(2024)), "and", vec![(">", "2024")]),
            (
                GreaterOrEqual(json!("2026-01-02")),
                "and",
                vec![("≥", "2026-01-02")],
            ),
            (Less(json!(0.5)), "and", vec![("<", "0.5")]),
            (LessOrEqual(json!("m")), "and", vec![("≤", "m")]),
        ];
        for (comparison, logic, expected) in table {
            let condition = on("field", comparison);
            let expected: Vec<Value> = expected
                .into_iter()
                .map(|(operator, value)| {
                    json!({ "name": "field", "comparison_operator": operator, "value": value })
                })
                .collect();
            assert_eq!(
                ragflow(std::slice::from_ref(&condition)).unwrap(),
                json!({ "logic": logic, "conditions": expected }),
                "{condition:?}"
            );
        }
    }

    #[test]
    fn ragflow_combines_conditions_with_and_and_refuses_several_values_beside_others() {
        let year = on("year", GreaterOrEqual(json!(2024)));
        let both = ragflow(&[on("domain", OneOf(vec![json!("hr")])), year.clone()]).unwrap();
        assert_eq!(both["logic"], "and");
        assert_eq!(both["conditions"].as_array().unwrap().len(), 2);

        let several = on("domain", OneOf(vec![json!("hr"), json!("it")]));
        let error = ragflow(&[several, year]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the engine cannot filter by \"domain in beside other filters\""
        );
    }

    fn any_condition() -> impl Strategy<Value = Condition> {
        let value = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            any::<f64>().prop_map(|n| json!(n)),
            "\\PC{0,6}".prop_map(Value::from),
        ];
        let values = proptest::collection::vec(value.clone(), 1..4);
        let comparison = (0..6, values, value).prop_map(|(operator, many, one)| match operator {
            0 => OneOf(many),
            1 => NoneOf(many),
            2 => Greater(one),
            3 => GreaterOrEqual(one),
            4 => Less(one),
            _ => LessOrEqual(one),
        });
        ("\\PC{1,6}", comparison).prop_map(|(field, comparison)| Condition { field, comparison })
    }

    proptest! {
        #[test]
        fn no_condition_is_left_out(conditions in proptest::collection::vec(any_condition(), 1..4)) {
            let all_named = |written: &[Value]| {
                conditions.iter().all(|condition| {
                    written.iter().any(|one| one["name"] == condition.field.as_str())
                })
            };
            if let Ok(written) = dify(&conditions, Bounds::NumbersAndDates) {
                prop_assert_eq!(written.len(), conditions.len());
                prop_assert!(all_named(&written));
            }
            if let Ok(written) = ragflow(&conditions) {
                let list = written["conditions"].as_array().unwrap();
                prop_assert!(list.len() >= conditions.len());
                prop_assert!(all_named(list));
                prop_assert!(written["logic"] == "and" || conditions.len() == 1);
            }
        }
    }
}
