//! The account that an operator chose, and clients for the two services, with deadlines.

use std::fmt;
use std::sync::Arc;

use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_smithy_async::time::{SharedTimeSource, SystemTimeSource};
use futures::future::BoxFuture;
use tokio::sync::OnceCell;

use crate::retry::{FIRST_PAUSE, MAX_ATTEMPTS};
use crate::service::{DynamoDb, OPERATION_TIMEOUT, ServiceClient, Sqs};
use crate::transport::{ATTEMPT_TIMEOUT, CONNECT_TIMEOUT, Transport, network, sdk_http_client};

/// The region that the embedded emulators pretend to be in.
const LOCAL_REGION: &str = "us-east-1";

/// What an operator says about the account to use, instead of the environment.
#[derive(Debug, Clone, Default)]
pub struct AccountChoice {
    /// A profile of the shared configuration files; its credentials come before the environment's.
    pub profile: Option<String>,
    /// The region; it comes before the environment's and the profile's.
    pub region: Option<String>,
}

impl AccountChoice {
    /// The region: the chosen one, the environment's, the profile's; `None` when nobody names one.
    pub async fn region(&self) -> Option<Region> {
        let mut of_profile = ProfileFileRegionProvider::builder();
        if let Some(profile) = &self.profile {
            of_profile = of_profile.profile_name(profile);
        }
        // The SDK's own chain would ask the EC2 metadata service for a region.
        RegionProviderChain::first_try(self.region.clone().map(Region::new))
            .or_else(EnvironmentVariableRegionProvider::new())
            .or_else(of_profile.build())
            .region()
            .await
    }

    /// Region, credentials, endpoints, deadlines: what every client of the account is made of. Nothing
    /// is asked over the network.
    pub async fn load(&self) -> SdkConfig {
        let region = self.region().await;
        let http_client = sdk_http_client();
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http_client.clone())
            .timeout_config(timeouts())
            .retry_config(retries());
        if let Some(profile) = &self.profile {
            // Roles are assumed over the network: without this there would be no client for it.
            let provider = ProviderConfig::without_region()
                .with_region(region.clone())
                .with_http_client(http_client);
            let credentials = ProfileFileCredentialsProvider::builder()
                .configure(&provider)
                .profile_name(profile)
                .build();
            loader = loader
                .profile_name(profile)
                .credentials_provider(credentials);
        }
        loader.region(region).load().await
    }
}

/// Loads an account's configuration.
type Load = dyn Fn() -> BoxFuture<'static, SdkConfig> + Send + Sync;

/// An account's configuration, loaded when the first client needs it: a process that is never asked
/// for something does not pay for its client.
pub enum LazyAccount {
    /// It is there.
    Loaded(SdkConfig),
    /// It is loaded once. Behind a pointer, so that the loader with all its sources is no part of a
    /// program that only knows loaded ones.
    Later {
        /// How.
        load: Box<Load>,
        /// What came of it.
        loaded: OnceCell<SdkConfig>,
    },
}

impl LazyAccount {
    /// The account that an operator chose, or the environment's.
    #[must_use]
    pub fn of(choice: AccountChoice) -> Self {
        Self::Later {
            load: Box::new(move || {
                let choice = choice.clone();
                Box::pin(async move { choice.load().await })
            }),
            loaded: OnceCell::new(),
        }
    }

    /// A configuration that is loaded already: its clients share their connections.
    #[must_use]
    pub const fn loaded(config: SdkConfig) -> Self {
        Self::Loaded(config)
    }

    /// The configuration. Nothing is asked over the network.
    pub async fn config(&self) -> &SdkConfig {
        match self {
            Self::Loaded(config) => config,
            Self::Later { load, loaded } => loaded.get_or_init(load).await,
        }
    }
}

impl fmt::Debug for LazyAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyAccount").finish_non_exhaustive()
    }
}

/// Clients for the two services. Cheap to clone: clones share their connections.
#[derive(Debug, Clone)]
pub struct AwsClients {
    /// The tables.
    pub dynamodb: ServiceClient<DynamoDb>,
    /// The audit queue.
    pub sqs: ServiceClient<Sqs>,
}

impl AwsClients {
    /// Clients for a loaded configuration.
    #[must_use]
    pub fn of_account(config: &SdkConfig) -> Self {
        Self::over(config, network())
    }

    /// Clients for a loaded configuration over this transport.
    #[must_use]
    pub fn over(config: &SdkConfig, transport: Arc<dyn Transport>) -> Self {
        Self {
            dynamodb: ServiceClient::new(config.clone(), Arc::clone(&transport)),
            sqs: ServiceClient::new(config.clone(), transport),
        }
    }

    /// Clients for emulators at these URLs, with made-up credentials.
    #[must_use]
    pub fn for_local_endpoints(dynamodb_url: &str, sqs_url: &str) -> Self {
        Self::for_local_endpoints_over(network(), dynamodb_url, sqs_url)
    }

    /// The same over this transport.
    #[must_use]
    pub fn for_local_endpoints_over(
        transport: Arc<dyn Transport>,
        dynamodb_url: &str,
        sqs_url: &str,
    ) -> Self {
        let account = |url: &str| {
            let credentials = Credentials::new("local", "local", None, None, "raglan local system");
            configuration()
                .region(Region::from_static(LOCAL_REGION))
                .credentials_provider(SharedCredentialsProvider::new(credentials))
                .endpoint_url(url)
                .build()
        };
        Self {
            dynamodb: ServiceClient::new(account(dynamodb_url), Arc::clone(&transport)),
            sqs: ServiceClient::new(account(sqs_url), transport),
        }
    }
}

impl ServiceClient<DynamoDb> {
    /// The SDK's own client, for what only operators and tests ask: its operations are not in the
    /// programs of the functions.
    #[must_use]
    pub fn sdk(&self) -> aws_sdk_dynamodb::Client {
        aws_sdk_dynamodb::Client::new(&with_http(self.config()))
    }
}

impl ServiceClient<Sqs> {
    /// The SDK's own client, for what only operators and tests ask.
    #[must_use]
    pub fn sdk(&self) -> aws_sdk_sqs::Client {
        aws_sdk_sqs::Client::new(&with_http(self.config()))
    }
}

/// The account with HTTP for the SDK's own clients: what it has, or new connections. Accounts of functions and
/// of the local system have none.
#[must_use]
pub fn with_http(account: &SdkConfig) -> SdkConfig {
    let account = account.clone();
    if account.http_client().is_some() {
        return account;
    }
    account
        .into_builder()
        .http_client(sdk_http_client())
        .build()
}

/// What every account's configuration has: deadlines, repetitions and the clock. HTTP for the SDK's own clients
/// comes where one is made, so that it is no part of a program that makes none.
pub(crate) fn configuration() -> aws_types::sdk_config::Builder {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .time_source(SharedTimeSource::new(SystemTimeSource::new()))
        .timeout_config(timeouts())
        .retry_config(retries())
}

fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(OPERATION_TIMEOUT)
        .build()
}

fn retries() -> RetryConfig {
    RetryConfig::standard()
        .with_max_attempts(MAX_ATTEMPTS)
        .with_initial_backoff(FIRST_PAUSE)
}
