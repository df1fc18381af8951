//! Items to records and back, the same way for every table.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_dynamo::aws_sdk_dynamodb_1::{from_item, to_item};

use crate::error::StoreError;

/// What DynamoDB stores under one key.
pub(crate) type Item = HashMap<String, AttributeValue>;

/// A text attribute.
pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// A whole number of an item; 0 when it is not there.
pub(crate) fn number_of(item: &Item, name: &str) -> i64 {
    let value = item.get(name).and_then(|value| value.as_n().ok());
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// The record as an item. `name` says which record it is, without its content.
pub(crate) fn encode<T: Serialize>(
    table: &str,
    name: &str,
    record: &T,
) -> Result<Item, StoreError> {
    to_item(record).map_err(|_| corrupt(table, name))
}

/// The record out of its item. `name` says which record it is, without its content: what the decoder
/// has to say is left out, because it quotes the content.
pub(crate) fn decode<T: DeserializeOwned>(
    table: &str,
    name: &str,
    item: Item,
) -> Result<T, StoreError> {
    from_item(item).map_err(|_| corrupt(table, name))
}

/// The readable records of a list. One that cannot be read is logged and left out, so that it does
/// not take the others down; nothing is ever permitted by a record that is not there.
pub(crate) fn decode_all<T: DeserializeOwned>(
    table: &str,
    name_attribute: &str,
    items: Vec<Item>,
) -> Vec<T> {
    let mut records = Vec::with_capacity(items.len());
    for item in items {
        let name = match item.get(name_attribute) {
            Some(AttributeValue::S(name)) => name.clone(),
            _ => "an unnamed record".to_owned(),
        };
        match decode(table, &name, item) {
            Ok(record) => records.push(record),
            Err(error) => tracing::error!(%error, "a record is left out"),
        }
    }
    records
}

fn corrupt(table: &str, name: &str) -> StoreError {
    StoreError::Corrupt {
        resource: table.to_owned(),
        record: name.to_owned(),
    }
}
