//! What the tests of this crate stand on: a server that obeys, and what engines share.

mod fake_engine;

use std::sync::Arc;
use std::time::Duration;

use raglan_core::clock::{ManualClock, Timestamp};
use raglan_core::random::SequenceRandom;
use raglan_outbound::OutboundClient;

use crate::call::{CredentialHeader, EngineClient, ExchangeLimits, Surroundings};
use crate::configuration::EngineUrl;
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
