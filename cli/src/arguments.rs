//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use raglan_core::catalog::KnowledgeBaseId;
use raglan_index_store::IndexLocation;
use raglan_rag::backend::Condition;

pub use crate::audit::arguments::AuditArguments;
pub use crate::bench::arguments::BenchArguments;
pub use crate::doctor::DoctorArguments;
pub use crate::kb::arguments::KbArguments;
pub use crate::key::arguments::KeyArguments;
use crate::search::parse_filter;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed
  2  wrong command line
  3  done, but something was left out (the output says what)
  4  there is no such key, knowledge base or deployment
  5  refused: a rule forbids it, it was not confirmed, or somebody else changed it meanwhile";

/// raglan puts knowledge bases in front of AI agents, over MCP.
#[derive(Debug, Parser)]
#[command(name = "raglan", version, about, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the whole system on this machine: tables, queue, both functions, a sample knowledge base
    Dev(DevArguments),
    /// Reads a folder of documents and makes it a searchable knowledge base
    Index(IndexArguments),
    /// Searches an index in the terminal and shows what matched
    Search(SearchArguments),
    /// Measures an index on queries whose relevant documents are known
    #[command(after_help = EVAL_FORMAT)]
    Eval(EvalArguments),
    /// Serves MCP over standard input and output, for hosts that start a program
    Stdio(StdioArguments),
    /// Shows what the guard marks in a text, before it is indexed; exits with 3 when it marks something
    Guard(GuardArguments),
    /// Prints how to tell a client about an endpoint; without a client, the clients it knows
    Connect(ConnectArguments),
    /// Issues, narrows, rotates and revokes API keys
    Key(KeyArguments),
    /// Reads, verifies and mends the audit trail
    Audit(AuditArguments),
    /// Looks at a deployment from outside and inside, and says what to do about what it finds
    Doctor(DoctorArguments),
    /// Says which knowledge bases there are and whose they are
    Kb(KbArguments),
    /// Measures how many calls a second an endpoint answers, and how fast
    Bench(BenchArguments),
    /// Prints the completions of a shell
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completions {
        /// The shell
        shell: CompletionShell,
    },
}

const COMPLETION_EXAMPLES: &str = "\
Examples:
  raglan completions bash > ~/.local/share/bash-completion/completions/raglan
  raglan completions zsh > ~/.zfunc/_raglan        # with ~/.zfunc in fpath
  raglan completions fish > ~/.config/fish/completions/raglan.fish";

/// Shells with completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    /// GNU bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

/// Which deployment a command works on. Without any of these: the one that `RAGLAN_STACK` names, then
/// the one whose tables the environment names (`KEYS_TABLE`, `CATALOG_TABLE`, …), then the local system
/// in the folder `.raglan`, whether `raglan dev` runs it at the moment or not.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Deployment")]
pub struct TargetArguments {
    /// CloudFormation stack of the deployment; its outputs name tables, queue and endpoint
    #[arg(long, value_name = "NAME", global = true)]
    pub stack: Option<String>,
    /// Profile of the AWS configuration files, with keys or a role to assume; for one with SSO, first
    /// `eval "$(aws configure export-credentials --profile NAME --format env)"`
    #[arg(long, value_name = "NAME", global = true)]
    pub profile: Option<String>,
    /// AWS region
    #[arg(long, value_name = "REGION", global = true)]
    pub region: Option<String>,
    /// Folder of the local system (`raglan dev`) [default: .raglan]
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "stack")]
    pub state_dir: Option<PathBuf>,
}

/// `raglan dev`
#[derive(Debug, Clone, Args)]
pub struct DevArguments {
    /// Index this folder instead of the sample knowledge base
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Port of the MCP endpoint on 127.0.0.1
    #[arg(long, default_value_t = 8420)]
    pub port: u16,
    /// Folder that keeps keys, knowledge bases and the audit trail between runs
    #[arg(long, value_name = "DIR", default_value = ".raglan")]
    pub state_dir: PathBuf,
    /// Make a new key even if there is one already
    #[arg(long)]
    pub new_key: bool,
    /// Show everything once on free ports in a temporary folder; exit with 0 only if all of it worked
    #[arg(long, conflicts_with_all = ["emulators_only", "state_dir", "port", "new_key"])]
    pub demo: bool,
    /// Start only what AWS would provide, for functions that run elsewhere (`cargo lambda watch`)
    #[arg(long, requires = "env_file")]
    pub emulators_only: bool,
    /// Write the functions' environment and a key (`RAGLAN_KEY`) to this new file, readable by you
    /// alone; it is removed at the end
    #[arg(long, value_name = "FILE", requires = "emulators_only")]
    pub env_file: Option<PathBuf>,
    /// Hand audit events to the function `audit` of a Lambda endpoint instead of handling them here,
    /// for example `http://127.0.0.1:9000`
    #[arg(long, value_name = "URL", requires = "emulators_only")]
    pub invoke_audit: Option<String>,
}

/// `raglan stdio`
#[derive(Debug, Clone, Args)]
pub struct StdioArguments {
    /// Hand everything to this endpoint, with the key in `RAGLAN_KEY`, instead of the local system
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Folder of the local system; the sample is indexed when there is no knowledge base yet
    #[arg(
        long,
        value_name = "DIR",
        default_value = ".raglan",
        conflicts_with = "url"
    )]
    pub state_dir: PathBuf,
}

/// `raglan connect`
#[derive(Debug, Clone, Args)]
pub struct ConnectArguments {
    /// The client, or `all`
    pub client: Option<String>,
    /// The MCP endpoint
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8420/mcp")]
    pub url: String,
}

/// `raglan guard`
#[derive(Debug, Clone, Args)]
pub struct GuardArguments {
    /// The text: a file, or `-` for standard input
    pub file: PathBuf,
    /// One JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// `raglan index`
#[derive(Debug, Clone, Args)]
pub struct IndexArguments {
    /// Folder with Markdown, text, HTML and PDF files
    pub folder: PathBuf,
    /// Identifier of the knowledge base: a-z, 0-9, '_' and '-'
    #[arg(long = "kb", value_name = "ID")]
    pub kb_id: String,
    /// Name for people (default: the identifier)
    #[arg(long)]
    pub name: Option<String>,
    /// What the knowledge base covers, in a sentence that a model can choose by
    #[arg(long)]
    pub description: Option<String>,
    /// Whose it is; without it only keys without owner can use it
    #[arg(long)]
    pub owner: Option<String>,
    /// Folder that the index is written to; needed with --stack, which does not say one (without it the
    /// environment's `INDEX_DIR`, or the local system's own)
    #[arg(long, value_name = "DIR")]
    pub index_dir: Option<PathBuf>,
    /// Read every file, also those that have not changed since the index was built
    #[arg(long)]
    pub full: bool,
    /// Go on and index again whenever the folder has changed, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
    /// Also put the index into S3, where functions with this `INDEX_S3_URI` fetch it:
    /// `s3://BUCKET/FOLDER/`
    #[arg(long, value_name = "S3-URI", value_parser = IndexLocation::parse)]
    pub publish: Option<IndexLocation>,
    /// The deployment.
    #[command(flatten)]
    pub target: TargetArguments,
}

/// Which embedded index is asked.
#[derive(Debug, Clone, Args)]
pub struct IndexChoice {
    /// The knowledge base; can be left out where there is only one
    #[arg(long = "kb", value_name = "ID", value_parser = KnowledgeBaseId::parse)]
    pub kb_id: Option<KnowledgeBaseId>,
    /// Folder that the indexes lie in; needed with --stack, which does not say one (without it the
    /// environment's `INDEX_DIR`, or the local system's own)
    #[arg(long, value_name = "DIR")]
    pub index_dir: Option<PathBuf>,
    /// The deployment.
    #[command(flatten)]
    pub target: TargetArguments,
}

/// `raglan search`
#[derive(Debug, Clone, Args)]
pub struct SearchArguments {
    /// What to look for
    pub query: String,
    /// Which index.
    #[command(flatten)]
    pub index: IndexChoice,
    /// A condition on metadata, such as domain=hr, tags!=old or 'year>=2024'; several must all hold
    #[arg(long = "filter", value_name = "CONDITION", value_parser = parse_filter)]
    pub filters: Vec<Condition>,
    /// At most this many passages
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=50))]
    pub top_k: u8,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

const EVAL_FORMAT: &str = "\
The file:
  {\"queries\": [
    {\"query\": \"How long do refunds take?\", \"relevant\": [\"sales/refunds.md\"]},
    {\"query\": \"报销\", \"relevant\": {\"finance/travel.md\": 2, \"faq.md\": 1}}]}
Documents are named as `raglan search` shows them; the numbers say how relevant they are.";

/// `raglan eval`
#[derive(Debug, Clone, Args)]
pub struct EvalArguments {
    /// Queries with their relevant documents, in JSON
    pub file: PathBuf,
    /// Which index.
    #[command(flatten)]
    pub index: IndexChoice,
    /// Recall counts the relevant documents among the first K
    #[arg(short, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=50))]
    pub k: u8,
    /// One JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
