//! What is read here is what the SDK and `serde_dynamo` read.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use aws_sdk_dynamodb::operation::get_item::GetItemInput;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use raglan_aws::transport::Transport;
use raglan_aws::{DynamoDb, ServiceClient};
use raglan_core::catalog::KnowledgeBase;
use raglan_core::key_record::KeyRecord;
use raglan_core::task::Task;
use raglan_outbound::{Bounds, OutboundError};
use serde_json::{Map, Value, json};

use super::*;
use crate::meter_item::MeterItem;
use crate::table::{self, decode};
use crate::testing::{clients_at, key_record, knowledge_base};

/// The same answer to every request.
#[derive(Debug)]
struct Canned(Bytes);

impl Transport for Canned {
    fn send(
        &self,
        _: Request<Bytes>,
        _: Bounds,
    ) -> BoxFuture<'_, Result<Response<Bytes>, OutboundError>> {
        futures::future::ready(Ok(Response::new(self.0.clone()))).boxed()
    }
}

/// The item as the SDK reads it out of an answer to `GetItem`.
fn by_sdk(answer: &[u8]) -> Result<Option<table::Item>, String> {
    let account = clients_at("http://127.0.0.1:1").dynamodb.config().clone();
    let transport = Arc::new(Canned(Bytes::copy_from_slice(answer)));
    let client = ServiceClient::<DynamoDb>::new(account, transport);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().unwrap();
    let input = GetItemInput::builder().table_name("t").build();
    let output = runtime.block_on(client.send(input));
    output
        .map(|output| output.item)
        .map_err(|error| format!("{error:?}"))
}

#[derive(Deserialize)]
struct Found<T> {
    #[serde(rename = "Item", bound = "T: Deserialize<'de>")]
    item: Option<Record<T>>,
}

/// A type of record, with a name for its reader of the SDK's items.
trait Stored: DeserializeOwned + Debug + PartialEq {
    fn of_item(item: table::Item) -> Option<Self> {
        decode("t", "r", item).ok()
    }
}

impl Stored for KeyRecord {}
impl Stored for KnowledgeBase {}
impl Stored for Task {}
impl Stored for Shapes {}

impl Stored for MeterItem {
    fn of_item(item: table::Item) -> Option<Self> {
        Some(Self::from(&item))
    }
}

/// Every shape that a record's field may have.
#[derive(Debug, PartialEq, Deserialize)]
struct Shapes {
    text: Option<String>,
    whole: Option<i64>,
    small: Option<u8>,
    large: Option<u64>,
    float: Option<f64>,
    flag: Option<bool>,
    nothing: Option<()>,
    word: Option<Word>,
    wrapped: Option<Wrapped>,
    pair: Option<Pair>,
    texts: Option<Vec<String>>,
    numbers: Option<Vec<u32>>,
    pairs: Option<Vec<Pair>>,
    words: Option<Vec<Word>>,
    flags: Option<BTreeMap<String, Option<bool>>>,
    nested: Option<BTreeMap<String, Vec<Vec<u64>>>>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    One,
    #[serde(other)]
    Other,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Wrapped(u64);

#[derive(Debug, PartialEq, Deserialize)]
struct Pair {
    left: String,
    right: String,
}

/// What is read is what the SDK's way reads. Whether anything is read.
fn agrees<T: Stored>(answer: &[u8]) -> bool {
    let Some(Found { item }) = usual::<Found<T>>(answer) else {
        return false;
    };
    let shown = String::from_utf8_lossy(answer);
    let reference = by_sdk(answer).unwrap_or_else(|error| panic!("{error}: {shown}"));
    let reference = reference.map(|item| T::of_item(item).unwrap_or_else(|| panic!("{shown}")));
    assert_eq!(item.map(|Record(record)| record), reference, "{shown}");
    true
}

fn agrees_on_item<T: Stored>(item: &Value) -> bool {
    agrees::<T>(json!({ "Item": item }).to_string().as_bytes())
}

fn every_type_agrees(answer: &[u8]) {
    agrees::<KeyRecord>(answer);
    agrees::<KnowledgeBase>(answer);
    agrees::<Task>(answer);
    agrees::<MeterItem>(answer);
    agrees::<Shapes>(answer);
}

/// The attribute that a field is stored as.
fn stored(field: &Value) -> Value {
    match field {
        Value::Null => json!({ "NULL": true }),
        Value::Bool(flag) => json!({ "BOOL": flag }),
        Value::Number(number) => json!({ "N": number.to_string() }),
        Value::String(text) => json!({ "S": text }),
        Value::Array(list) => json!({ "L": list.iter().map(stored).collect::<Vec<_>>() }),
        Value::Object(map) => json!({ "M": attributes(map) }),
    }
}

fn attributes(fields: &Map<String, Value>) -> Map<String, Value> {
    let fields = fields.iter();
    fields
        .map(|(name, field)| (name.clone(), stored(field)))
        .collect()
}

fn item_of(record: &impl serde::Serialize) -> Map<String, Value> {
    attributes(serde_json::to_value(record).unwrap().as_object().unwrap())
}

fn ordinary_items() -> [Map<String, Value>; 5] {
    let key = serde_json::to_value(key_record("key-1", 1)).unwrap();
    let mut key = attributes(key.as_object().unwrap());
    key.extend(attributes(
        json!({
            "tools": ["retrieve", "ask", "unheard_of"], "scope": "list", "kb_ids": ["handbook", "*"],
            "owner": "anna", "expires_at": "2027-01-01", "audit_text": "hash", "revision": 3,
            "rate_limit": { "requests_per_minute": 60, "burst": 10 },
        })
        .as_object()
        .unwrap(),
    ));
    let mut base = item_of(&KnowledgeBase {
        chunk_count: Some(u64::MAX),
        ..knowledge_base("handbook", Some("anna"))
    });
    base.extend(attributes(
        json!({ "partition": "all", "sort": "handbook" })
            .as_object()
            .unwrap(),
    ));
    let task = json!({
        "id": "0a1b", "kb_id": "handbook", "document_id": null, "status": "partial", "retry_count": 2,
        "error": { "class": "storage", "message": "\u{1f600} \"quoted\"\n" },
        "created_at": "2026-11-30", "updated_at": "2026-11-30T08:15:00Z", "expires_at": 1_800_000_000,
    });
    let meter = json!({
        "partition": "key#0", "sort": "meter", "full_at_us": 1_800_000_000_000_000_i64, "quota_day": 20_833,
        "rate_limit": "60/10", "last_used_ms": 5, "call_count": 9, "today_ask": 2, "today_retrieve": 0,
        "today_unheard_of": 4, "expires_at": 1_834_560_000,
    });
    let shapes = json!({
        "text": "\u{0}/\\", "whole": -5, "small": 255, "large": u64::MAX, "float": 0.25, "flag": true,
        "word": "one", "wrapped": 7, "pair": { "left": "l", "right": "r" }, "texts": ["a", ""],
        "numbers": [1, 2], "pairs": [{ "left": "l", "right": "r" }], "words": ["one", "two"],
        "flags": { "one": true, "two": null }, "nested": { "a": [[1], []], "": [] }, "nothing": null,
    });
    let of = |record: Value| attributes(record.as_object().unwrap());
    [key, base, of(task), of(meter), of(shapes)]
}

/// Any attribute: of all types, the ones that are not read here among them.
fn attribute() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("one".to_owned()),
        Just("60/10".to_owned()),
        Just("2026-11-30".to_owned()),
        any::<String>(),
    ];
    let number = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u8>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| number.to_string()),
        Just("99999999999999999999999999999999999999".to_owned()),
        Just("1E+5".to_owned()),
        Just("5.0".to_owned()),
        Just("+5".to_owned()),
        Just("five".to_owned()),
    ];
    let leaf = prop_oneof![
        text.clone().prop_map(|text| json!({ "S": text })),
        number.clone().prop_map(|number| json!({ "N": number })),
        any::<bool>().prop_map(|flag| json!({ "BOOL": flag })),
        any::<bool>().prop_map(|flag| json!({ "NULL": flag })),
        Just(json!({ "B": "aGk=" })),
        vec(text, 0..3).prop_map(|texts| json!({ "SS": texts })),
        vec(number, 0..3).prop_map(|numbers| json!({ "NS": numbers })),
        Just(json!({ "BS": ["aGk="] })),
        // What DynamoDB never sends.
        Just(json!({ "S": 5 })),
        Just(json!({ "N": 5 })),
        Just(json!({ "SS": [5] })),
        Just(json!({ "S": "a", "N": "5" })),
        Just(json!({ "S": "a", "NULL": null })),
        Just(json!({ "Z": "a" })),
        Just(json!({})),
        Just(json!(null)),
        Just(json!("text")),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|list| json!({ "L": list })),
            btree_map(name(), inner, 0..4).prop_map(|map| json!({ "M": map })),
        ]
    })
}

fn name() -> impl Strategy<Value = String> {
    let names: Vec<_> = ordinary_items()
        .into_iter()
        .flat_map(|item| item.into_iter().map(|(name, _)| name))
        .chain(["left", "right", "kind", "id", "one"].map(ToOwned::to_owned))
        .collect();
    prop_oneof![4 => prop::sample::select(names), 1 => any::<String>()]
}

/// An ordinary item, some of whose attributes are others or missing.
fn changed_item() -> impl Strategy<Value = Map<String, Value>> {
    let change = (name(), prop::option::weighted(0.7, attribute()));
    let changes = vec(change, 0..3);
    (prop::sample::select(ordinary_items().to_vec()), changes).prop_map(|(mut item, changes)| {
        for (name, attribute) in changes {
            match attribute {
                Some(attribute) => item.insert(name, attribute),
                None => item.shift_remove(&name),
            };
        }
        item
    })
}

#[test]
fn ordinary_items_are_read_here_and_as_the_sdk_reads_them() {
    let [key, base, task, meter, shapes] = ordinary_items().map(Value::Object);
    assert!(agrees_on_item::<KeyRecord>(&key));
    assert!(agrees_on_item::<KnowledgeBase>(&base));
    assert!(agrees_on_item::<Task>(&task));
    assert!(agrees_on_item::<MeterItem>(&meter));
    assert!(agrees_on_item::<Shapes>(&shapes));

    let sets = json!({ "tools": { "SS": ["ask"] }, "kb_ids": { "SS": [] } });
    let mut key = key.as_object().unwrap().clone();
    key.extend(sets.as_object().unwrap().clone());
    assert!(agrees_on_item::<KeyRecord>(&Value::Object(key)));
    assert!(agrees::<KeyRecord>(b"{}"));
    assert!(agrees::<KeyRecord>(
        br#"{"Item":null,"ConsumedCapacity":{"TableName":"keys"}}"#
    ));
}

#[test]
fn what_is_out_of_the_ordinary_is_left_to_the_sdk() {
    let with = |attribute: &str| format!(r#"{{"Item":{{"text":{{"S":"a"}},{attribute}}}}}"#);
    for attribute in [
        r#""small":{"N":"256"}"#,
        r#""small":{"N":"-1"}"#,
        r#""small":{"S":"5"}"#,
        r#""small":{"N":"5.0"}"#,
        r#""large":{"N":"18446744073709551616"}"#,
        r#""flag":{"S":"true"}"#,
        r#""nothing":{"NULL":false}"#,
        r#""word":{"M":{"one":{"S":"a"}}}"#,
        r#""pair":{"SS":["l","r"]}"#,
        r#""texts":{"NS":["5"]}"#,
        r#""texts":{"SS":[5]}"#,
        r#""unknown":{"B":"aGk="}"#,
        r#""unknown":{"S":"\ud800"}"#,
        r#""unknown":{"S":5}"#,
        r#""unknown":{"Z":5}"#,
        r#""unknown":{"S":"a","N":"5"}"#,
        r#""unknown":{}"#,
        r#""unknown":null"#,
        // The last one counts for the SDK.
        r#""text":{"S":"b"}"#,
    ] {
        assert!(!agrees::<Shapes>(with(attribute).as_bytes()), "{attribute}");
    }
    for answer in [
        "",
        "no json",
        r#"{"Item":{}} {}"#,
        r#"{"Item":[]}"#,
        "[null]",
    ] {
        assert!(!agrees::<Shapes>(answer.as_bytes()), "{answer}");
    }
}

#[test]
fn items_are_read_as_deep_as_dynamodb_stores_them_and_deeper_ones_end_in_nothing() {
    let nested = |levels: usize| {
        let (open, close) = (r#"{"L":["#.repeat(levels), "]}".repeat(levels));
        format!(r#"{{"Item":{{"unknown":{open}{{"N":"5"}}{close}}}}}"#)
    };
    assert!(agrees::<Shapes>(nested(32).as_bytes()));
    assert!(!agrees::<Shapes>(nested(100_000).as_bytes()));
}

proptest! {
    #[test]
    fn every_item_is_read_as_the_sdk_reads_it_or_left_to_the_sdk(item in changed_item()) {
        let answer = json!({ "Item": item }).to_string();
        every_type_agrees(answer.as_bytes());
        // Letters that are in no other word of JSON than names and texts.
        let escaped = answer.replace('i', r"\u0069").replace('o', r"\u006F");
        every_type_agrees(escaped.as_bytes());
    }

    #[test]
    fn a_damaged_answer_is_read_as_the_sdk_reads_it_or_left_to_the_sdk(
        item in changed_item(), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), end in any::<prop::sample::Index>(),
    ) {
        let mut answer = json!({ "Item": item }).to_string().into_bytes();
        for (at, byte) in damage {
            let at = at.index(answer.len());
            answer[at] = byte;
        }
        every_type_agrees(&answer);
        answer.truncate(end.index(answer.len()));
        every_type_agrees(&answer);
    }

    #[test]
    fn no_bytes_break_the_reader(answer in vec(any::<u8>(), 0..64)) {
        every_type_agrees(&answer);
    }
}
