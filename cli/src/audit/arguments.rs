//! The command line of `raglan audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use raglan_core::audit::Decision;

use crate::arguments::TargetArguments;
use crate::moment::{Past, parse_past};

/// `raglan audit`
#[derive(Debug, Clone, Args)]
pub struct AuditArguments {
    /// JSON instead of text: one object a line for events
    #[arg(long, global = true)]
    pub json: bool,
    /// The deployment.
    #[command(flatten)]
    pub target: TargetArguments,
    /// What to do.
    #[command(subcommand)]
    pub command: AuditCommand,
}

/// The commands for the audit trail.
#[derive(Debug, Clone, Subcommand)]
pub enum AuditCommand {
    /// Shows events as they are stored, until Ctrl-C
    Tail(TailArguments),
    /// Shows the latest events that fit, oldest first
    #[command(after_help = QUERY_EXAMPLES)]
    Query(QueryArguments),
    /// Writes all events that fit, oldest first, as JSON lines or CSV
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArguments),
    /// Finds what was changed, removed, added or moved after it was stored; exits with 1 then
    #[command(after_help = VERIFY_HELP)]
    Verify(VerifyArguments),
    /// Sends events to the queue that the function could only write into its log
    #[command(after_help = RECOVER_EXAMPLES)]
    Recover(RecoverArguments),
}

const QUERY_EXAMPLES: &str = "\
Examples:
  raglan audit query --since 2h
  raglan audit query --key key-1a2b3c4d5e6f --from 2027-01-01 --to 2027-01-31
  raglan audit query --decision denied --since 7d --json";

const EXPORT_EXAMPLES: &str = "\
As JSON an event is written with everything that is stored with it, so that its hash can be computed \
elsewhere.

Examples:
  raglan audit export --from 2027-01-01 --to 2027-01-31 --out january.jsonl
  raglan audit export --owner anna --since 30d --csv --out anna.csv";

const VERIFY_HELP: &str = "\
Exit codes: 0 nothing was found, 1 something was found or verifying failed, 3 nothing was found, but \
not all of it could be verified.

Examples:
  raglan audit verify
  raglan audit verify --from 2027-01-01 --to 2027-01-31 --json
  raglan audit verify --roots ./copy-of-the-roots";

const RECOVER_EXAMPLES: &str = "\
Lines are read from a file or from standard input: the function's log as it is, with a time in front, or \
as `aws logs` prints it. An event that is in the trail already stays as it is.

Examples:
  aws logs tail LOG_GROUP --since 1d --filter-pattern AUDIT_NOT_SENT | raglan audit recover -
  raglan audit recover exported.log";

/// Which events.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Events")]
pub struct SelectionArguments {
    /// Of this key: its identifier, its fingerprint, `-` for a key on standard input; or under what
    /// else events are kept (`kb:handbook`, the fingerprint of an unknown key)
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Of keys of this owner
    #[arg(long, value_name = "OWNER", conflicts_with = "key")]
    pub owner: Option<String>,
    /// Calls of this tool
    #[arg(long, value_name = "TOOL")]
    pub tool: Option<String>,
    /// Decided so
    #[arg(long, value_name = "DECISION")]
    pub decision: Option<DecisionChoice>,
}

/// When.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Time")]
pub struct RangeArguments {
    /// From so long ago on: 45m, 2h, 7d [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = parse_past, conflicts_with = "from")]
    pub since: Option<Past>,
    /// From this date or date-time (UTC, RFC 3339) on
    #[arg(long, value_name = "WHEN", value_parser = parse_past)]
    pub from: Option<Past>,
    /// Until this date, its whole day included, or date-time [default: now]
    #[arg(long, value_name = "WHEN", value_parser = parse_past)]
    pub to: Option<Past>,
}

/// A decision on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DecisionChoice {
    /// The call was let through
    Allowed,
    /// The key may not do this
    Denied,
    /// There was no good key
    Unauthenticated,
    /// The key asked too much
    Limited,
}

impl From<DecisionChoice> for Decision {
    fn from(choice: DecisionChoice) -> Self {
        match choice {
            DecisionChoice::Allowed => Self::Allowed,
            DecisionChoice::Denied => Self::Denied,
            DecisionChoice::Unauthenticated => Self::Unauthenticated,
            DecisionChoice::Limited => Self::Limited,
        }
    }
}

/// `raglan audit tail`
#[derive(Debug, Clone, Args)]
pub struct TailArguments {
    /// Which events.
    #[command(flatten)]
    pub selection: SelectionArguments,
}

/// `raglan audit query`
#[derive(Debug, Clone, Args)]
pub struct QueryArguments {
    /// Which events.
    #[command(flatten)]
    pub selection: SelectionArguments,
    /// When.
    #[command(flatten)]
    pub range: RangeArguments,
    /// At most so many, the latest ones
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// CSV instead of a table
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// `raglan audit export`
#[derive(Debug, Clone, Args)]
pub struct ExportArguments {
    /// Which events.
    #[command(flatten)]
    pub selection: SelectionArguments,
    /// When.
    #[command(flatten)]
    pub range: RangeArguments,
    /// CSV instead of JSON lines
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Write to this new file, readable by you alone, instead of standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `raglan audit verify`
#[derive(Debug, Clone, Args)]
pub struct VerifyArguments {
    /// The first day, or how long ago it was [default: 7d]
    #[arg(long, value_name = "DAY", value_parser = parse_past)]
    pub from: Option<Past>,
    /// The last day [default: today]
    #[arg(long, value_name = "DAY", value_parser = parse_past)]
    pub to: Option<Past>,
    /// Where the roots of the days are: a folder, or `s3://BUCKET` [default: the deployment's own]
    #[arg(long, value_name = "PLACE")]
    pub roots: Option<String>,
}

/// `raglan audit recover`
#[derive(Debug, Clone, Args)]
pub struct RecoverArguments {
    /// The log: a file, or `-` for standard input
    pub file: PathBuf,
}
