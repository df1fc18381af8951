//! What the tests of this crate stand on: a server that obeys, and what engines share.

mod fake_engine;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use raglan_aws::LazyAccount;
use raglan_core::clock::{ManualClock, Timestamp};
use raglan_core::random::SequenceRandom;
use raglan_outbound::OutboundClient;
use raglan_rag::backend::{Comparison, Condition, Filters, RetrieveRequest};
use serde_json::{Value, json};

use crate::call::{CredentialHeader, EngineClient, ExchangeLimits, Surroundings};
use crate::configuration::{Configuration, EngineUrl, parse};
use crate::credentials::{CredentialReference, Credentials};

pub use fake_engine::{Behaviour, FakeEngine};

/// The moment at which all of this happens.
pub const NOW: &str = "2026-11-30T12:00:00Z";
/// The credential that `env:ENGINE_KEY` leads to.
pub const SECRET: &str = "sk-the-engine-and-nobody-else";
/// Answers are no larger in tests.
pub const RESPONSE_MAX_BYTES: usize = 256 * 1024;

/// The test's clock, standing at [`NOW`].
pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::parse(NOW).unwrap()))
}

/// What engines share, with the variable `ENGINE_KEY` in the environment and AWS nowhere.
pub fn surroundings(clock: &Arc<ManualClock>) -> Surroundings {
    let config = aws_config::SdkConfig::builder()
        .behavior_version(aws_config::BehaviorVersion::latest())
        .build();
    let environment = |name: &str| (name == "ENGINE_KEY").then(|| SECRET.to_owned());
    let credentials = Credentials::of_config(&config, environment, Arc::clone(clock) as _);
    Surroundings {
        outbound: Arc::new(OutboundClient::default()),
        credentials: Arc::new(credentials),
        account: Arc::new(LazyAccount::loaded(config)),
        clock: Arc::clone(clock) as _,
        random: Arc::new(SequenceRandom::seeded(7)),
    }
}

/// A connection to the server at `url`, with the credential.
pub fn client(url: &str, surroundings: Surroundings) -> EngineClient {
    EngineClient::new(
        "engine".to_owned(),
        EngineUrl::parse(url).unwrap(),
        Some(CredentialReference::parse("env:ENGINE_KEY").unwrap()),
        CredentialHeader::Bearer,
        ExchangeLimits {
            attempt_timeout: Duration::from_secs(5),
            response_max_bytes: RESPONSE_MAX_BYTES,
        },
        surroundings,
    )
}

/// An engine of this type at this URL, with further settings.
pub fn configuration(kind: &str, url: &str, settings: &Value) -> Configuration {
    let mut engine = json!({ "type": kind, "url": url });
    for (name, value) in settings.as_object().unwrap() {
        engine[name] = value.clone();
    }
    parse(&json!({ "e": engine }).to_string()).unwrap()["e"].clone()
}

/// A request for passages, with these filters.
pub fn retrieve_request(filters: Filters) -> RetrieveRequest {
    RetrieveRequest {
        query: "How long is parental leave?".to_owned(),
        top_k: 5,
        min_score: None,
        filters,
    }
}

/// Filters on one field of the metadata.
pub fn metadata_filter(field: &str, comparison: Comparison) -> Filters {
    Filters {
        metadata: vec![Condition {
            field: field.to_owned(),
            comparison,
        }],
        ..Filters::default()
    }
}

/// Any JSON, with these names in its objects and these texts among its values: what an engine may send
/// that keeps to nothing, but knows the words.
pub fn any_json(
    names: &'static [&'static str],
    texts: &'static [&'static str],
) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        proptest::sample::select(texts).prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        let name = proptest::sample::select(names).prop_map(str::to_owned);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(name, inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}
