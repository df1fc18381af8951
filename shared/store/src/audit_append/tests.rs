use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use proptest::prelude::*;
use raglan_core::audit::AuditEvent;
use raglan_core::audit_chain::verify;
use serde_json::json;

use super::*;
use crate::testing::{
    audit_event, audit_writer, clients_at, local_audit_table, nobody_listens, scripted, soon,
};

const KEY: &str = "key-1";
const DAY: &str = "2027-01-15";

fn record(event: &AuditEvent) -> AuditRecord {
    AuditRecord::parse(&serde_json::to_string(event).unwrap()).unwrap()
}

fn named(id: &str) -> AuditRecord {
    record(&audit_event(id))
}

/// The chain's length, after it was verified.
async fn verified(table: &AuditTable) -> u64 {
    let head = table.head(KEY, DAY).await.unwrap();
    let records = table.chain(KEY, DAY).await.unwrap();
    assert_eq!(verify(&records, head, head, &[]), []);
    assert_eq!(records.len() as u64, head.sequence);
    head.sequence
}

async fn items(table: &AuditTable) -> Vec<Item> {
    let scan = table.client.sdk().scan().table_name("audit").send().await;
    let items = scan.unwrap().items.unwrap();
    let is_event = |item: &Item| item.contains_key("request_id");
    items.into_iter().filter(is_event).collect()
}

#[tokio::test]
async fn an_event_that_is_delivered_twice_is_stored_once() {
    let table = local_audit_table().await;
    let writer = audit_writer(&table, 400);
    let (one, two) = (named("event-1"), named("event-2"));
    assert_eq!(writer.append(&[&one], soon()).await, [Ok(Stored::New)]);
    let later = record(&AuditEvent {
        http_status: 500,
        ..audit_event("event-1")
    });
    let results = writer.append(&[&later, &two, &two], soon()).await;
    let [there, new] = [Ok(Stored::AlreadyThere), Ok(Stored::New)];
    assert_eq!(results, [there.clone(), new, there]);
    let stored = items(&table).await;
    let statuses: BTreeSet<_> = stored
        .iter()
        .map(|item| item["http_status"].as_n().unwrap().as_str())
        .collect();
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), ["200"]);
    assert_eq!(verified(&table).await, 2);
}

#[tokio::test]
async fn writers_that_meet_leave_one_chain_without_a_gap() {
    let table = local_audit_table().await;
    let writers = (0..8).map(|writer| {
        let table = table.clone();
        tokio::spawn(async move {
            let random = raglan_core::random::SequenceRandom::seeded(writer);
            let clock = raglan_core::clock::ManualClock::at(audit_event("x").at);
            let (clock, random) = (Arc::new(clock), Arc::new(random));
            let writer_of = AuditWriter::new(table, 400, clock, random);
            for batch in 0..4 {
                // Half of the events come from two writers.
                let ids = (0..6).map(|n| match n {
                    0..3 => named(&format!("shared-{}-{batch}-{n}", writer / 2)),
                    _ => named(&format!("own-{writer}-{batch}-{n}")),
                });
                let records: Vec<_> = ids.collect();
                let records: Vec<_> = records.iter().collect();
                for result in writer_of.append(&records, soon()).await {
                    result.unwrap();
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(verified(&table).await, 8 * 4 * 3 + 4 * 4 * 3);
}

#[tokio::test]
async fn more_events_than_one_transaction_takes_are_all_stored() {
    let table = local_audit_table().await;
    let writer = audit_writer(&table, 400);
    let records: Vec<_> = (0..200).map(|n| named(&format!("event-{n:03}"))).collect();
    let results = writer
        .append(&records.iter().collect::<Vec<_>>(), soon())
        .await;
    assert_eq!(results, vec![Ok(Stored::New); 200]);
    assert_eq!(verified(&table).await, 200);
}

#[tokio::test]
async fn fields_of_a_newer_writer_are_stored_and_the_expiry_counts_from_the_event() {
    let table = local_audit_table().await;
    let event = audit_event("event-1");
    let mut json = serde_json::to_value(&event).unwrap();
    json["schema_version"] = 2.into();
    json["cost"] = json!({"tokens": 12});
    json["expires_at"] = "never".into();
    json["chain_hash"] = "none".into();
    let newer = AuditRecord::parse(&json.to_string()).unwrap();
    let results = audit_writer(&table, 400).append(&[&newer], soon()).await;
    assert_eq!(results, [Ok(Stored::New)]);

    let item = &items(&table).await[0];
    let cost = item["cost"].as_m().unwrap();
    assert_eq!(cost["tokens"], AttributeValue::N("12".to_owned()));
    let end = event.at.plus_seconds(400 * SECONDS_PER_DAY).epoch_seconds();
    assert_eq!(item[EXPIRES_AT], AttributeValue::N(end.to_string()));
    assert_eq!(verified(&table).await, 1);
}

fn cancelled(codes: &[&str]) -> (u16, String) {
    let reasons: Vec<_> = codes.iter().map(|code| json!({ "Code": code })).collect();
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": "Transaction cancelled",
        "CancellationReasons": reasons,
    });
    (400, body.to_string())
}

/// The answers of a table that has no head yet, and then of its transaction.
fn script(answers: Vec<(u16, String)>) -> Vec<(u16, String)> {
    let no_head = (200, "{}".to_owned());
    answers
        .into_iter()
        .flat_map(|answer| [no_head.clone(), answer])
        .collect()
}

async fn appended_at(url: &str, ids: &[&str]) -> Vec<Result<Stored, StoreError>> {
    let table = AuditTable::new(clients_at(url).dynamodb, "audit");
    let records: Vec<_> = ids.iter().map(|id| named(id)).collect();
    let records: Vec<_> = records.iter().collect();
    audit_writer(&table, 400).append(&records, soon()).await
}

#[tokio::test]
async fn what_the_table_has_no_time_for_is_tried_again() {
    let stored = (200, "{}".to_owned());
    let server = scripted(script(vec![
        cancelled(&["TransactionConflict", "None", "None"]),
        cancelled(&["None", "ThrottlingError", "None"]),
        cancelled(&["None", "None", "ProvisionedThroughputExceeded"]),
        cancelled(&["ConditionalCheckFailed", "None", "None"]),
        stored,
    ]))
    .await;
    let results = appended_at(&server.url, &["event-1", "event-2"]).await;
    assert_eq!(results, [Ok(Stored::New), Ok(Stored::New)]);
    assert_eq!(server.requests().len(), 10);
}

#[tokio::test]
async fn an_event_that_the_table_refuses_does_not_hold_back_the_others() {
    let stored = (200, "{}".to_owned());
    let refused = cancelled(&["None", "ValidationError", "None", "None"]);
    let there = cancelled(&["None", "None", "ConditionalCheckFailed", "None"]);
    let server = scripted(script(vec![refused, there, stored])).await;
    let results = appended_at(&server.url, &["event-1", "event-2", "event-3"]).await;
    assert!(
        matches!(&results[0], Err(StoreError::Refused { code, .. }) if code == "ValidationError")
    );
    assert_eq!(results[1..], [Ok(Stored::New), Ok(Stored::AlreadyThere)]);
    // Who is left is linked anew, from the first place on.
    let last: serde_json::Value = serde_json::from_str(&server.requests()[5]).unwrap();
    let put = &last["TransactItems"][1]["Put"]["Item"];
    assert_eq!(put["event_id"]["S"], "event-2");
    assert_eq!(put["chain_sequence"]["N"], "1");
}

#[tokio::test]
async fn an_event_for_which_the_whole_call_is_refused_does_not_hold_back_the_others() {
    let whole = r#"{"__type":"com.amazon.coral.validate#ValidationException","message":"no"}"#;
    let refused = (400, whole.to_owned());
    let stored = (200, "{}".to_owned());
    let server = scripted(script(vec![refused.clone(), refused, stored])).await;
    let results = appended_at(&server.url, &["event-1", "event-2"]).await;
    assert!(
        matches!(&results[0], Err(StoreError::Refused { .. })),
        "{results:?}"
    );
    assert_eq!(results[1..], [Ok(Stored::New)]);
}

#[tokio::test]
async fn nothing_is_stored_without_a_table_or_without_the_right_to_it() {
    let nobody = AuditTable::new(clients_at(&nobody_listens().await).dynamodb, "audit");
    let until = Instant::now() + Duration::from_millis(50);
    let event = named("event-1");
    let writer = audit_writer(&nobody, 400);
    let error = writer.append(&[&event], until).await.remove(0);
    assert!(
        matches!(error, Err(StoreError::Unavailable { .. })),
        "{error:?}"
    );
    let denied = r#"{"__type":"AccessDeniedException","message":"no"}"#;
    let server = scripted(vec![(400, denied.to_owned())]).await;
    let error = appended_at(&server.url, &["event-1"]).await.remove(0);
    assert!(matches!(error, Err(StoreError::Denied { .. })), "{error:?}");
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(|number| json!(number)),
        any::<u64>().prop_map(|number| json!(number)),
        (-1e15..1e15).prop_map(|number| json!(number)),
        (-1e-9..1e-9).prop_map(|number| json!(number)),
        any::<i32>().prop_map(|number| json!(f64::from(number))),
    ];
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        number,
        ".*".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::btree_map("[a-zé\"]{1,8}", inner, 0..4)
                .prop_map(|fields| json!(fields)),
        ]
    })
}

#[test]
fn whatever_an_event_holds_its_hash_is_the_same_after_it_was_stored() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let table = runtime.block_on(local_audit_table());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(64));
    let mut n = 0;
    let values = std::cell::RefCell::new(Vec::new());
    runner
        .run(&any_json(), |value| {
            values.borrow_mut().push(value);
            Ok(())
        })
        .unwrap();
    runtime.block_on(async {
        for value in values.into_inner() {
            n += 1;
            let mut json = serde_json::to_value(audit_event(&format!("event-{n}"))).unwrap();
            json["anything"] = value;
            let record = AuditRecord::parse(&json.to_string()).unwrap();
            let results = audit_writer(&table, 400).append(&[&record], soon()).await;
            assert_eq!(results, [Ok(Stored::New)], "{json}");
        }
        assert_eq!(verified(&table).await, n);
    });
}
