//! The command line of `raglan doctor`.

use clap::Args;

use crate::arguments::TargetArguments;

const HELP: &str = "\
With a key (`RAGLAN_KEY`, or --temporary-key) the doctor also calls: it lists the key's knowledge bases \
and searches each of them once. Without one it only looks. A temporary key sees every knowledge base, \
ends after five minutes, and is revoked at the end; both changes are audit events.

Exit codes: 0 nothing to do, 1 something does not work, 3 it works and somebody should look at it.

Examples:
  raglan doctor                                     # the local system
  RAGLAN_KEY=rgl_… raglan doctor --stack raglan
  raglan doctor --stack raglan --temporary-key --json";

/// `raglan doctor`
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct DoctorArguments {
    /// The endpoint as clients reach it, such as a front of your own [default: the deployment's]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// A key to call with; better in the environment, where no shell keeps it
    #[arg(long, value_name = "KEY", env = "RAGLAN_KEY", hide_env_values = true)]
    pub key: Option<String>,
    /// Make a key for these checks and revoke it at the end
    #[arg(long, conflicts_with = "key")]
    pub temporary_key: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// The deployment.
    #[command(flatten)]
    pub target: TargetArguments,
}
