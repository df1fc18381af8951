//! The two services behind knowledge bases of Bedrock: `bedrock-agent` knows what there is,
//! `bedrock-agent-runtime` searches.

use std::sync::Arc;

use aws_config::Region;
use aws_sdk_bedrockagent as agent;
use aws_sdk_bedrockagentruntime as runtime;
use raglan_aws::LazyAccount;
use raglan_core::clock::Clock;
use raglan_engines::configuration::BedrockSettings;
use tokio::sync::OnceCell;

use crate::exchange::{CallBounds, Guard};

/// Clients, each with a breaker of its own: a search must not suffer from a list that fails.
pub(crate) struct Connection {
    account: Arc<LazyAccount>,
    region: Option<Region>,
    endpoint_url: Option<String>,
    agent: OnceCell<agent::Client>,
    runtime: OnceCell<runtime::Client>,
    /// Watches `bedrock-agent`.
    pub(crate) agent_guard: Guard,
    /// Watches `bedrock-agent-runtime`.
    pub(crate) runtime_guard: Guard,
}

impl Connection {
    /// Nothing is loaded or opened before the first call.
    pub(crate) fn new(
        name: &str,
        settings: &BedrockSettings,
        account: Arc<LazyAccount>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let guard = |service: &str| Guard::new(format!("{name} ({service})"), Arc::clone(clock));
        Self {
            account,
            region: settings.region.clone().map(Region::new),
            endpoint_url: settings.endpoint_url.as_ref().map(ToString::to_string),
            agent: OnceCell::const_new(),
            runtime: OnceCell::const_new(),
            agent_guard: guard("bedrock-agent"),
            runtime_guard: guard("bedrock-agent-runtime"),
        }
    }

    pub(crate) async fn agent(&self) -> &agent::Client {
        let make = || async {
            let mut config = agent::config::Builder::from(self.account.config().await);
            if let Some(region) = &self.region {
                config = config.region(region.clone());
            }
            if let Some(url) = &self.endpoint_url {
                config = config.endpoint_url(url);
            }
            agent::Client::from_conf(config.build())
        };
        self.agent.get_or_init(make).await
    }

    pub(crate) async fn runtime(&self) -> &runtime::Client {
        let make = || async {
            let mut config = runtime::config::Builder::from(self.account.config().await);
            if let Some(region) = &self.region {
                config = config.region(region.clone());
            }
            if let Some(url) = &self.endpoint_url {
                config = config.endpoint_url(url);
            }
            runtime::Client::from_conf(config.build())
        };
        self.runtime.get_or_init(make).await
    }
}

/// The configuration of one call of `bedrock-agent`.
pub(crate) fn for_agent(bounds: &CallBounds) -> agent::config::Builder {
    agent::config::Builder::new()
        .timeout_config(bounds.timeouts())
        .interceptor(bounds.courtesy.clone())
}

/// The configuration of one call of `bedrock-agent-runtime`.
pub(crate) fn for_runtime(bounds: &CallBounds) -> runtime::config::Builder {
    runtime::config::Builder::new()
        .timeout_config(bounds.timeouts())
        .interceptor(bounds.courtesy.clone())
}
