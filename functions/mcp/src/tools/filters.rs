//! The `filters` argument of `retrieve` and `ask`. Filters narrow; they never widen.

use raglan_core::clock::Timestamp;
use raglan_rag::backend::{Comparison, Condition, FilterAbilities, Filters};
use raglan_texts::{Language, text};
use serde_json::{Map, Value, json};

use super::arguments::{Arguments, as_code};

const MAX_VALUES: usize = 20;
const MAX_CHARS: usize = 200;
const MAX_METADATA_FIELDS: usize = 10;
/// The operators on a metadata field, in the words of OpenAI's comparison filters.
const OPERATORS: &[&str] = FilterAbilities::ALL.operators;
/// Not a metadata field to ask about: dates have filters of their own.
const UPDATED_AT: &str = "updated_at";

/// JSON Schema of the argument.
pub fn schema(language: Language) -> Value {
    let text = json!({ "type": "string", "minLength": 1, "maxLength": MAX_CHARS });
    let one_or_many = |what: &str| {
        json!({
            "description": what,
            "anyOf": [text, { "type": "array", "maxItems": MAX_VALUES, "items": text }]
        })
    };
    // One type a branch: some model providers refuse lists of types.
    let (string, number) = (
        json!({ "type": "string", "maxLength": MAX_CHARS }),
        json!({ "type": "number" }),
    );
    let scalar = json!({ "anyOf": [string, number, { "type": "boolean" }] });
    let list = json!({ "type": "array", "minItems": 1, "maxItems": MAX_VALUES, "items": scalar });
    let bound = json!({ "anyOf": [string, number] });
    json!({
        "type": "object",
        "description": text!(
            language,
            "Narrows the search to documents that satisfy every given condition."
        ),
        "additionalProperties": false,
        "properties": {
            "domain": one_or_many(text!(
                language,
                "The document's domain is this one, or one of these."
            )),
            "document_type": one_or_many(text!(
                language,
                "The document's type is this one, or one of these."
            )),
            "updated_after": { "type": "string",
                "description": text!(
                    language,
                    "Updated after this date (2026-11-30) or RFC 3339 date-time."
                ) },
            "updated_before": { "type": "string",
                "description": text!(
                    language,
                    "Updated before this date (2026-11-30) or RFC 3339 date-time."
                ) },
            "metadata": {
                "type": "object",
                "description": text!(
                    language,
                    "For each name: the document's metadata has this value, or one of \
                     these, or satisfies all of these operators, as in {\"year\": {\"gte\": 2024}}."
                ),
                "maxProperties": MAX_METADATA_FIELDS,
                "additionalProperties": {
                    "anyOf": [
                        string, number, { "type": "boolean" }, list,
                        {
                            "type": "object", "minProperties": 1, "additionalProperties": false,
                            "properties": {
                                "eq": scalar, "ne": scalar, "in": list, "nin": list,
                                "gt": bound, "gte": bound, "lt": bound, "lte": bound
                            }
                        }
                    ]
                }
            }
        }
    })
}

/// Reads the argument out of `arguments`.
pub fn read(arguments: &mut Arguments<'_>) -> Filters {
    let values = arguments.object("filters");
    let mut inner = Arguments::new(&values, "filters.", arguments.language());
    let domain = inner.texts("domain", MAX_VALUES, MAX_CHARS);
    let document_type = inner.texts("document_type", MAX_VALUES, MAX_CHARS);
    let updated_after = moment(&mut inner, "updated_after");
    let updated_before = moment(&mut inner, "updated_before");
    let metadata = inner.object("metadata");
    let metadata = metadata_values(&mut inner, metadata);
    arguments.nested(inner.finish());
    Filters {
        domain,
        document_type,
        updated_after,
        updated_before,
        metadata,
    }
}

fn moment(arguments: &mut Arguments<'_>, name: &'static str) -> Option<Timestamp> {
    let text = arguments.optional_text(name, 64)?;
    let moment = Timestamp::parse(text.trim()).ok();
    if moment.is_none() {
        arguments.problem(text!(
            arguments.language(),
            "`{name}` is not valid: expected a date (2026-11-30) or an RFC 3339 date-time \
             (2026-11-30T08:15:00Z).",
            name = arguments.path_to(name)
        ));
    }
    moment
}

fn metadata_values(arguments: &mut Arguments<'_>, fields: Map<String, Value>) -> Vec<Condition> {
    let language = arguments.language();
    if fields.len() > MAX_METADATA_FIELDS {
        arguments.problem(text!(
            language,
            "`filters.metadata` must not have more than {most} fields.",
            most = MAX_METADATA_FIELDS
        ));
        return Vec::new();
    }
    let mut read = Vec::new();
    for (field, value) in fields {
        if field == UPDATED_AT {
            let problem = text!(
                language,
                "`filters.metadata` has no filter for `updated_at`: use `filters.updated_after` and \
                 `filters.updated_before`."
            );
            arguments.problem(problem.to_owned());
            continue;
        }
        if field.is_empty() || field.chars().nth(MAX_CHARS).is_some() {
            arguments.problem(text!(
                language,
                "`filters.metadata` must have names of 1 to {most} characters.",
                most = MAX_CHARS
            ));
            continue;
        }
        match comparisons(&field, value, language) {
            Ok(comparisons) => read.extend(comparisons.into_iter().map(|comparison| Condition {
                field: field.clone(),
                comparison,
            })),
            Err(problem) => arguments.problem(problem),
        }
    }
    read
}

/// What is asked of one field: a value, a list of values, or an object of operators; or a sentence that
/// says what is wrong with it.
fn comparisons(field: &str, value: Value, language: Language) -> Result<Vec<Comparison>, String> {
    let Value::Object(operators) = value else {
        let values = list(value).ok_or_else(|| {
            text!(
                language,
                "`filters.metadata` has for `{field}` what is neither a string, number or boolean, nor \
                 a list of 1 to {most} of them, nor an object of operators.",
                field = shown(field),
                most = MAX_VALUES
            )
        })?;
        return Ok(vec![Comparison::OneOf(values)]);
    };
    if operators.is_empty() {
        return Err(text!(
            language,
            "`filters.metadata` has for `{field}` no operator (known: {known}).",
            field = shown(field),
            known = as_code(OPERATORS)
        ));
    }
    operators
        .into_iter()
        .map(|(operator, operand)| comparison(field, &operator, operand, language))
        .collect()
}

fn comparison(
    field: &str,
    operator: &str,
    operand: Value,
    language: Language,
) -> Result<Comparison, String> {
    let one = |operand: Value| {
        is_scalar(&operand).then(|| vec![operand]).ok_or_else(|| {
            text!(
                language,
                "`filters.metadata` has for `{field}` an `{operator}` that is no string, number or \
                 boolean.",
                field = shown(field),
                operator
            )
        })
    };
    let many = |operand: Value| {
        list(operand).ok_or_else(|| {
            text!(
                language,
                "`filters.metadata` has for `{field}` an `{operator}` that is no list of 1 to {most} \
                 strings, numbers or booleans.",
                field = shown(field),
                operator,
                most = MAX_VALUES
            )
        })
    };
    let bound = |operand: Value| {
        let fits = is_scalar(&operand) && !operand.is_boolean();
        fits.then_some(operand).ok_or_else(|| {
            text!(
                language,
                "`filters.metadata` has for `{field}` a `{operator}` that is no string and no number.",
                field = shown(field),
                operator
            )
        })
    };
    Ok(match operator {
        "eq" => Comparison::OneOf(one(operand)?),
        "ne" => Comparison::NoneOf(one(operand)?),
        "in" => Comparison::OneOf(many(operand)?),
        "nin" => Comparison::NoneOf(many(operand)?),
        "gt" => Comparison::Greater(bound(operand)?),
        "gte" => Comparison::GreaterOrEqual(bound(operand)?),
        "lt" => Comparison::Less(bound(operand)?),
        "lte" => Comparison::LessOrEqual(bound(operand)?),
        unknown => {
            return Err(text!(
                language,
                "`filters.metadata` has for `{field}` the unknown operator `{operator}` (known: \
                 {known}).",
                field = shown(field),
                operator = shown(unknown),
                known = as_code(OPERATORS)
            ));
        }
    })
}

/// The beginning of a name, which may be of any length.
fn shown(name: &str) -> String {
    name.chars().take(40).collect()
}

/// A value, or several: a list that has between one and [`MAX_VALUES`] of them.
fn list(value: Value) -> Option<Vec<Value>> {
    let values = match value {
        Value::Array(values) => values,
        single => vec![single],
    };
    let fits = (1..=MAX_VALUES).contains(&values.len()) && values.iter().all(is_scalar);
    fits.then_some(values)
}

fn is_scalar(value: &Value) -> bool {
    match value {
        Value::String(text) => text.chars().nth(MAX_CHARS).is_none(),
        Value::Number(_) | Value::Bool(_) => true,
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::arguments::InvalidArguments;

    fn parse(value: Value) -> Result<Filters, InvalidArguments> {
        let mut values = Map::new();
        values.insert("filters".to_owned(), value);
        let mut arguments = Arguments::new(&values, "", Language::English);
        let filters = read(&mut arguments);
        arguments.finish().map(|()| filters)
    }

    #[test]
    fn every_condition_is_read() {
        let filters = parse(json!({
            "domain": "hr", "document_type": ["policy", "faq"], "updated_after": "2026-01-01",
            "metadata": { "office": "Chengdu", "version": [2, 3] }
        }))
        .unwrap();
        assert_eq!(filters.domain, ["hr"]);
        assert_eq!(filters.document_type, ["policy", "faq"]);
        assert_eq!(filters.updated_after, Timestamp::parse("2026-01-01").ok());
        let version = Condition {
            field: "version".to_owned(),
            comparison: Comparison::OneOf(vec![json!(2), json!(3)]),
        };
        assert!(filters.metadata.contains(&version));
    }

    #[test]
    fn operators_on_one_field_all_hold() {
        let filters = parse(json!({ "metadata": {
            "year": { "gte": 2020, "lt": 2024 }, "office": { "nin": ["Chengdu", "Oslo"] },
            "state": { "ne": "draft" }, "code": { "in": "A" }, "kind": { "eq": true },
        } }))
        .unwrap();
        let of = |field: &str| -> Vec<Comparison> {
            let conditions = filters.metadata.iter();
            let named = conditions.filter(|condition| condition.field == field);
            named
                .map(|condition| condition.comparison.clone())
                .collect()
        };
        let year = of("year");
        assert_eq!(year.len(), 2);
        assert!(year.contains(&Comparison::GreaterOrEqual(json!(2020))));
        assert!(year.contains(&Comparison::Less(json!(2024))));
        let offices = vec![json!("Chengdu"), json!("Oslo")];
        assert_eq!(of("office"), [Comparison::NoneOf(offices)]);
        assert_eq!(of("state"), [Comparison::NoneOf(vec![json!("draft")])]);
        assert_eq!(of("code"), [Comparison::OneOf(vec![json!("A")])]);
        assert_eq!(of("kind"), [Comparison::OneOf(vec![json!(true)])]);
    }

    #[test]
    fn every_filter_of_the_schema_is_one_that_engines_are_asked_for() {
        let schema = schema(Language::English);
        let described: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(described, FilterAbilities::ALL.fields);
    }

    #[test]
    fn every_operator_of_the_schema_is_read_and_every_other_is_named() {
        let schema = schema(Language::English);
        let branches = schema
            .pointer("/properties/metadata/additionalProperties/anyOf")
            .unwrap();
        let object = branches.as_array().unwrap().last().unwrap();
        let described: Vec<_> = object["properties"].as_object().unwrap().keys().collect();
        assert_eq!(described, OPERATORS);
        for operator in OPERATORS {
            parse(json!({ "metadata": { "a": { *operator: 1 } } })).unwrap();
        }
        let error = parse(json!({ "metadata": { "a": { "between": [1, 2] } } })).unwrap_err();
        insta::assert_snapshot!(error.told(Language::English), @"The arguments are not valid. `filters.metadata` has for `a` the unknown operator `between` (known: `eq`, `ne`, `in`, `nin`, `gt`, `gte`, `lt`, `lte`).");
    }

    #[test]
    fn every_branch_of_the_schema_has_one_type() {
        fn walk(schema: &Value) {
            match schema {
                Value::Object(fields) => {
                    if let Some(kind) = fields.get("type") {
                        assert!(kind.is_string() || kind.is_object(), "{schema}");
                    }
                    for word in [
                        "oneOf", "allOf", "$ref", "$defs", "pattern", "format", "not",
                    ] {
                        assert!(!fields.contains_key(word), "{word}: {schema}");
                    }
                    fields.values().for_each(walk);
                }
                Value::Array(items) => items.iter().for_each(walk),
                _ => {}
            }
        }
        walk(&schema(Language::English));
    }

    #[test]
    fn a_filter_that_is_not_understood_is_an_error_and_never_dropped() {
        for value in [
            json!({ "tenant": "other" }),
            json!({ "updated_after": "last week" }),
            json!({ "metadata": { "a": {} } }),
            json!({ "metadata": { "a": { "gt": true } } }),
            json!({ "metadata": { "a": { "gt": [1] } } }),
            json!({ "metadata": { "a": { "gt": null } } }),
            json!({ "metadata": { "a": { "eq": ["x", "y"] } } }),
            json!({ "metadata": { "a": { "in": [] } } }),
            json!({ "metadata": { "a": { "in": [{ "eq": 1 }] } } }),
            json!({ "metadata": { "a": { "and": [{ "eq": 1 }] } } }),
            json!({ "metadata": { "a": [] } }),
            json!({ "metadata": { "a": null } }),
            json!({ "metadata": { "a": "x".repeat(MAX_CHARS + 1) } }),
            json!({ "metadata": { "": 1 } }),
            json!({ "metadata": { "updated_at": { "gt": "2026-01-01" } } }),
            json!({ "domain": 5 }),
            json!(["domain"]),
            json!(7),
        ] {
            assert!(parse(value.clone()).is_err(), "{value}");
        }
        assert!(parse(json!(null)).unwrap().is_empty());
    }

    proptest::proptest! {
        #[test]
        fn every_given_condition_is_kept_or_the_call_is_refused(
            text in "\\{(\"(eq|in|gt|lt|ne|x)\":(1|\"a\"|\\[1,2\\]|null|\\[\\]|true|\\{\\}),?){0,3}\\}",
        ) {
            let Ok(Value::Object(operators)) = serde_json::from_str(&text) else {
                return Ok(());
            };
            let asked = operators.len();
            if let Ok(filters) = parse(json!({ "metadata": { "a": operators } })) {
                proptest::prop_assert_eq!(filters.metadata.len(), asked);
                proptest::prop_assert!(asked > 0);
            }
        }
    }
}
