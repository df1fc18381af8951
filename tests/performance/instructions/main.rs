//! The requests whose instructions `tests/performance/gate` counts.
//!
//!     request-instructions prepare FOLDER
//!     request-instructions run FOLDER [CALL COUNT]
//!
//! `prepare` starts the local system, indexes the sample, sends every call once, and keeps what DynamoDB and SQS
//! answered. `run` answers calls from what was kept: the function's own code, through the AWS SDK, but
//! without a network, with a clock that stands still and repeatable randomness. The difference of two
//! runs is what a number of calls costs, without the start.

mod calls;
mod replay;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use raglan_aws::AwsClients;
use raglan_aws::transport::Transport;
use raglan_cli::dev::index_sample;
use raglan_cli::system::LocalSystem;
use raglan_core::clock::{ManualClock, Timestamp};
use raglan_core::random::SequenceRandom;
use raglan_engines::call::Surroundings;
use raglan_mcp::answers::Answers;
use raglan_mcp::app::App;
use raglan_mcp::backends::Backends;
use raglan_mcp::config::Config;
use raglan_telemetry::log;
use serde::{Deserialize, Serialize};
use tracing_subscriber::layer::SubscriberExt as _;

use self::calls::Call;
use self::replay::{KeptAnswers, keeping_answers, kept_answers};

/// When every call happens.
const NOW_EPOCH_SECONDS: i64 = 1_796_000_000;
const SEED: u64 = 20_261_130;
/// Calls of each kind before the ones that are counted: the index is open then, the limit remembered.
const WARM_UP_CALLS: usize = 3;
const PREPARED: &str = "prepared.json";

/// What `prepare` leaves for `run`.
#[derive(Serialize, Deserialize)]
struct Prepared {
    variables: HashMap<String, String>,
    key: String,
    answers: KeptAnswers,
}

// One thread, so that the order of the work is always the same.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["prepare", folder] => prepare(Path::new(folder)).await,
        ["run", folder] => run(Path::new(folder), None).await,
        ["run", folder, call, count] => {
            let call = Call::from_name(call).context("there is no call of this name")?;
            run(Path::new(folder), Some((call, count.parse()?))).await
        }
        _ => bail!("expected: prepare FOLDER, or run FOLDER [CALL COUNT]"),
    }
}

async fn prepare(folder: &Path) -> anyhow::Result<()> {
    let system = LocalSystem::start(&folder.join("state")).await?;
    index_sample(&system).await?;
    let (key, _) = system.mint_key("instructions").await?;
    let variables = system.variables().into_iter();
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    let (client, answers) = keeping_answers();
    let mut prepared = Prepared {
        variables: variables.collect(),
        key: key.reveal().to_owned(),
        answers: KeptAnswers::default(),
    };
    let app = prepared.app(client)?;
    for call in Call::ALL {
        call.send(&app, &prepared.key).await?;
    }
    prepared.answers = answers
        .lock()
        .map_err(|_| anyhow::anyhow!("a call panicked"))?
        .clone();
    std::fs::write(folder.join(PREPARED), serde_json::to_vec_pretty(&prepared)?)?;
    system.emulators.shutdown().await;
    Ok(())
}

async fn run(folder: &Path, counted: Option<(Call, usize)>) -> anyhow::Result<()> {
    // The log is written as in production, and thrown away.
    let layer = log::layer(tracing::Level::INFO, std::io::sink);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    let prepared: Prepared = serde_json::from_slice(&std::fs::read(folder.join(PREPARED))?)?;
    let app = prepared.app(kept_answers(prepared.answers.clone()))?;
    for call in Call::ALL {
        for _ in 0..WARM_UP_CALLS {
            call.send(&app, &prepared.key).await?;
        }
    }
    if let Some((call, count)) = counted {
        for _ in 0..count {
            call.send(&app, &prepared.key).await?;
        }
    }
    Ok(())
}

impl Prepared {
    fn app(&self, transport: Arc<dyn Transport>) -> anyhow::Result<App> {
        let config = Config::from_lookup(|name| self.variables.get(name).cloned())?;
        let url = |name: &str| self.variables.get(name).map_or("", String::as_str);
        let clients = AwsClients::for_local_endpoints_over(
            transport,
            url("AWS_ENDPOINT_URL_DYNAMODB"),
            url("AWS_ENDPOINT_URL_SQS"),
        );
        let now = Timestamp::from_epoch_seconds(NOW_EPOCH_SECONDS);
        let clock = Arc::new(ManualClock::at(now));
        let random = Arc::new(SequenceRandom::seeded(SEED));
        let surroundings =
            Surroundings::from_environment(Arc::clone(&clock) as _, Arc::clone(&random) as _);
        let backends = Backends::from_config(&config, &surroundings)?;
        let answers = Answers::from_config(config.answers.as_ref(), &surroundings)?;
        Ok(App::new(config, &clients, backends, answers, clock, random))
    }
}
