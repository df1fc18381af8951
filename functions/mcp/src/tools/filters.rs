//! The `filters` argument of `retrieve` and `ask`. Filters narrow; they never widen.

use raglan_core::clock::Timestamp;
use raglan_rag::backend::{Comparison, Condition, Filters};
use serde_json::{Map, Value, json};

use super::arguments::Arguments;

const MAX_VALUES: usize = 20;
const MAX_CHARS: usize = 200;
const MAX_METADATA_FIELDS: usize = 10;

/// JSON Schema of the argument.
pub fn schema() -> Value {
    let one_or_many = |what: &str| {
        json!({
            "description": what,
            "anyOf": [
                { "type": "string", "minLength": 1, "maxLength": MAX_CHARS },
                { "type": "array", "maxItems": MAX_VALUES,
                  "items": { "type": "string", "minLength": 1, "maxLength": MAX_CHARS } }
            ]
        })
    };
    // One type a branch: some model providers refuse lists of types.
    let scalars = [
        json!({ "type": "string" }),
        json!({ "type": "number" }),
        json!({ "type": "boolean" }),
    ];
    let scalar = json!({ "anyOf": scalars });
    json!({
        "type": "object",
        "description": "Narrows the search to documents that satisfy every given condition.",
        "additionalProperties": false,
        "properties": {
            "domain": one_or_many("The document's domain is this one, or one of these."),
            "document_type": one_or_many("The document's type is this one, or one of these."),
            "updated_after": { "type": "string",
                "description": "Updated after this date (2026-11-30) or RFC 3339 date-time." },
            "updated_before": { "type": "string",
                "description": "Updated before this date (2026-11-30) or RFC 3339 date-time." },
            "metadata": {
                "type": "object",
                "description": "For each name: the document's metadata has this value, or one of these.",
                "maxProperties": MAX_METADATA_FIELDS,
                "additionalProperties": {
                    "anyOf": [scalar, { "type": "array", "minItems": 1, "maxItems": MAX_VALUES, "items": scalar }]
                }
            }
        }
    })
}

/// Reads the argument out of `arguments`.
pub fn read(arguments: &mut Arguments<'_>) -> Filters {
    let values = arguments.object("filters");
    let mut inner = Arguments::new(&values, "filters.");
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
    match Timestamp::parse(text.trim()) {
        Ok(moment) => Some(moment),
        Err(error) => {
            arguments.problem(name, &format!("is not valid: {error}"));
            None
        }
    }
}

fn metadata_values(arguments: &mut Arguments<'_>, fields: Map<String, Value>) -> Vec<Condition> {
    if fields.len() > MAX_METADATA_FIELDS {
        let problem = format!("must not have more than {MAX_METADATA_FIELDS} fields");
        arguments.problem("metadata", &problem);
        return Vec::new();
    }
    let mut read = Vec::new();
    for (name, value) in fields {
        let values = match value {
            Value::Array(values) => values,
            single => vec![single],
        };
        let scalars = values
            .iter()
            .all(|value| value.is_string() || value.is_boolean() || value.is_number());
        if !scalars || values.is_empty() || values.len() > MAX_VALUES {
            let shown: String = name.chars().take(40).collect();
            let problem = format!(
                "must have for `{shown}` a string, number or boolean, or a list of 1 to {MAX_VALUES} of them"
            );
            arguments.problem("metadata", &problem);
            continue;
        }
        read.push(Condition {
            field: name,
            comparison: Comparison::OneOf(values),
        });
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::arguments::InvalidArguments;

    fn parse(value: Value) -> Result<Filters, InvalidArguments> {
        let mut values = Map::new();
        values.insert("filters".to_owned(), value);
        let mut arguments = Arguments::new(&values, "");
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
    fn a_filter_that_is_not_understood_is_an_error_and_never_dropped() {
        for value in [
            json!({ "tenant": "other" }),
            json!({ "updated_after": "last week" }),
            json!({ "metadata": { "a": { "gt": 1 } } }),
            json!({ "metadata": { "a": [] } }),
            json!({ "domain": 5 }),
            json!(["domain"]),
            json!(7),
        ] {
            assert!(parse(value.clone()).is_err(), "{value}");
        }
        assert!(parse(json!(null)).unwrap().is_empty());
    }
}
