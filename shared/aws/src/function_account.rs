//! The account as Lambda tells a function of it: in environment variables and nowhere else.
//!
//! The SDK's own loader also asks profile files, web identities, containers and EC2 for a region and for
//! credentials. None of them exists on Lambda; leaving them out makes the program smaller and its start
//! shorter. Sources: AWS Lambda Developer Guide, "Defined runtime environment variables"; AWS SDKs and Tools
//! Reference Guide, "Service-specific endpoints".

use std::sync::Arc;

use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::{Region, SdkConfig};
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_types::service_config::{LoadServiceConfig, ServiceConfigKey};

use crate::clients::configuration;

/// Says what an environment variable is; `None` when it is not set.
type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Region, credentials, endpoints, deadlines of the function that runs in this environment. Nothing is
/// asked over the network and no file is read. Where the region or the credentials are missing, calls
/// fail.
#[must_use]
pub fn function_account() -> SdkConfig {
    from_lookup(|name| std::env::var(name).ok())
}

fn from_lookup(lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> SdkConfig {
    let lookup: Arc<Lookup> = Arc::new(move |name| lookup(name).filter(|value| !value.is_empty()));
    let switch = |name| lookup(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let region = lookup("AWS_REGION").or_else(|| lookup("AWS_DEFAULT_REGION"));
    let credentials = EnvironmentVariableCredentialsProvider::new();
    let mut config = configuration()
        .region(region.map(Region::new))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .identity_cache(aws_config::identity::IdentityCache::lazy().build())
        .use_fips(switch("AWS_USE_FIPS_ENDPOINT"))
        .use_dual_stack(switch("AWS_USE_DUALSTACK_ENDPOINT"))
        .service_config(Endpoints(Arc::clone(&lookup)));
    config.set_endpoint_url(lookup("AWS_ENDPOINT_URL"));
    config.build()
}

/// `AWS_ENDPOINT_URL_DYNAMODB` and its like.
struct Endpoints(Arc<Lookup>);

impl std::fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Endpoints")
    }
}

impl LoadServiceConfig for Endpoints {
    fn load_config(&self, key: ServiceConfigKey<'_>) -> Option<String> {
        let service = key.service_id().to_uppercase().replace(' ', "_");
        (self.0)(&format!("{}_{service}", key.env()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(variables: &'static [(&str, &str)]) -> SdkConfig {
        from_lookup(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_region_is_lambdas() {
        let region = |variables| account(variables).region().map(ToString::to_string);
        assert_eq!(
            region(&[("AWS_REGION", "eu-west-1"), ("AWS_DEFAULT_REGION", "x")]).as_deref(),
            Some("eu-west-1")
        );
        assert_eq!(
            region(&[("AWS_DEFAULT_REGION", "eu-west-1")]).as_deref(),
            Some("eu-west-1")
        );
        assert_eq!(region(&[("AWS_REGION", "")]), None);
    }

    #[test]
    fn a_services_own_endpoint_comes_before_the_common_one() {
        let config = account(&[
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
            ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "http://127.0.0.1:2"),
        ]);
        assert_eq!(config.endpoint_url(), Some("http://127.0.0.1:1"));
        let of = |service: &str| {
            let key = ServiceConfigKey::builder()
                .service_id(service)
                .env("AWS_ENDPOINT_URL")
                .profile("endpoint_url")
                .build();
            config.service_config().unwrap().load_config(key.unwrap())
        };
        assert_eq!(of("Bedrock Runtime").as_deref(), Some("http://127.0.0.1:2"));
        assert_eq!(of("DynamoDB"), None);
    }

    #[test]
    fn fips_and_dual_stack_endpoints_are_chosen_like_elsewhere() {
        assert_eq!(account(&[]).use_fips(), Some(false));
        let config = account(&[
            ("AWS_USE_FIPS_ENDPOINT", "true"),
            ("AWS_USE_DUALSTACK_ENDPOINT", "True"),
        ]);
        assert_eq!(config.use_fips(), Some(true));
        assert_eq!(config.use_dual_stack(), Some(true));
    }
}
