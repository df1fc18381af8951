//! Filters in the words of `RetrievalFilter`.
//! <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_agent-runtime_RetrievalFilter.html>

use aws_sdk_bedrockagentruntime::types::{FilterAttribute, RetrievalFilter};
use aws_smithy_types::{Document, Number};
use raglan_engines::attributes::{conditions, operator};
use raglan_engines::configuration::{AttributeNames, MomentFormat};
use raglan_rag::backend::{BackendError, Comparison, Condition, FilterAbilities, Filters};
use serde_json::Value;

/// What can be filtered by. Bedrock has no dates: moments are compared where they are kept as numbers.
pub(crate) const fn abilities(moments: MomentFormat) -> FilterAbilities {
    match moments {
        MomentFormat::EpochSeconds | MomentFormat::EpochMilliseconds => FilterAbilities::ALL,
        MomentFormat::Rfc3339 | MomentFormat::Date => FilterAbilities {
            fields: &["domain", "document_type", "metadata"],
            operators: FilterAbilities::ALL.operators,
        },
    }
}

/// The filter for these conditions, and for the data source with this key and identifier; `None` when
/// nothing is asked.
///
/// # Errors
/// [`BackendError::UnsupportedFilter`] for what Bedrock cannot compare: only numbers are greater or less
/// than others.
pub(crate) fn translate(
    filters: &Filters,
    names: &AttributeNames,
    data_source: Option<(&str, &str)>,
) -> Result<Option<RetrievalFilter>, BackendError> {
    let mut members = Vec::new();
    if let Some((key, id)) = data_source {
        let value = Document::String(id.to_owned());
        members.push(RetrievalFilter::Equals(attribute(key, value)?));
    }
    for condition in conditions(filters, names, abilities(names.moments))? {
        add(&condition, &mut members)?;
    }
    // `andAll` takes two members or more.
    Ok(if members.len() > 1 {
        Some(RetrievalFilter::AndAll(members))
    } else {
        members.pop()
    })
}

fn add(condition: &Condition, members: &mut Vec<RetrievalFilter>) -> Result<(), BackendError> {
    let key = condition.field.as_str();
    let bound = |value: &Value| {
        let number = number(value).ok_or_else(|| {
            let operator = operator(&condition.comparison);
            BackendError::UnsupportedFilter(format!("{key} {operator} with a text"))
        })?;
        attribute(key, number)
    };
    members.push(match &condition.comparison {
        Comparison::OneOf(values) => match values.as_slice() {
            [only] => RetrievalFilter::Equals(attribute(key, scalar(only))?),
            several => {
                let several = Document::Array(several.iter().map(scalar).collect());
                RetrievalFilter::In(attribute(key, several)?)
            }
        },
        // Not `notIn`: that one leaves out documents without the field, and `notEquals` does not.
        Comparison::NoneOf(values) => {
            for value in values {
                members.push(RetrievalFilter::NotEquals(attribute(key, scalar(value))?));
            }
            return Ok(());
        }
        Comparison::Greater(value) => RetrievalFilter::GreaterThan(bound(value)?),
        Comparison::GreaterOrEqual(value) => RetrievalFilter::GreaterThanOrEquals(bound(value)?),
        Comparison::Less(value) => RetrievalFilter::LessThan(bound(value)?),
        Comparison::LessOrEqual(value) => RetrievalFilter::LessThanOrEquals(bound(value)?),
    });
    Ok(())
}

fn attribute(key: &str, value: Document) -> Result<FilterAttribute, BackendError> {
    let attribute = FilterAttribute::builder().key(key).value(value).build();
    attribute.map_err(|_| BackendError::UnsupportedFilter(key.to_owned()))
}

/// A number, or the number that a text is.
fn number(value: &Value) -> Option<Document> {
    match value {
        Value::Number(_) => Some(scalar(value)),
        Value::String(text) => text
            .trim()
            .parse()
            .ok()
            .map(|number| scalar(&Value::Number(number))),
        _ => None,
    }
}

/// Conditions hold texts, numbers and booleans only.
fn scalar(value: &Value) -> Document {
    match value {
        Value::Bool(value) => Document::Bool(*value),
        Value::String(text) => Document::String(text.clone()),
        Value::Number(number) => Document::Number(match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Number::PosInt(number),
            (None, Some(number)) => Number::NegInt(number),
            (None, None) => Number::Float(number.as_f64().unwrap_or_default()),
        }),
        _ => Document::Null,
    }
}
