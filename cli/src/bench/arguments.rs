//! `raglan bench`: the command line.

use std::time::Duration;

use clap::{Args, ValueEnum};

const EXAMPLES: &str = "\
The key comes from RAGLAN_KEY. Its limits hold here, too, and refused calls are counted as errors. A local
system without limits: RATE_LIMIT_PER_MINUTE=0 DAILY_QUOTAS=none raglan dev

Examples:
  RAGLAN_KEY=rgl_… raglan bench http://127.0.0.1:8420/mcp
  RAGLAN_KEY=rgl_… raglan bench https://….lambda-url.eu-west-1.on.aws/mcp --connections 10 --seconds 30 --json";

/// `raglan bench`
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArguments {
    /// The MCP endpoint
    pub url: String,
    /// How many connections at a time; several numbers are measured one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 10, 50, 100],
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub connections: Vec<u16>,
    /// How long each number of connections is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// What is called
    #[arg(long, value_enum, default_value_t = Load::Retrieve)]
    pub call: Load,
    /// A query or question; repeat it for several, which take turns
    #[arg(long = "query", value_name = "TEXT")]
    pub queries: Vec<String>,
    /// One JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

impl BenchArguments {
    /// How long each number of connections is measured.
    #[must_use]
    pub const fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// The call that is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// `tools/list`
    List,
    /// `retrieve`
    Retrieve,
    /// `ask`
    Ask,
}
