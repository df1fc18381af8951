//! Where a command reads and writes: a deployment on AWS, what the environment names, or the local
//! system.
//!
//! The first of these that applies: `--stack`, `--state-dir`, `RAGLAN_STACK`, the environment's
//! `KEYS_TABLE` or `CATALOG_TABLE`, the folder `.raglan`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use aws_config::SdkConfig;
use aws_sdk_cloudformation::types::Output;
use raglan_audit::archive::{Archive, Bucket};
use raglan_aws::{AccountChoice, AwsClients};
use raglan_core::catalog::KnowledgeBaseId;
use raglan_store::{AuditQueue, AuditTable, CatalogStore, KeyStore, StoreError};

use crate::arguments::TargetArguments;
use crate::failure::Failure;
use crate::language::text;
use crate::system::{AUDIT_ROOTS_FOLDER, LocalSystem, RUNNING_FILE};

/// The folder of the local system, when nothing else is said.
pub const DEFAULT_STATE_DIR: &str = ".raglan";
/// How long a system that ran here may take to answer before it is taken for stopped.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);

/// What the command line and the environment choose.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Choice {
    Stack(String),
    Environment,
    Folder(PathBuf),
}

/// Whether a local system's folder is made when it is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingFolder {
    /// It is: the command fills it.
    Make,
    /// It is not: a command that looks for something would only look into an empty folder.
    Refuse,
}

/// The names of a deployment's parts, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Names {
    keys_table: Option<String>,
    catalog_table: Option<String>,
    state_table: Option<String>,
    audit_table: Option<String>,
    audit_queue_url: Option<String>,
    audit_roots_bucket: Option<String>,
    audit_roots_folder: Option<PathBuf>,
    index_dir: Option<PathBuf>,
    endpoint: Option<String>,
}

/// An open deployment.
pub struct Target {
    names: Names,
    clients: AwsClients,
    site: Site,
    stack: Option<String>,
    description: String,
}

enum Site {
    /// On AWS: the operator is who STS says.
    Aws(Box<SdkConfig>),
    /// Emulators that another process runs.
    Emulators,
    /// A local system that runs as long as this command does.
    Own(Box<LocalSystem>),
}

/// Fails where nobody names a region: AWS cannot be asked then.
///
/// # Errors
/// [`Failure::Usage`]
pub async fn require_region(account: &AccountChoice) -> anyhow::Result<()> {
    if account.region().await.is_some() {
        return Ok(());
    }
    let message = text!("no AWS region is named: say --region, or set AWS_REGION").to_owned();
    Err(Failure::Usage(message).into())
}

impl Target {
    /// Finds and opens it.
    ///
    /// # Errors
    /// One line: [`Failure::NotFound`] when there is no such stack or folder, [`Failure::Usage`] when
    /// options do not fit together.
    pub async fn open(
        arguments: &TargetArguments,
        missing_folder: MissingFolder,
    ) -> anyhow::Result<Self> {
        let lookup = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let account = AccountChoice {
            profile: arguments.profile.clone(),
            region: arguments.region.clone(),
        };
        let choice = choose(arguments, &lookup)?;
        if !matches!(choice, Choice::Folder(_)) {
            require_region(&account).await?;
        }
        match choice {
            Choice::Stack(name) => Self::of_stack(account.load().await, &name).await,
            Choice::Environment => Ok(Self::of_environment(account.load().await, &lookup)),
            Choice::Folder(folder) => {
                if let Some(running) = Self::running_in(&folder).await {
                    return Ok(running);
                }
                if missing_folder == MissingFolder::Refuse && !folder.is_dir() {
                    return Err(Failure::NotFound(text!(
                        "there is no local system in {folder}: start one with `raglan dev`, or \
                         name a deployment with --stack",
                        folder = folder.display()
                    ))
                    .into());
                }
                Ok(Self::of_local_system(LocalSystem::start(&folder).await?))
            }
        }
    }

    /// The deployment of a CloudFormation stack.
    async fn of_stack(config: SdkConfig, stack: &str) -> anyhow::Result<Self> {
        let answer = aws_sdk_cloudformation::Client::new(&config)
            .describe_stacks()
            .stack_name(stack)
            .send()
            .await;
        let region = config
            .region()
            .map_or(text!("no region"), |region| region.as_ref());
        let stacks =
            match answer.map_err(|error| StoreError::of_call("DescribeStacks", stack, &error)) {
                Ok(output) => output.stacks.unwrap_or_default(),
                // What CloudFormation answers for a name that it does not know.
                Err(StoreError::Refused { code, .. }) if code == "ValidationError" => Vec::new(),
                Err(error) => return Err(error.into()),
            };
        let found = stacks.into_iter().next().ok_or_else(|| {
            Failure::NotFound(text!(
                "there is no stack {stack} in {region} of this account",
                stack,
                region
            ))
        })?;
        let names = Names::of_outputs(&found.outputs.unwrap_or_default());
        Ok(Self {
            names,
            clients: AwsClients::of_account(&config),
            stack: Some(stack.to_owned()),
            description: text!("the stack {stack} in {region}", stack, region),
            site: Site::Aws(Box::new(config)),
        })
    }

    fn of_environment(config: SdkConfig, lookup: &impl Fn(&str) -> Option<String>) -> Self {
        let endpoint = lookup("AWS_ENDPOINT_URL_DYNAMODB").or_else(|| lookup("AWS_ENDPOINT_URL"));
        let is_local = endpoint.is_some_and(|url| is_loopback(&url));
        Self {
            names: Names::of_variables(lookup),
            clients: AwsClients::of_account(&config),
            site: if is_local {
                Site::Emulators
            } else {
                Site::Aws(Box::new(config))
            },
            stack: None,
            description: text!("the deployment that the environment names").to_owned(),
        }
    }

    /// A local system of this process.
    #[must_use]
    pub fn of_local_system(system: LocalSystem) -> Self {
        let variables = system.variables();
        let lookup = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| value.clone())
        };
        let mut names = Names::of_variables(&lookup);
        names.audit_roots_folder = Some(system.audit_roots_folder());
        Self {
            names,
            clients: system.clients.clone(),
            site: Site::Own(Box::new(system)),
            stack: None,
            description: text!("the local system").to_owned(),
        }
    }

    /// The system that `raglan dev` runs in that folder, if it does.
    pub(crate) async fn running_in(folder: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(folder.join(RUNNING_FILE)).ok()?;
        let lookup = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.map(ToOwned::to_owned)
        };
        let clients = AwsClients::for_local_endpoints(
            &lookup("AWS_ENDPOINT_URL_DYNAMODB")?,
            &lookup("AWS_ENDPOINT_URL_SQS")?,
        );
        let mut names = Names::of_variables(&lookup);
        names.audit_roots_folder = Some(folder.join(AUDIT_ROOTS_FOLDER));
        let target = Self {
            names,
            clients,
            site: Site::Emulators,
            stack: None,
            description: text!("the local system").to_owned(),
        };
        // The file outlives a system that was killed: only an answer proves that one runs.
        let probe = KnowledgeBaseId::parse("raglan-probe").ok()?;
        let catalog = target.catalog().ok()?;
        let answered = tokio::time::timeout(PROBE_PATIENCE, catalog.get(&probe)).await;
        answered.ok()?.ok()?;
        Some(target)
    }

    /// The keys.
    ///
    /// # Errors
    /// [`Failure::Usage`] when their table is not named.
    pub fn keys(&self) -> Result<KeyStore, Failure> {
        let table = self.known("KEYS_TABLE", self.names.keys_table.as_ref())?;
        Ok(KeyStore::new(self.clients.dynamodb.clone(), table))
    }

    /// The catalogue.
    ///
    /// # Errors
    /// [`Failure::Usage`] when its table is not named.
    pub fn catalog(&self) -> Result<CatalogStore, Failure> {
        let table = self.known("CATALOG_TABLE", self.names.catalog_table.as_ref())?;
        Ok(CatalogStore::new(self.clients.dynamodb.clone(), table))
    }

    /// Name of the table of limits and usage.
    ///
    /// # Errors
    /// [`Failure::Usage`] when it is not named.
    pub fn state_table(&self) -> Result<&str, Failure> {
        self.known("STATE_TABLE", self.names.state_table.as_ref())
            .map(String::as_str)
    }

    /// The audit trail.
    ///
    /// # Errors
    /// [`Failure::Usage`] when its table is not named.
    pub fn audit_table(&self) -> Result<AuditTable, Failure> {
        let table = self.known("AUDIT_TABLE", self.names.audit_table.as_ref())?;
        Ok(AuditTable::new(self.clients.dynamodb.clone(), table))
    }

    /// Where the roots of the audit trail's days are kept; `None` when that is not named.
    #[must_use]
    pub fn archive(&self) -> Option<Archive> {
        if let (Some(bucket), Site::Aws(account)) = (&self.names.audit_roots_bucket, &self.site) {
            return Some(Archive::Bucket(Bucket::new(account, bucket)));
        }
        self.names.audit_roots_folder.clone().map(Archive::Folder)
    }

    /// Roots at a place that the operator names: a folder, or `s3://` and a bucket.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a bucket without an account, [`Failure::NotFound`] for a folder that is
    /// not there.
    pub fn archive_at(&self, place: &str) -> Result<Archive, Failure> {
        if let Some(bucket) = place.strip_prefix("s3://") {
            let account = self.aws_config().ok_or_else(|| {
                Failure::Usage(text!("a bucket needs a deployment on AWS").to_owned())
            })?;
            let bucket = bucket.trim_end_matches('/');
            return Ok(Archive::Bucket(Bucket::new(account, bucket)));
        }
        let folder = PathBuf::from(place);
        if folder.is_dir() {
            Ok(Archive::Folder(folder))
        } else {
            Err(Failure::NotFound(text!(
                "there is no folder {place}",
                place
            )))
        }
    }

    /// The queue of audit events.
    ///
    /// # Errors
    /// [`Failure::Usage`] when it is not named.
    pub fn audit_queue(&self) -> Result<AuditQueue, Failure> {
        let url = self.known("AUDIT_QUEUE_URL", self.names.audit_queue_url.as_ref())?;
        Ok(AuditQueue::new(self.clients.sqs.clone(), url))
    }

    /// That queue's URL.
    ///
    /// # Errors
    /// [`Failure::Usage`] when it is not named.
    pub fn audit_queue_url(&self) -> Result<&str, Failure> {
        self.known("AUDIT_QUEUE_URL", self.names.audit_queue_url.as_ref())
            .map(String::as_str)
    }

    /// All tables, as far as they are named.
    #[must_use]
    pub fn tables(&self) -> [(&'static str, Option<&str>); 4] {
        [
            ("keys", self.names.keys_table.as_deref()),
            ("catalogue", self.names.catalog_table.as_deref()),
            ("state", self.names.state_table.as_deref()),
            ("audit", self.names.audit_table.as_deref()),
        ]
    }

    /// The CloudFormation stack, when it was opened as one.
    #[must_use]
    pub fn stack(&self) -> Option<&str> {
        self.stack.as_deref()
    }

    /// What clients of the account are made of, on AWS.
    #[must_use]
    pub fn aws_config(&self) -> Option<&SdkConfig> {
        match &self.site {
            Site::Aws(config) => Some(config),
            _ => None,
        }
    }

    /// The folder of the embedded indexes.
    ///
    /// # Errors
    /// [`Failure::Usage`] when it is not named.
    pub fn index_dir(&self) -> Result<&Path, Failure> {
        self.known("INDEX_DIR", self.names.index_dir.as_ref())
            .map(PathBuf::as_path)
    }

    /// The same deployment with another audit queue, for tests of what happens without one.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn with_audit_queue(mut self, url: Option<&str>) -> Self {
        self.names.audit_queue_url = url.map(ToOwned::to_owned);
        self
    }

    /// The clients of its tables and its queue.
    #[must_use]
    pub const fn clients(&self) -> &AwsClients {
        &self.clients
    }

    /// Where MCP clients find it, if that is known.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        self.names.endpoint.as_deref()
    }

    /// What it is, for questions to the operator.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The local system, when it runs in this process.
    #[must_use]
    pub fn local_system(&self) -> Option<&LocalSystem> {
        match &self.site {
            Site::Own(system) => Some(system),
            _ => None,
        }
    }

    /// Who works here, for the audit trail. On AWS the ARN that STS finds behind the credentials. On
    /// the local system, where everybody can be anybody, the user name that the environment claims.
    ///
    /// # Errors
    /// One line, when STS cannot be asked.
    pub async fn operator(&self) -> anyhow::Result<String> {
        let Site::Aws(config) = &self.site else {
            let name = ["USER", "LOGNAME"]
                .iter()
                .find_map(|name| std::env::var(name).ok());
            return Ok(format!("local:{}", name.as_deref().unwrap_or("unknown")));
        };
        let answer = aws_sdk_sts::Client::new(config)
            .get_caller_identity()
            .send()
            .await
            .map_err(|error| StoreError::of_call("GetCallerIdentity", "STS", &error))?;
        answer
            .arn
            .context(text!("STS does not say whose credentials these are"))
    }

    /// Ends what this process runs for it; audit events that still lie in its queue are stored first.
    ///
    /// # Errors
    /// One line, when they cannot be stored.
    pub async fn close(self) -> anyhow::Result<()> {
        if let Site::Own(system) = self.site {
            let stored = system.store_audit_events().await;
            system.emulators.shutdown().await;
            stored?;
        }
        Ok(())
    }

    fn known<'a, T>(&self, variable: &str, name: Option<&'a T>) -> Result<&'a T, Failure> {
        name.ok_or_else(|| {
            Failure::Usage(text!(
                "{description} does not say its {variable}",
                description = self.description,
                variable
            ))
        })
    }
}

impl Names {
    fn of_variables(lookup: &impl Fn(&str) -> Option<String>) -> Self {
        Self {
            keys_table: lookup("KEYS_TABLE"),
            catalog_table: lookup("CATALOG_TABLE"),
            state_table: lookup("STATE_TABLE"),
            audit_table: lookup("AUDIT_TABLE"),
            audit_queue_url: lookup("AUDIT_QUEUE_URL"),
            audit_roots_bucket: lookup("AUDIT_ROOTS_BUCKET"),
            audit_roots_folder: None,
            index_dir: lookup("INDEX_DIR").map(PathBuf::from),
            endpoint: lookup("RAGLAN_URL"),
        }
    }

    /// From the outputs of `template.yaml`.
    fn of_outputs(outputs: &[Output]) -> Self {
        let value = |key: &str| {
            let output = outputs
                .iter()
                .find(|output| output.output_key() == Some(key))?;
            output.output_value().map(ToOwned::to_owned)
        };
        Self {
            keys_table: value("KeysTable"),
            catalog_table: value("CatalogTable"),
            state_table: value("StateTable"),
            audit_table: value("AuditTable"),
            audit_queue_url: value("AuditQueueUrl"),
            audit_roots_bucket: value("AuditRootsBucket"),
            audit_roots_folder: None,
            index_dir: None,
            endpoint: value("McpUrl"),
        }
    }
}

fn choose(
    arguments: &TargetArguments,
    lookup: &impl Fn(&str) -> Option<String>,
) -> Result<Choice, Failure> {
    let named_tables = ["KEYS_TABLE", "CATALOG_TABLE"]
        .iter()
        .any(|name| lookup(name).is_some());
    let choice = match (
        &arguments.stack,
        &arguments.state_dir,
        lookup("RAGLAN_STACK"),
    ) {
        (Some(stack), _, _) => Choice::Stack(stack.clone()),
        (None, Some(folder), _) => Choice::Folder(folder.clone()),
        (None, None, Some(stack)) => Choice::Stack(stack),
        (None, None, None) if named_tables => Choice::Environment,
        (None, None, None) => Choice::Folder(DEFAULT_STATE_DIR.into()),
    };
    let says_account = arguments.profile.is_some() || arguments.region.is_some();
    if says_account && matches!(choice, Choice::Folder(_)) {
        return Err(Failure::Usage(
            text!("--profile and --region need a deployment on AWS: name it with --stack")
                .to_owned(),
        ));
    }
    Ok(choice)
}

fn is_loopback(url: &str) -> bool {
    let host = url.parse::<http::Uri>().ok();
    let host = host.as_ref().and_then(|url| url.host()).unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
