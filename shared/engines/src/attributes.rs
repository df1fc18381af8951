//! The attributes of documents: read into what [`raglan_rag::backend`] knows, and asked about in
//! filters, both under the names that the engine has for them ([`AttributeNames`]).

use std::collections::BTreeMap;

use raglan_core::clock::Timestamp;
use raglan_rag::backend::{BackendError, Comparison, Condition, FilterAbilities, Filters};
use serde_json::{Map, Number, Value};

use crate::configuration::{AttributeNames, MomentFormat};

/// The names in requests of what we call `doc_type`.
const DOCUMENT_TYPE: &str = "document_type";
const DAY_MS: i64 = 86_400_000;
/// Seconds since 1970 reach this in the year 5138, milliseconds did in 1973.
const FIRST_MILLISECONDS: f64 = 1e11;

/// The attributes of one passage or document, as an engine gives them.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    names: &'a AttributeNames,
    values: Option<&'a Map<String, Value>>,
}

impl<'a> Attributes<'a> {
    /// These attributes. What is no object has none.
    #[must_use]
    pub fn new(names: &'a AttributeNames, values: Option<&'a Value>) -> Self {
        let values = values.and_then(Value::as_object);
        Self { names, values }
    }

    fn get(&self, reserved: &str) -> Option<&'a Value> {
        self.values?.get(self.names.of(reserved))
    }

    /// A reserved attribute as text; numbers are taken as they are written. `None` when it is empty.
    #[must_use]
    pub fn text(&self, reserved: &str) -> Option<String> {
        match self.get(reserved)? {
            Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// A reserved attribute as a whole number; `12`, `12.0` and `"12"` are the same.
    #[must_use]
    pub fn whole_number(&self, reserved: &str) -> Option<u64> {
        whole_number(self.get(reserved)?)
    }

    /// `updated_at`
    #[must_use]
    pub fn updated_at(&self) -> Option<Timestamp> {
        moment(self.get("updated_at")?)
    }

    /// Everything, under the engine's own names, and the reserved ones under ours as well: filters ask
    /// about either, and what was found is checked once more under the name that was asked.
    #[must_use]
    pub fn metadata(&self) -> BTreeMap<String, Value> {
        let Some(values) = self.values else {
            return BTreeMap::new();
        };
        let mut metadata: BTreeMap<String, Value> = values
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        for reserved in AttributeNames::RESERVED {
            if let Some(value) = self.get(reserved) {
                metadata.insert(reserved.to_owned(), value.clone());
            }
        }
        metadata
    }
}

fn whole_number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| {
            let number = number.as_f64()?;
            let is_whole = number >= 0.0 && number.fract() == 0.0;
            // The text of a whole number has no fraction, whatever its size.
            is_whole.then(|| format!("{number:.0}").parse().ok())?
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A moment in any form that engines write: seconds or milliseconds since 1970 as a number or as text,
/// RFC 3339 with `T` or a space, or a date. Without a zone it is UTC.
#[must_use]
pub fn moment(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Number(number) => from_number(number.as_f64()?),
        Value::String(text) => {
            let text = text.trim();
            let with_zone = || Timestamp::parse(&format!("{}Z", text.replacen(' ', "T", 1)));
            Timestamp::parse(text)
                .or_else(|_| with_zone())
                .ok()
                .or_else(|| from_number(text.parse().ok()?))
        }
        _ => None,
    }
}

fn from_number(number: f64) -> Option<Timestamp> {
    if !number.is_finite() {
        return None;
    }
    let milliseconds = if number.abs() < FIRST_MILLISECONDS {
        number * 1000.0
    } else {
        number
    };
    let text = format!("{milliseconds:.0}");
    text.parse().ok().map(Timestamp::from_epoch_ms)
}

/// The filters as conditions on attributes, under the engine's names and with moments as the engine
/// writes them. All of them must hold. What they let through is never less than what was asked for, and
/// more of it only where the engine's moments are coarser than ours.
///
/// # Errors
/// [`BackendError::UnsupportedFilter`] with the first filter that is not among `abilities`.
pub fn conditions(
    filters: &Filters,
    names: &AttributeNames,
    abilities: FilterAbilities,
) -> Result<Vec<Condition>, BackendError> {
    let mut conditions = Vec::new();
    let mut add = |asked: &str, reserved: &str, comparison| {
        if !abilities.fields.contains(&asked) {
            return Err(BackendError::UnsupportedFilter(asked.to_owned()));
        }
        conditions.push(Condition {
            field: names.of(reserved).to_owned(),
            comparison,
        });
        Ok(())
    };
    for (asked, reserved, wanted) in [
        ("domain", "domain", &filters.domain),
        (DOCUMENT_TYPE, "doc_type", &filters.document_type),
    ] {
        if !wanted.is_empty() {
            let wanted = wanted.iter().map(|text| text.as_str().into()).collect();
            add(asked, reserved, Comparison::OneOf(wanted))?;
        }
    }
    if let Some(moment) = filters.updated_after {
        let bound = written(moment, names.moments, false);
        add("updated_after", "updated_at", Comparison::Greater(bound))?;
    }
    if let Some(moment) = filters.updated_before {
        let bound = written(moment, names.moments, true);
        add("updated_before", "updated_at", Comparison::Less(bound))?;
    }
    for condition in &filters.metadata {
        let operator = operator(&condition.comparison);
        if !abilities.operators.contains(&operator) {
            let filter = format!("metadata {operator}");
            return Err(BackendError::UnsupportedFilter(filter));
        }
        let field = match condition.field.as_str() {
            DOCUMENT_TYPE => "doc_type",
            field => field,
        };
        add("metadata", field, condition.comparison.clone())?;
    }
    Ok(conditions)
}

/// The name of a comparison in requests.
#[must_use]
pub fn operator(comparison: &Comparison) -> &'static str {
    match comparison {
        Comparison::OneOf(values) if values.len() == 1 => "eq",
        Comparison::OneOf(_) => "in",
        Comparison::NoneOf(values) if values.len() == 1 => "ne",
        Comparison::NoneOf(_) => "nin",
        Comparison::Greater(_) => "gt",
        Comparison::GreaterOrEqual(_) => "gte",
        Comparison::Less(_) => "lt",
        Comparison::LessOrEqual(_) => "lte",
    }
}

/// A bound in the engine's words. Where these are coarser, an upper bound goes up and a lower one down.
fn written(moment: Timestamp, format: MomentFormat, is_upper: bool) -> Value {
    let ms = moment.epoch_ms();
    let up = |unit: i64| if is_upper { unit - 1 } else { 0 };
    match format {
        MomentFormat::EpochSeconds => (ms + up(1000)).div_euclid(1000).into(),
        MomentFormat::EpochMilliseconds => Number::from(ms).into(),
        MomentFormat::Rfc3339 => moment.to_string().replace(".000Z", "Z").into(),
        MomentFormat::Date => Timestamp::from_epoch_ms(ms + up(DAY_MS)).day().into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::configuration::parse;

    fn names(json: &Value) -> AttributeNames {
        let mut engine = json!({ "type": "openai", "url": "https://a.example/v1" });
        for (name, value) in json.as_object().unwrap() {
            engine[name] = value.clone();
        }
        let parsed = parse(&json!({ "e": engine }).to_string()).unwrap();
        parsed["e"].attributes.clone()
    }

    #[test]
    fn attributes_are_read_in_every_form_that_engines_write_them() {
        let names = names(&json!({ "fields": { "title": "headline" } }));
        let values = json!({
            "headline": " A title ", "page": "7", "chunk_index": 3.0, "section": "",
            "updated_at": 1_780_000_000, "domain": "hr",
        });
        let attributes = Attributes::new(&names, Some(&values));
        assert_eq!(attributes.text("title").unwrap(), "A title");
        assert_eq!(attributes.whole_number("page"), Some(7));
        assert_eq!(attributes.whole_number("chunk_index"), Some(3));
        assert_eq!(attributes.text("section"), None);
        assert_eq!(
            attributes.updated_at(),
            Some(Timestamp::from_epoch_seconds(1_780_000_000))
        );
        let metadata = attributes.metadata();
        assert_eq!(
            (&metadata["title"], &metadata["headline"]),
            (&json!(" A title "), &json!(" A title "))
        );

        let no_object = json!("no object");
        let none = Attributes::new(&names, Some(&no_object));
        assert_eq!(none.text("title"), None);
        assert!(none.metadata().is_empty());
    }

    #[test]
    fn a_moment_is_the_same_in_every_form() {
        let expected = Timestamp::parse("2026-11-30T08:15:00Z").unwrap();
        for value in [
            json!(1_796_026_500),
            json!(1_796_026_500.0),
            json!(1_796_026_500_000_u64),
            json!("1796026500"),
            json!("2026-11-30T08:15:00Z"),
            json!("2026-11-30T09:15:00+01:00"),
            json!("2026-11-30 08:15:00"),
            json!("2026-11-30T08:15:00.000"),
        ] {
            assert_eq!(moment(&value), Some(expected), "{value}");
        }
        for value in [json!("yesterday"), json!(null), json!("NaN"), json!([1])] {
            assert_eq!(moment(&value), None, "{value}");
        }
    }

    #[test]
    fn bounds_never_become_narrower_than_they_were() {
        use MomentFormat::{Date, EpochMilliseconds, EpochSeconds, Rfc3339};

        let moment = Timestamp::parse("2026-11-30T08:15:00.500Z").unwrap();
        let bound = |format, is_upper| written(moment, format, is_upper);
        assert_eq!(bound(EpochSeconds, false), json!(1_796_026_500));
        assert_eq!(bound(EpochSeconds, true), json!(1_796_026_501));
        assert_eq!(bound(EpochMilliseconds, true), json!(1_796_026_500_500_i64));
        assert_eq!(bound(Rfc3339, true), json!("2026-11-30T08:15:00.500Z"));
        assert_eq!(bound(Date, false), json!("2026-11-30"));
        assert_eq!(bound(Date, true), json!("2026-12-01"));
        let midnight = Timestamp::parse("2026-11-30").unwrap();
        assert_eq!(written(midnight, Date, true), json!("2026-11-30"));
        assert_eq!(
            written(midnight, Rfc3339, true),
            json!("2026-11-30T00:00:00Z")
        );
    }

    #[test]
    fn filters_become_conditions_under_the_names_of_the_engine() {
        let names = names(&json!({
            "fields": { "doc_type": "kind", "updated_at": "changed" }, "moments": "date"
        }));
        let filters = Filters {
            domain: vec!["hr".to_owned(), "it".to_owned()],
            updated_after: Some(Timestamp::parse("2026-01-02").unwrap()),
            metadata: vec![
                Condition {
                    field: "document_type".to_owned(),
                    comparison: Comparison::NoneOf(vec![json!("draft")]),
                },
                Condition {
                    field: "year".to_owned(),
                    comparison: Comparison::Less(json!(2024)),
                },
            ],
            ..Filters::default()
        };
        let conditions = conditions(&filters, &names, FilterAbilities::ALL).unwrap();
        let short: Vec<(&str, &str)> = conditions
            .iter()
            .map(|one| (one.field.as_str(), operator(&one.comparison)))
            .collect();
        assert_eq!(
            short,
            [
                ("domain", "in"),
                ("changed", "gt"),
                ("kind", "ne"),
                ("year", "lt")
            ]
        );
    }

    #[test]
    fn a_filter_that_the_engine_cannot_apply_is_named() {
        let filters = Filters {
            metadata: vec![Condition {
                field: "year".to_owned(),
                comparison: Comparison::Less(json!(2024)),
            }],
            ..Filters::default()
        };
        let refused = |fields, operators| {
            let abilities = FilterAbilities { fields, operators };
            let error = conditions(&filters, &AttributeNames::default(), abilities).unwrap_err();
            error.to_string()
        };
        assert!(refused(&["metadata"], &["eq"]).contains("metadata lt"));
        assert!(refused(&["domain"], &["lt"]).contains("\"metadata\""));
    }
}
