//! The filters once more, on what an engine found.
//!
//! Engines have given everything where a filter matched nothing. A passage that shows by its own
//! metadata that it breaks the filters is dropped here, whatever its engine thinks of it.
//!
//! How values are compared: a number and a text that is a number are compared as numbers, so that
//! `2024` and `"2024"` are the same, and `10` is greater than `"9"`; two texts are compared as texts,
//! character by character, which puts dates written as `2026-11-30` in order; a boolean is equal to
//! itself and to its text. Nothing else is equal, less or greater.

use std::cmp::Ordering;

use raglan_core::clock::Timestamp;
use serde_json::Value;

use crate::backend::{Comparison, Condition, Filters, Note, Passage, Retrieval};

/// The names under which engines keep a document's type.
const DOCUMENT_TYPE_NAMES: [&str; 2] = ["document_type", "doc_type"];
/// The name under which engines keep a document's domain.
const DOMAIN_NAME: &str = "domain";

/// Drops the passages that break the filters and notes how many there were
/// ([`Note::FilteredAgain`]).
///
/// With `tells_metadata` ([`crate::backend::Abilities::tells_metadata`]) a passage without a field is
/// one of a document without it, and only [`Comparison::NoneOf`] lets that through. Without it, what a
/// passage does not tell is taken as good: its engine was asked.
pub fn drop_what_breaks(filters: &Filters, tells_metadata: bool, retrieval: &mut Retrieval) {
    let before = retrieval.passages.len();
    retrieval
        .passages
        .retain(|passage| keeps(filters, tells_metadata, passage));
    let dropped = before - retrieval.passages.len();
    if dropped > 0 {
        retrieval.matched = retrieval.matched.saturating_sub(dropped as u64);
        retrieval.notes.push(Note::FilteredAgain(dropped));
    }
}

/// Whether the passage satisfies all of the filters, as far as it tells.
#[must_use]
pub fn keeps(filters: &Filters, tells_metadata: bool, passage: &Passage) -> bool {
    let silent = !tells_metadata;
    let one_of = |names: &[&str], wanted: &[String]| {
        wanted.is_empty()
            || values_of(passage, names).map_or(silent, |values| {
                let wanted = |value: &Value| {
                    wanted
                        .iter()
                        .any(|text| is_equal(value, &text.as_str().into()))
                };
                values.into_iter().any(wanted)
            })
    };
    let updated = |fits: &dyn Fn(i64) -> bool| {
        passage
            .updated_at
            .map_or(silent, |moment| fits(moment.epoch_ms()))
    };
    let after = filters.updated_after.map(Timestamp::epoch_ms);
    let before = filters.updated_before.map(Timestamp::epoch_ms);
    one_of(&[DOMAIN_NAME], &filters.domain)
        && one_of(&DOCUMENT_TYPE_NAMES, &filters.document_type)
        && after.is_none_or(|bound| updated(&|moment| moment > bound))
        && before.is_none_or(|bound| updated(&|moment| moment < bound))
        && filters
            .metadata
            .iter()
            .all(|condition| satisfies(condition, tells_metadata, passage))
}

fn satisfies(condition: &Condition, tells_metadata: bool, passage: &Passage) -> bool {
    let field = condition.field.as_str();
    let names = if DOCUMENT_TYPE_NAMES.contains(&field) {
        DOCUMENT_TYPE_NAMES.to_vec()
    } else {
        vec![field]
    };
    let Some(values) = values_of(passage, &names) else {
        return !tells_metadata || matches!(condition.comparison, Comparison::NoneOf(_));
    };
    let any = |fits: &dyn Fn(&Value) -> bool| values.iter().any(|value| fits(value));
    let listed = |wanted: &[Value]| any(&|value| wanted.iter().any(|one| is_equal(value, one)));
    let ordered = |bound: &Value, fits: fn(Ordering) -> bool| {
        any(&|value| order(value, bound).is_some_and(fits))
    };
    match &condition.comparison {
        Comparison::OneOf(wanted) => listed(wanted),
        Comparison::NoneOf(unwanted) => !listed(unwanted),
        Comparison::Greater(bound) => ordered(bound, Ordering::is_gt),
        Comparison::GreaterOrEqual(bound) => ordered(bound, Ordering::is_ge),
        Comparison::Less(bound) => ordered(bound, Ordering::is_lt),
        Comparison::LessOrEqual(bound) => ordered(bound, Ordering::is_le),
    }
}

/// The values that a passage has under the first of these names that it knows; `None` when it knows
/// none of them. `null` is no value.
fn values_of<'a>(passage: &'a Passage, names: &[&str]) -> Option<Vec<&'a Value>> {
    let value = names.iter().find_map(|name| passage.metadata.get(*name))?;
    match value {
        Value::Null => None,
        Value::Array(values) => Some(values.iter().collect()),
        single => Some(vec![single]),
    }
}

fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Bool(bool), Value::String(text)) | (Value::String(text), Value::Bool(bool)) => {
            text == if *bool { "true" } else { "false" }
        }
        _ => order(a, b).is_some_and(Ordering::is_eq),
    }
}

/// How two values stand to each other; `None` where that cannot be said.
fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) if a == b => Some(Ordering::Equal),
        _ => number(a)?.partial_cmp(&number(b)?),
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn passage(metadata: Value) -> Passage {
        Passage {
            id: "p".to_owned(),
            document_id: "d".to_owned(),
            chunk_index: 0,
            score: 1.0,
            content: String::new(),
            title: String::new(),
            filename: String::new(),
            uri: None,
            section: None,
            page: None,
            updated_at: None,
            metadata: serde_json::from_value(metadata).unwrap(),
        }
    }

    fn on(field: &str, comparison: Comparison) -> Filters {
        Filters {
            metadata: vec![Condition {
                field: field.to_owned(),
                comparison,
            }],
            ..Filters::default()
        }
    }

    /// Whether a document whose field `f` has the value `held` satisfies the comparison.
    fn holds(held: &Value, comparison: Comparison) -> bool {
        keeps(&on("f", comparison), true, &passage(json!({ "f": held })))
    }

    #[test]
    fn each_operator_lets_through_what_it_names_and_nothing_else() {
        use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual, NoneOf, OneOf};
        type Operator = fn(Value) -> Comparison;
        // For a held 5: which of 4, 5, 6 it satisfies as the operand.
        let table: [(Operator, [bool; 3]); 6] = [
            (|v| OneOf(vec![v]), [false, true, false]),
            (|v| NoneOf(vec![v]), [true, false, true]),
            (Greater, [true, false, false]),
            (GreaterOrEqual, [true, true, false]),
            (Less, [false, false, true]),
            (LessOrEqual, [false, true, true]),
        ];
        for (operator, expected) in table {
            for (operand, expected) in [4, 5, 6].into_iter().zip(expected) {
                let numbers = [
                    json!(operand),
                    json!(f64::from(operand)),
                    json!(operand.to_string()),
                ];
                for operand in numbers {
                    let comparison = operator(operand);
                    assert_eq!(
                        holds(&json!(5), comparison.clone()),
                        expected,
                        "{comparison:?}"
                    );
                }
                let comparison = operator(json!(operand));
                assert_eq!(
                    holds(&json!("5"), comparison.clone()),
                    expected,
                    "{comparison:?}"
                );
            }
        }
    }

    #[test]
    fn values_that_cannot_be_compared_satisfy_no_order() {
        use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual};
        for held in [
            json!("spring"),
            json!(true),
            json!({}),
            json!([]),
            json!("NaN"),
        ] {
            for operator in [Greater, GreaterOrEqual, Less, LessOrEqual] {
                assert!(!holds(&held, operator(json!(1))), "{held}");
            }
        }
    }

    #[test]
    fn dates_written_as_text_are_in_order() {
        let held = json!("2026-03-01");
        assert!(holds(&held, Comparison::Greater(json!("2026-02-28"))));
        assert!(!holds(
            &held,
            Comparison::Greater(json!("2026-03-01T10:00:00Z"))
        ));
    }

    #[test]
    fn one_of_several_values_is_enough_and_none_of_them_may_be_excluded() {
        let held = json!(["hr", "legal"]);
        assert!(holds(
            &held,
            Comparison::OneOf(vec![json!("legal"), json!("it")])
        ));
        assert!(!holds(&held, Comparison::OneOf(vec![json!("it")])));
        assert!(!holds(&held, Comparison::NoneOf(vec![json!("hr")])));
        assert!(holds(&held, Comparison::NoneOf(vec![json!("it")])));
    }

    #[test]
    fn truth_is_the_same_as_its_text_and_nothing_like_one() {
        assert!(holds(&json!(true), Comparison::OneOf(vec![json!("true")])));
        assert!(holds(
            &json!("false"),
            Comparison::OneOf(vec![json!(false)])
        ));
        assert!(!holds(&json!(true), Comparison::OneOf(vec![json!(1)])));
    }

    #[test]
    fn a_missing_field_breaks_every_condition_but_an_exclusion_where_the_engine_tells_everything() {
        let without = passage(json!({ "null": null }));
        for field in ["absent", "null"] {
            let wanted = on(field, Comparison::OneOf(vec![json!(1)]));
            assert!(!keeps(&wanted, true, &without));
            assert!(keeps(&wanted, false, &without), "not told is not broken");
            assert!(keeps(
                &on(field, Comparison::NoneOf(vec![json!(1)])),
                true,
                &without
            ));
            assert!(!keeps(
                &on(field, Comparison::Less(json!(1))),
                true,
                &without
            ));
        }
    }

    #[test]
    fn the_reserved_names_are_looked_up_under_what_engines_call_them() {
        let filters = Filters {
            document_type: vec!["policy".to_owned()],
            ..Filters::default()
        };
        for name in ["document_type", "doc_type"] {
            assert!(keeps(&filters, true, &passage(json!({ name: "policy" }))));
            assert!(!keeps(&filters, false, &passage(json!({ name: "faq" }))));
            let by_either = on(name, Comparison::OneOf(vec![json!("policy")]));
            assert!(keeps(
                &by_either,
                true,
                &passage(json!({ "doc_type": "policy" }))
            ));
        }
        let filters = Filters {
            domain: vec!["hr".to_owned(), "it".to_owned()],
            ..Filters::default()
        };
        assert!(keeps(&filters, true, &passage(json!({ "domain": "it" }))));
        assert!(!keeps(&filters, true, &passage(json!({ "domain": "HR" }))));
    }

    #[test]
    fn the_bounds_of_a_period_are_outside_of_it() {
        let at = |seconds| Timestamp::from_epoch_seconds(seconds);
        let filters = Filters {
            updated_after: Some(at(10)),
            updated_before: Some(at(20)),
            ..Filters::default()
        };
        for (moment, expected) in [(10, false), (11, true), (19, true), (20, false)] {
            let mut dated = passage(json!({}));
            dated.updated_at = Some(at(moment));
            assert_eq!(keeps(&filters, true, &dated), expected, "{moment}");
        }
        assert!(!keeps(&filters, true, &passage(json!({}))), "no date");
        assert!(keeps(&filters, false, &passage(json!({}))), "not told");
    }

    #[test]
    fn what_is_dropped_is_counted_and_the_rest_keeps_its_order() {
        let mut retrieval = Retrieval {
            passages: (0..6).map(|n| passage(json!({ "f": n }))).collect(),
            matched: 40,
            ..Retrieval::default()
        };
        let filters = on("f", Comparison::GreaterOrEqual(json!(4)));
        drop_what_breaks(&filters, true, &mut retrieval);
        let kept: Vec<&Value> = retrieval
            .passages
            .iter()
            .map(|p| &p.metadata["f"])
            .collect();
        assert_eq!(kept, [&json!(4), &json!(5)]);
        assert_eq!(
            (retrieval.matched, retrieval.notes),
            (36, vec![Note::FilteredAgain(4)])
        );

        let mut untouched = Retrieval {
            passages: vec![passage(json!({ "f": 5 }))],
            matched: 1,
            ..Retrieval::default()
        };
        drop_what_breaks(&filters, true, &mut untouched);
        assert_eq!((untouched.matched, untouched.notes), (1, Vec::new()));
    }

    /// The rule written the other way round, for whole numbers: which numbers satisfy a condition.
    fn reference(held: &[i64], conditions: &[(usize, i64)]) -> bool {
        conditions.iter().all(|&(operator, operand)| {
            let fits = |value: &i64| match operator {
                0 | 1 => *value == operand,
                2 => *value > operand,
                3 => *value > operand - 1,
                4 => *value < operand,
                _ => *value < operand + 1,
            };
            (operator == 1) != held.iter().any(fits)
        })
    }

    /// A number, or the text of it.
    fn written(number: i64, as_text: bool) -> Value {
        if as_text {
            json!(number.to_string())
        } else {
            json!(number)
        }
    }

    proptest! {
        #[test]
        fn any_conditions_on_one_field_are_what_the_reference_says(
            held in proptest::collection::vec(-4_i64..5, 0..4),
            conditions in proptest::collection::vec((0_usize..6, -4_i64..5), 0..5),
            held_as_text: bool,
        ) {
            let filters = Filters {
                metadata: conditions.iter().map(|&(operator, operand)| Condition {
                    field: "f".to_owned(),
                    comparison: match (operator, written(operand, !held_as_text)) {
                        (0, value) => Comparison::OneOf(vec![value]),
                        (1, value) => Comparison::NoneOf(vec![value]),
                        (2, value) => Comparison::Greater(value),
                        (3, value) => Comparison::GreaterOrEqual(value),
                        (4, value) => Comparison::Less(value),
                        (_, value) => Comparison::LessOrEqual(value),
                    },
                }).collect(),
                ..Filters::default()
            };
            let values: Vec<Value> = held.iter().map(|n| written(*n, held_as_text)).collect();
            prop_assert_eq!(
                keeps(&filters, true, &passage(json!({ "f": values }))),
                reference(&held, &conditions)
            );
        }

        #[test]
        fn a_further_condition_never_lets_more_through(
            fields in proptest::collection::btree_map("[ab]", prop_oneof![
                any::<bool>().prop_map(Value::from),
                (-3_i64..4).prop_map(Value::from),
                "[a-c0-9]{0,2}".prop_map(Value::from),
                proptest::collection::vec(-3_i64..4, 0..3).prop_map(Value::from),
            ], 0..3),
            operators in proptest::collection::vec((0_usize..6, "[ab]", prop_oneof![
                (-3_i64..4).prop_map(Value::from),
                "[a-c0-9]{0,2}".prop_map(Value::from),
            ]), 1..4),
            tells_metadata: bool,
        ) {
            let metadata: BTreeMap<String, Value> = fields;
            let passage = passage(json!(metadata));
            let mut filters = Filters::default();
            let mut kept = true;
            for (operator, field, value) in operators {
                let comparison = match operator {
                    0 => Comparison::OneOf(vec![value]),
                    1 => Comparison::NoneOf(vec![value]),
                    2 => Comparison::Greater(value),
                    3 => Comparison::GreaterOrEqual(value),
                    4 => Comparison::Less(value),
                    _ => Comparison::LessOrEqual(value),
                };
                filters.metadata.push(Condition { field, comparison });
                let now = keeps(&filters, tells_metadata, &passage);
                prop_assert!(kept || !now);
                kept = now;
            }
        }
    }
}
