//! Where the credentials of engines come from, and for how long they are kept.
//!
//! The configuration holds references only. A secret is read when an engine is asked for the first
//! time, kept for [`Credentials::TTL_SECONDS`], and read again when an engine refuses it, so that a
//! rotation needs no deployment.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_secretsmanager::operation::get_secret_value::GetSecretValueInput;
use aws_sdk_ssm::operation::get_parameter::GetParameterInput;
use raglan_aws::LazyAccount;
use raglan_aws::service::{SecretsManager, ServiceClient, Ssm};
use raglan_aws::transport::network;
use raglan_core::clock::{Clock, Timestamp};
use raglan_rag::backend::BackendError;
use raglan_store::StoreError;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::secret::Secret;

/// Where one secret is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CredentialReference {
    /// `secretsmanager:NAME` or `secretsmanager:NAME#FIELD`: a secret of AWS Secrets Manager by name or
    /// ARN; with a field, the secret is a JSON object and the field is what is meant.
    SecretsManager {
        /// Name or ARN.
        id: String,
        /// Field of the JSON object.
        field: Option<String>,
    },
    /// `ssm:/NAME`: a parameter (`SecureString` or `String`) of the AWS Systems Manager parameter store.
    Parameter {
        /// Its name.
        name: String,
    },
    /// `env:NAME`: an environment variable, for the local system.
    Environment {
        /// Its name.
        name: String,
    },
}

/// The text is no reference. It is not repeated here: it may be the secret itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected secretsmanager:NAME, secretsmanager:NAME#FIELD, ssm:/NAME or env:NAME (never the credential itself)"
)]
pub struct InvalidCredentialReference;

impl CredentialReference {
    /// Reads a reference.
    ///
    /// # Errors
    /// [`InvalidCredentialReference`]
    pub fn parse(text: &str) -> Result<Self, InvalidCredentialReference> {
        let (kind, rest) = text.split_once(':').ok_or(InvalidCredentialReference)?;
        let is_word = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace);
        if !is_word(rest) {
            return Err(InvalidCredentialReference);
        }
        match kind {
            "secretsmanager" => {
                let (id, field) = match rest.split_once('#') {
                    Some((id, field)) => (id, Some(field)),
                    None => (rest, None),
                };
                if !is_word(id) || field.is_some_and(str::is_empty) {
                    return Err(InvalidCredentialReference);
                }
                Ok(Self::SecretsManager {
                    id: id.to_owned(),
                    field: field.map(ToOwned::to_owned),
                })
            }
            "ssm" => Ok(Self::Parameter {
                name: rest.to_owned(),
            }),
            "env" => Ok(Self::Environment {
                name: rest.to_owned(),
            }),
            _ => Err(InvalidCredentialReference),
        }
    }
}

impl fmt::Display for CredentialReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SecretsManager { id, field: None } => write!(f, "secretsmanager:{id}"),
            Self::SecretsManager {
                id,
                field: Some(field),
            } => write!(f, "secretsmanager:{id}#{field}"),
            Self::Parameter { name } => write!(f, "ssm:{name}"),
            Self::Environment { name } => write!(f, "env:{name}"),
        }
    }
}

/// Why there is no credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// AWS does not give it.
    #[error(transparent)]
    Aws(#[from] StoreError),
    /// It took too long.
    #[error("{0} could not be read within {1:?}")]
    TimedOut(CredentialReference, Duration),
    /// It is there and is nothing that a request could carry.
    #[error("{0} {1}")]
    Unusable(CredentialReference, &'static str),
}

impl From<CredentialError> for BackendError {
    fn from(error: CredentialError) -> Self {
        let transient = match &error {
            CredentialError::Aws(cause) => cause.is_transient(),
            CredentialError::TimedOut(..) => true,
            CredentialError::Unusable(..) => false,
        };
        if transient {
            Self::Unavailable(error.to_string())
        } else {
            Self::Refused(error.to_string())
        }
    }
}

type Slot = Arc<tokio::sync::Mutex<Option<Kept>>>;
type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Reads secrets and keeps them for a while. One for the whole process.
pub struct Credentials {
    aws: OnceCell<AwsSecrets>,
    account: Arc<LazyAccount>,
    environment: Box<Lookup>,
    clock: Arc<dyn Clock>,
    slots: Mutex<HashMap<CredentialReference, Slot>>,
}

struct AwsSecrets {
    secrets_manager: ServiceClient<SecretsManager>,
    parameters: ServiceClient<Ssm>,
}

struct Kept {
    secret: Secret,
    read_at: Timestamp,
}

impl Credentials {
    /// How long a secret is kept.
    pub const TTL_SECONDS: i64 = 300;
    /// A secret that was refused is not read again before it is this old: requests that keep being
    /// refused must not become as many calls to Secrets Manager.
    const RENEWAL_SECONDS: i64 = 30;

    /// Reads secrets with this account, and variables of the environment. Nothing is asked and no client
    /// is made before the first secret is needed.
    #[must_use]
    pub fn of_account(account: Arc<LazyAccount>, clock: Arc<dyn Clock>) -> Self {
        Self {
            aws: OnceCell::new(),
            account,
            environment: Box::new(|name| std::env::var(name).ok()),
            clock,
            slots: Mutex::default(),
        }
    }

    /// Reads secrets with a loaded configuration and variables through `environment`.
    #[must_use]
    pub fn of_config(
        config: &SdkConfig,
        environment: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            aws: OnceCell::new_with(Some(AwsSecrets::new(config))),
            account: Arc::new(LazyAccount::loaded(config.clone())),
            environment: Box::new(environment),
            clock,
            slots: Mutex::default(),
        }
    }

    /// The secret. One that is kept and old is used while it cannot be read again.
    ///
    /// # Errors
    /// [`CredentialError`]
    pub async fn get(
        &self,
        reference: &CredentialReference,
        time_left: Duration,
    ) -> Result<Secret, CredentialError> {
        let slot = self.slot(reference);
        let work = async {
            let mut kept = slot.lock().await;
            let now = self.clock.now();
            if let Some(kept) = kept
                .as_ref()
                .filter(|kept| kept.age_seconds(now) < Self::TTL_SECONDS)
            {
                return Ok(kept.secret.clone());
            }
            match (self.read(reference).await, kept.as_ref()) {
                (Ok(secret), _) => {
                    *kept = Some(Kept {
                        secret: secret.clone(),
                        read_at: now,
                    });
                    Ok(secret)
                }
                (Err(error), Some(old)) => {
                    tracing::warn!(%reference, %error, "a credential could not be read again; the one that was read before is used");
                    Ok(old.secret.clone())
                }
                (Err(error), None) => Err(error),
            }
        };
        let read = tokio::time::timeout(time_left, work).await;
        read.unwrap_or_else(|_| Err(CredentialError::TimedOut(reference.clone(), time_left)))
    }

    /// Another secret than the one that an engine refused, when there is one by now.
    ///
    /// # Errors
    /// [`CredentialError`]
    pub async fn renew(
        &self,
        reference: &CredentialReference,
        refused: &Secret,
        time_left: Duration,
    ) -> Result<Option<Secret>, CredentialError> {
        let slot = self.slot(reference);
        let work = async {
            let mut kept = slot.lock().await;
            let now = self.clock.now();
            let current = match kept.as_ref() {
                // Somebody else renewed it meanwhile, or it was read a moment ago.
                Some(kept)
                    if kept.secret != *refused || kept.age_seconds(now) < Self::RENEWAL_SECONDS =>
                {
                    kept.secret.clone()
                }
                _ => {
                    let secret = self.read(reference).await?;
                    *kept = Some(Kept {
                        secret: secret.clone(),
                        read_at: now,
                    });
                    secret
                }
            };
            Ok((current != *refused).then_some(current))
        };
        let read = tokio::time::timeout(time_left, work).await;
        read.unwrap_or_else(|_| Err(CredentialError::TimedOut(reference.clone(), time_left)))
    }

    fn slot(&self, reference: &CredentialReference) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(reference.clone()).or_default())
    }

    async fn read(&self, reference: &CredentialReference) -> Result<Secret, CredentialError> {
        let text = match reference {
            CredentialReference::SecretsManager { id, field } => {
                let text = self.aws().await.secret(reference, id).await?;
                match field {
                    Some(field) => field_of(reference, &text, field)?,
                    None => text,
                }
            }
            CredentialReference::Parameter { name } => {
                self.aws().await.parameter(reference, name).await?
            }
            CredentialReference::Environment { name } => (self.environment)(name)
                .ok_or_else(|| CredentialError::Unusable(reference.clone(), "is not set"))?,
        };
        let secret = Secret::new(&text);
        if secret.is_empty() {
            return Err(CredentialError::Unusable(reference.clone(), "is empty"));
        }
        Ok(secret)
    }

    async fn aws(&self) -> &AwsSecrets {
        let make = || async { AwsSecrets::new(self.account.config().await) };
        self.aws.get_or_init(make).await
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(not shown)")
    }
}

impl Kept {
    /// A clock that was set back makes a secret old, not eternal.
    const fn age_seconds(&self, now: Timestamp) -> i64 {
        let age_ms = now.epoch_ms() - self.read_at.epoch_ms();
        if age_ms < 0 {
            Credentials::TTL_SECONDS
        } else {
            age_ms / 1000
        }
    }
}

impl AwsSecrets {
    fn new(config: &SdkConfig) -> Self {
        Self {
            secrets_manager: ServiceClient::new(config.clone(), network()),
            parameters: ServiceClient::new(config.clone(), network()),
        }
    }

    async fn secret(
        &self,
        reference: &CredentialReference,
        id: &str,
    ) -> Result<String, CredentialError> {
        let request = GetSecretValueInput::builder().secret_id(id).build();
        let output = self
            .secrets_manager
            .send(request)
            .await
            .map_err(|error| StoreError::of_call("GetSecretValue", id, &error))?;
        output
            .secret_string
            .ok_or_else(|| CredentialError::Unusable(reference.clone(), "is no text"))
    }

    async fn parameter(
        &self,
        reference: &CredentialReference,
        name: &str,
    ) -> Result<String, CredentialError> {
        let request = GetParameterInput::builder()
            .name(name)
            .with_decryption(true)
            .build();
        let output = self
            .parameters
            .send(request)
            .await
            .map_err(|error| StoreError::of_call("GetParameter", name, &error))?;
        output
            .parameter
            .and_then(|parameter| parameter.value)
            .ok_or_else(|| CredentialError::Unusable(reference.clone(), "has no value"))
    }
}

fn field_of(
    reference: &CredentialReference,
    text: &str,
    field: &str,
) -> Result<String, CredentialError> {
    // The parser's own message would quote the secret.
    let object: Value = serde_json::from_str(text)
        .map_err(|_| CredentialError::Unusable(reference.clone(), "is no JSON object"))?;
    object
        .get(field)
        .and_then(Value::as_str)
        .map(ToOwned::to_owned)
        .ok_or_else(|| CredentialError::Unusable(reference.clone(), "has no such field"))
}

#[cfg(test)]
mod tests;
