//! The two services behind knowledge bases of Bedrock: `bedrock-agent` knows what there is,
//! `bedrock-agent-runtime` searches.

use std::sync::Arc;

use aws_config::{Region, SdkConfig};
use raglan_aws::LazyAccount;
use raglan_aws::service::{BedrockAgent, BedrockAgentRuntime, Service, ServiceClient};
use raglan_aws::transport::network;
use raglan_core::clock::Clock;
use raglan_engines::configuration::BedrockSettings;
use tokio::sync::OnceCell;

use crate::exchange::Guard;

/// Clients, each with a breaker of its own: a search must not suffer from a list that fails.
pub(crate) struct Connection {
    account: Arc<LazyAccount>,
    region: Option<Region>,
    endpoint_url: Option<String>,
    agent: OnceCell<ServiceClient<BedrockAgent>>,
    runtime: OnceCell<ServiceClient<BedrockAgentRuntime>>,
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

    pub(crate) async fn agent(&self) -> &ServiceClient<BedrockAgent> {
        self.agent.get_or_init(|| self.client()).await
    }

    pub(crate) async fn runtime(&self) -> &ServiceClient<BedrockAgentRuntime> {
        self.runtime.get_or_init(|| self.client()).await
    }

    async fn client<S: Service>(&self) -> ServiceClient<S> {
        let account = self.account.config().await;
        client_in(account, self.region.clone(), self.endpoint_url.clone())
    }
}

/// A client of this account, in another region than the account's or at an endpoint of its own where these are given.
pub(crate) fn client_in<S: Service>(
    account: &SdkConfig,
    region: Option<Region>,
    endpoint_url: Option<String>,
) -> ServiceClient<S> {
    let mut config = account.to_builder();
    if region.is_some() {
        config.set_region(region);
    }
    ServiceClient::at(config.build(), endpoint_url, network())
}
