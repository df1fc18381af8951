//! Results whose large parts are written as JSON as soon as they are there, and not once more later.

use std::ops::{Deref, DerefMut};

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

/// The result's field that holds the items.
pub const ITEMS: &str = "items";

/// JSON that is written.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct WrittenJson(Box<RawValue>);

impl WrittenJson {
    /// Writes a value; `null` for one that JSON has no form for.
    pub fn of(value: &impl Serialize) -> Self {
        Self(to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// The JSON.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for WrittenJson {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

/// The result of a tool: its fields, in order, and its items where they are written already.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(from = "Map<String, Value>")]
pub struct Structured {
    fields: Map<String, Value>,
    items: Vec<WrittenJson>,
}

impl Structured {
    /// A result with an empty list [`ITEMS`] among its fields, which stands for these items.
    #[must_use]
    pub fn with_items(fields: Map<String, Value>, items: Vec<WrittenJson>) -> Self {
        Self { fields, items }
    }
}

impl From<Map<String, Value>> for Structured {
    fn from(fields: Map<String, Value>) -> Self {
        Self::with_items(fields, Vec::new())
    }
}

/// The fields.
impl Deref for Structured {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.fields
    }
}

impl DerefMut for Structured {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.fields
    }
}

impl Serialize for Structured {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len()))?;
        for (name, value) in &self.fields {
            if name == ITEMS && !self.items.is_empty() {
                map.serialize_entry(name, &self.items)?;
            } else {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn written_items_stand_in_the_result_as_if_they_were_values() {
        let items = [json!({ "a": "\"\\\n年", "b": [1.5, null] }), json!(2)];
        let fields = |items: Value| match json!({ "status": "success", "items": items, "n": 2 }) {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let written = items.iter().map(WrittenJson::of).collect();
        let structured = Structured::with_items(fields(json!([])), written);
        assert_eq!(
            serde_json::to_string(&structured).unwrap(),
            serde_json::to_string(&fields(json!(items))).unwrap()
        );
    }

    #[test]
    fn a_kept_result_is_read_as_fields() {
        let kept = r#"{"status":"success","items":[{"a":1}]}"#;
        let structured: Structured = serde_json::from_str(kept).unwrap();
        assert_eq!(structured[ITEMS], json!([{ "a": 1 }]));
        assert_eq!(serde_json::to_string(&structured).unwrap(), kept);
    }
}
