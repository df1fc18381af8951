//! The AWS clients: one HTTPS client below both services, with deadlines.

use std::fmt;
use std::time::Duration;

use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, SharedHttpClient, StalledStreamProtectionConfig};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use futures::future::BoxFuture;
use tokio::sync::OnceCell;

/// Opening a connection, TLS handshake excluded.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// One attempt, TLS handshake included: the first one on a small function takes most of a second.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// All attempts of one call together, with the pauses between them.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(7);
/// The first attempt and its repetitions.
const MAX_ATTEMPTS: u32 = 3;
/// The pause before the second attempt, at most; the SDK's own second is long for a waiting caller.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

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
        let http_client = https_client();
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
    pub dynamodb: aws_sdk_dynamodb::Client,
    /// The audit queue.
    pub sqs: aws_sdk_sqs::Client,
}

impl AwsClients {
    /// Clients for a loaded configuration.
    #[must_use]
    pub fn of_account(config: &SdkConfig) -> Self {
        // An attempt's deadline ends what stalls; watching the flow of a few kilobytes would be
        // work in every call.
        let unwatched = StalledStreamProtectionConfig::disabled();
        let dynamodb = aws_sdk_dynamodb::config::Builder::from(config)
            .stalled_stream_protection(unwatched.clone());
        let sqs = aws_sdk_sqs::config::Builder::from(config).stalled_stream_protection(unwatched);
        Self {
            dynamodb: aws_sdk_dynamodb::Client::from_conf(dynamodb.build()),
            sqs: aws_sdk_sqs::Client::from_conf(sqs.build()),
        }
    }

    /// Clients for emulators at these URLs, with made-up credentials.
    #[must_use]
    pub fn for_local_endpoints(dynamodb_url: &str, sqs_url: &str) -> Self {
        // Without TLS: a machine that has no certificates can run the local system all the same.
        let http_client = aws_smithy_http_client::Builder::new().build_http();
        Self::for_local_endpoints_over(http_client, dynamodb_url, sqs_url)
    }

    /// The same over this HTTP client.
    #[must_use]
    pub fn for_local_endpoints_over(
        http_client: SharedHttpClient,
        dynamodb_url: &str,
        sqs_url: &str,
    ) -> Self {
        let credentials = Credentials::new("local", "local", None, None, "raglan local system");
        let dynamodb = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static(LOCAL_REGION))
            .credentials_provider(credentials.clone())
            .http_client(http_client.clone())
            .timeout_config(timeouts())
            .retry_config(retries())
            .endpoint_url(dynamodb_url)
            .build();
        let sqs = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static(LOCAL_REGION))
            .credentials_provider(credentials)
            .http_client(http_client)
            .timeout_config(timeouts())
            .retry_config(retries())
            .endpoint_url(sqs_url)
            .build();
        Self {
            dynamodb: aws_sdk_dynamodb::Client::from_conf(dynamodb),
            sqs: aws_sdk_sqs::Client::from_conf(sqs),
        }
    }
}

/// TLS by rustls over ring; the system's trust store is read when the first connection is made.
pub(crate) fn https_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https()
}

pub(crate) fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(OPERATION_TIMEOUT)
        .build()
}

pub(crate) fn retries() -> RetryConfig {
    RetryConfig::standard()
        .with_max_attempts(MAX_ATTEMPTS)
        .with_initial_backoff(FIRST_PAUSE)
}
