use super::*;
use crate::audit_append::AuditWriter;
use crate::testing::{audit_event, audit_writer, local_audit_table, soon};

async fn filled(ids: &[&str]) -> (AuditTable, AuditWriter) {
    let table = local_audit_table().await;
    let writer = audit_writer(&table, 400);
    for id in ids {
        append(&writer, id, None).await;
    }
    (table, writer)
}

async fn append(writer: &AuditWriter, id: &str, owner: Option<&str>) {
    let mut event = audit_event(id);
    event.owner = owner.map(ToOwned::to_owned);
    let record = AuditRecord::parse(&serde_json::to_string(&event).unwrap()).unwrap();
    writer.append(&[&record], soon()).await.remove(0).unwrap();
}

fn ids(records: &[AuditRecord]) -> Vec<&str> {
    records
        .iter()
        .map(|record| record.event().event_id.as_str())
        .collect()
}

#[tokio::test]
async fn a_trail_is_followed_from_the_last_event_on() {
    let (table, _) = filled(&["event-3", "event-1", "event-2", "event-4"]).await;
    let day = audit_event("event-1").at.day();
    let all = Bounds::default();
    let found = table.page(Slice::Day(&day), all).await.unwrap();
    assert_eq!(ids(&found), ["event-1", "event-2", "event-3", "event-4"]);
    for slice in [Slice::Day(&day), Slice::Key("key-1", &day)] {
        let after = Bounds {
            after: Some("event-2"),
            until: None,
        };
        let found = table.page(slice, after).await.unwrap();
        assert_eq!(ids(&found), ["event-3", "event-4"]);
        let between = Bounds {
            until: Some("event-3"),
            ..after
        };
        let found = table.page(slice, between).await.unwrap();
        assert_eq!(ids(&found), ["event-3"]);
        let empty = Bounds {
            until: Some("event-2"),
            ..after
        };
        assert_eq!(table.page(slice, empty).await, Ok(Vec::new()));
        let until = Bounds {
            after: None,
            ..empty
        };
        let found = table.page(slice, until).await.unwrap();
        assert_eq!(ids(&found), ["event-1", "event-2"]);
    }
    for slice in [Slice::Key("key-2", &day), Slice::Day("2020-01-01")] {
        assert_eq!(table.page(slice, all).await, Ok(Vec::new()));
    }
}

#[tokio::test]
async fn an_owners_events_are_found_without_those_of_others() {
    let (table, writer) = filled(&["event-1"]).await;
    append(&writer, "event-2", Some("anna")).await;
    append(&writer, "event-3", Some("ben")).await;
    let day = audit_event("event-1").at.day();
    let found = table
        .page(Slice::Owner("anna", &day), Bounds::default())
        .await
        .unwrap();
    assert_eq!(ids(&found), ["event-2"]);
}

#[test]
fn shards_are_merged_only_as_far_as_all_of_them_are_known() {
    let page = |ids: &[&str], has_more| {
        let records = ids.iter().map(|id| {
            let json = serde_json::to_string(&audit_event(id)).unwrap();
            AuditRecord::parse(&json).unwrap()
        });
        Page {
            records: records.collect(),
            has_more,
        }
    };
    let pages = || {
        vec![
            page(&["a", "d"], true),
            page(&["b", "c", "e"], true),
            page(&["f"], false),
        ]
    };
    assert_eq!(ids(&merge(pages())), ["a", "b", "c", "d"]);
    let mut last = pages();
    for page in &mut last {
        page.has_more = false;
    }
    assert_eq!(ids(&merge(last)), ["a", "b", "c", "d", "e", "f"]);
}

#[tokio::test]
async fn an_event_that_no_chain_knows_is_seen_in_the_index() {
    let (table, _) = filled(&["event-1"]).await;
    let day = audit_event("event-1").at.day();
    let keys = table.keys_seen(&day).await.unwrap();
    assert_eq!(keys.into_iter().collect::<Vec<_>>(), ["key-1"]);
    let item = Item::from([
        (PARTITION.to_owned(), text(format!("intruder#{day}"))),
        (EVENT_ID.to_owned(), text("event-9")),
        (DAY.to_owned(), text(format!("{day}#0"))),
    ]);
    let put = table.client.sdk().put_item().table_name("audit");
    put.set_item(Some(item)).send().await.unwrap();
    let keys = table.keys_seen(&day).await.unwrap();
    assert!(keys.contains("intruder"));
    let heads = table.heads(&day).await.unwrap();
    assert_eq!(heads.keys().collect::<Vec<_>>(), ["key-1"]);
}

/// An event as a version without chains stored it.
#[tokio::test]
async fn an_event_from_before_there_were_chains_is_read_and_belongs_to_no_chain() {
    let (table, _) = filled(&["event-2"]).await;
    let mut event = audit_event("event-1");
    let day = event.at.day();
    event.owner = Some("anna".to_owned());
    let mut item: Item = crate::table::encode("audit", "event-1", &event).unwrap();
    item.insert(PARTITION.to_owned(), text(event.partition()));
    item.insert(DAY.to_owned(), text(&day));
    let put = table.client.sdk().put_item().table_name("audit");
    put.set_item(Some(item)).send().await.unwrap();
    for slice in [Slice::Day(&day), Slice::Key("key-1", &day)] {
        let found = table.all(slice, Bounds::default()).await.unwrap();
        assert_eq!(ids(&found), ["event-1", "event-2"]);
        assert_eq!(found[0].event(), &event);
    }
    let records = table.chain("key-1", &day).await.unwrap();
    let head = table.head("key-1", &day).await.unwrap();
    let faults = raglan_core::audit_chain::verify(&records, head, head, &[]);
    let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults, ["event event-1 has no place in the chain"]);
}

#[tokio::test]
async fn a_chain_is_open_until_a_root_covers_its_end() {
    let (table, writer) = filled(&["event-1"]).await;
    let day = audit_event("event-1").at.day();
    assert_eq!(table.open_before(&day).await, Ok(Vec::new()));
    let next_day = "2027-01-16";
    let open = table.open_before(next_day).await.unwrap();
    assert_eq!(
        (open[0].day.as_str(), open[0].key.as_str()),
        (&*day, "key-1")
    );
    // A late event, which comes while the day is closed, keeps the chain open.
    let later = ManualClock::at(audit_event("x").at.plus_seconds(86_400));
    let late = AuditWriter::new(
        table.clone(),
        400,
        std::sync::Arc::new(later),
        std::sync::Arc::new(raglan_core::random::SequenceRandom::seeded(1)),
    );
    append(&late, "event-2", None).await;
    table.mark_closed(&open[0]).await.unwrap();
    let still = table.open_before(next_day).await.unwrap();
    assert_eq!(still.len(), 1);
    table.mark_closed(&still[0]).await.unwrap();
    assert_eq!(table.open_before(next_day).await, Ok(Vec::new()));
    // An event that comes on its own day does not open the chain again.
    append(&writer, "event-3", None).await;
    assert_eq!(table.open_before(next_day).await, Ok(Vec::new()));
    append(&late, "event-4", None).await;
    assert_eq!(table.open_before(next_day).await.unwrap().len(), 1);
}

use raglan_core::clock::ManualClock;

/// What a query may do is decided by what this crate calls: no function of the trail scans.
#[test]
fn the_trail_is_never_scanned() {
    for source in [
        include_str!("../audit_table.rs"),
        include_str!("../audit_append.rs"),
        include_str!("../audit_record.rs"),
    ] {
        assert!(!source.contains(".scan("));
        assert!(!source.contains(".execute_statement("));
    }
}
