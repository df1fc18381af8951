//! Conditions as `ComparisonFilter` and `CompoundFilter`:
//! <https://platform.openai.com/docs/api-reference/vector-stores/search>.

use raglan_rag::backend::{Comparison, Condition};
use serde_json::{Value, json};

use crate::call::CallError;

/// The filter that lets through what satisfies all conditions; `None` when there are none.
pub(super) fn of(conditions: &[Condition]) -> Option<Value> {
    let mut filters: Vec<Value> = conditions.iter().flat_map(one).collect();
    match filters.len() {
        0 | 1 => filters.pop(),
        _ => Some(json!({ "type": "and", "filters": filters })),
    }
}

fn one(condition: &Condition) -> Vec<Value> {
    let compare = |operator: &str, value: &Value| json!({ "type": operator, "key": condition.field, "value": value });
    // Lists hold texts and numbers only.
    let is_list = |values: &[Value]| values.len() > 1 && !values.iter().any(Value::is_boolean);
    match &condition.comparison {
        Comparison::OneOf(values) if is_list(values) => vec![compare("in", &json!(values))],
        Comparison::NoneOf(values) if is_list(values) => vec![compare("nin", &json!(values))],
        Comparison::OneOf(values) => match values.as_slice() {
            [value] => vec![compare("eq", value)],
            several => {
                let each: Vec<Value> = several.iter().map(|value| compare("eq", value)).collect();
                vec![json!({ "type": "or", "filters": each })]
            }
        },
        Comparison::NoneOf(values) => values.iter().map(|value| compare("ne", value)).collect(),
        Comparison::Greater(bound) => vec![compare("gt", bound)],
        Comparison::GreaterOrEqual(bound) => vec![compare("gte", bound)],
        Comparison::Less(bound) => vec![compare("lt", bound)],
        Comparison::LessOrEqual(bound) => vec![compare("lte", bound)],
    }
}

/// The field of the filter that the engine refuses, where a failure is about filters: the one that its
/// message names, or all of them.
pub(super) fn is_refused(error: &CallError, conditions: &[Condition]) -> Option<String> {
    let CallError::Rejected { message, .. } = error else {
        return None;
    };
    let fields: Vec<&str> = conditions.iter().map(|one| one.field.as_str()).collect();
    let named = fields.iter().find(|field| message.contains(**field));
    let message = message.to_ascii_lowercase();
    match named {
        Some(field) => Some((*field).to_owned()),
        None if fields.is_empty() || !message.contains("filter") => None,
        None => Some(fields.join(", ")),
    }
}
