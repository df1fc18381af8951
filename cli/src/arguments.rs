//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// raglan puts knowledge bases in front of AI agents, over MCP.
#[derive(Debug, Parser)]
#[command(name = "raglan", version, about, max_term_width = 100)]
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
    /// Write the functions' environment and a key (`RAGLAN_KEY`) to this file, readable by you alone
    #[arg(long, value_name = "FILE", requires = "emulators_only")]
    pub env_file: Option<PathBuf>,
    /// Hand audit events to the function `audit` of a Lambda endpoint instead of handling them here,
    /// for example <http://127.0.0.1:9000>
    #[arg(long, value_name = "URL", requires = "emulators_only")]
    pub invoke_audit: Option<String>,
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
    /// Folder of the local system (`raglan dev`); the environment's `CATALOG_TABLE` and `INDEX_DIR`, when
    /// they are set, come first
    #[arg(long, value_name = "DIR", default_value = ".raglan")]
    pub state_dir: PathBuf,
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
