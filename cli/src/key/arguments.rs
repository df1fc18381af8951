//! The command line of `raglan key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::rotation::Grace;

use super::choices::{
    AuditTextChoice, KnowledgeBaseChoice, QuotaChoice, RateLimitChoice, ToolChoice,
    audit_text_parser, parse_grace, parse_quota, parse_rate_limit, tool_parser,
};
use crate::arguments::TargetArguments;
use crate::moment::{When, parse_when};

// One line of the text is one paragraph: clap breaks it to the width of the terminal.
const KEY_HELP: &str = "\
A key is named by its identifier (key-1a2b3c4d5e6f), by its fingerprint (rgl_abc…xyz), or by `-`: then \
the key itself is read from standard input, for a key that turned up where it should not be. Never \
write a key on a command line: shells keep it.

Each change is an audit event with your identity, written before the change is made and again \
afterwards. When the audit queue cannot be reached, nothing is changed.

Exit codes: 0 done, 1 failed, 2 wrong command line, 3 done with something left out, 4 no such key, \
5 refused (forbidden, not confirmed, or changed by somebody else meanwhile).";

/// `raglan key`
#[derive(Debug, Clone, Args)]
#[command(after_help = KEY_HELP)]
pub struct KeyArguments {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// The deployment.
    #[command(flatten)]
    pub target: TargetArguments,
    /// What to do.
    #[command(subcommand)]
    pub command: KeyCommand,
}

/// The commands for keys.
#[derive(Debug, Clone, Subcommand)]
pub enum KeyCommand {
    /// Makes a key and shows it once, with what clients need to use it
    #[command(after_help = CREATE_EXAMPLES)]
    Create(CreateArguments),
    /// Takes over a key that was issued elsewhere, by its SHA-256, or grants to an OAuth subject
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArguments),
    /// Lists keys, never their secrets
    List(ListArguments),
    /// Shows one key's grants, limits and state
    Show {
        /// Identifier, fingerprint, or `-`
        key: String,
    },
    /// Changes what a key may do; it takes effect with the key's next request
    #[command(after_help = GRANT_EXAMPLES)]
    Grant(GrantArguments),
    /// Ends a key for good, with its next request
    #[command(after_help = REVOKE_EXAMPLES)]
    Revoke(RevokeArguments),
    /// Lets a key work that was switched off
    Enable {
        /// Identifier, fingerprint, or `-`
        key: String,
    },
    /// Switches a key off until it is enabled again
    Disable {
        /// Identifier, fingerprint, or `-`
        key: String,
        /// Do it even if the audit trail cannot be told; the event is shown instead
        #[arg(long)]
        allow_unaudited: bool,
    },
    /// Makes a new key with the same grants; the old one works on for a while
    #[command(after_help = ROTATE_EXAMPLES)]
    Rotate(RotateArguments),
    /// Says when a key ends
    #[command(after_help = EXPIRE_EXAMPLES)]
    Expire(ExpireArguments),
    /// Tells when and how much keys were used
    #[command(after_help = USAGE_HELP)]
    Usage(UsageArguments),
}

const CREATE_EXAMPLES: &str = "\
Without --tools and --kb a key may do nothing: nothing is open by default.

Examples:
  raglan key create 'support bot' --tools retrieve,ask --kb handbook,products --expires 90d
  raglan key create 'anna laptop' --owner anna --tools all --kb all
  raglan key create ci --tools ask --kb handbook --rate-limit 60/10 --quota ask=100

In scripts the key goes into a file that only you can read, or, if you insist, to standard \
output:
  raglan key create ci --tools retrieve --kb all --out ci.key && head -1 ci.key
  raglan key create ci --tools retrieve --kb all --print --json | jq -r .key";

const IMPORT_EXAMPLES: &str = "\
Examples:
  printf %s \"$OLD_KEY\" | sha256sum | cut -c1-64     # on the machine that has the key
  raglan key import 'old gateway' --sha256 9f86d081884c7d65…  --tools retrieve --kb handbook
  raglan key import 'anna' --oauth-issuer https://id.example --oauth-subject 8f1c… --tools all --kb all";

const GRANT_EXAMPLES: &str = "\
--tools and --kb set the whole list; --add-… and --remove-… change what is there.

Examples:
  raglan key grant key-1a2b3c4d5e6f --add-tools ask --add-kb products
  raglan key grant key-1a2b3c4d5e6f --tools retrieve --kb handbook      # exactly this from now on
  raglan key grant key-1a2b3c4d5e6f --kb none                           # nothing, without revoking
  raglan key grant key-1a2b3c4d5e6f --rate-limit 120/20 --quota ask=500 --quota retrieve=default";

const REVOKE_EXAMPLES: &str = "\
Examples:
  raglan key revoke key-1a2b3c4d5e6f
  raglan key revoke rgl_abc…xyz --yes
  pbpaste | raglan key revoke - --yes                # a key that leaked";

const ROTATE_EXAMPLES: &str = "\
Both keys work until the grace is over; the old one never outlives its own end. The new key ends when \
the old one would have, unless --expires says something else. Only a key that works can be rotated.

Examples:
  raglan key rotate key-1a2b3c4d5e6f                            # a day for moving clients over
  raglan key rotate key-1a2b3c4d5e6f --grace 7d --expires 90d
  raglan key rotate key-1a2b3c4d5e6f --grace 0 --yes --out new.key";

const EXPIRE_EXAMPLES: &str = "\
The end can be moved until it is reached. A key that has ended stays ended: make a new one.

Examples:
  raglan key expire key-1a2b3c4d5e6f 30d
  raglan key expire key-1a2b3c4d5e6f 2027-01-31
  raglan key expire key-1a2b3c4d5e6f never";

const USAGE_HELP: &str = "\
Counted is every tool call that was let through, whatever came of it; not counted are listings \
(initialize, tools/list), refused calls, and calls while the table of limits could not be asked. Counts \
are kept for 400 days after the last call.

Examples:
  raglan key usage                      # all keys, the most recently used first
  raglan key usage key-1a2b3c4d5e6f --json";

/// What a new key may do.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Grants")]
pub struct NewGrants {
    /// Tools that may be called
    #[arg(long, value_name = "TOOL", value_delimiter = ',', value_parser = tool_parser())]
    pub tools: Vec<ToolChoice>,
    /// Knowledge bases that may be asked: identifiers, `all` or `none`. With --owner only those of the
    /// owner
    #[arg(long = "kb", value_name = "ID", value_delimiter = ',')]
    pub knowledge_bases: Vec<KnowledgeBaseChoice>,
    /// Whose key it is: it then reaches that owner's knowledge bases only. Without it: a system key
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub owner: Option<String>,
    /// When it ends: 30d, 12h, a date (its beginning in UTC) or `never`
    #[arg(long, value_name = "WHEN", default_value = "never", value_parser = parse_when)]
    pub expires: When,
    /// What the audit trail keeps of the callers' words: `plain`, `hash`, `drop`, or `default`
    #[arg(long, value_name = "POLICY", value_parser = audit_text_parser())]
    pub audit_text: Option<AuditTextChoice>,
    /// Limits of its own.
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Limits of a key.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArguments {
    /// Requests per minute and how many may come at once, or `default`
    #[arg(long, value_name = "PER_MINUTE/BURST", value_parser = parse_rate_limit)]
    pub rate_limit: Option<RateLimitChoice>,
    /// Calls of one tool per day (UTC), or `default`; may be given several times
    #[arg(long = "quota", value_name = "TOOL=CALLS", value_parser = parse_quota)]
    pub quotas: Vec<QuotaChoice>,
}

/// What to do with a key that is shown once.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "The key")]
pub struct HandoverArguments {
    /// Write the key and the clients' configurations to this new file, readable by you alone; its first
    /// line is the key
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the key to standard output although that is no terminal
    #[arg(long, conflicts_with = "out")]
    pub print: bool,
    /// The MCP endpoint in the clients' configurations, when the deployment does not say it
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
}

/// `raglan key create`
#[derive(Debug, Clone, Args)]
pub struct CreateArguments {
    /// What the key is for
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: String,
    /// What it may do.
    #[command(flatten)]
    pub grants: NewGrants,
    /// Where it goes.
    #[command(flatten)]
    pub handover: HandoverArguments,
}

/// Who presents what is imported: the holder of a key, or the subject of access tokens.
#[derive(Debug, Clone, Args)]
pub struct ImportedHolder {
    /// SHA-256 of the whole key, 64 hexadecimal digits
    #[arg(
        long,
        value_name = "HEX",
        required_unless_present = "oauth_subject",
        conflicts_with_all = ["oauth_issuer", "oauth_subject"]
    )]
    pub sha256: Option<String>,
    /// Instead of a key: the issuer of access tokens, exactly as in their claim `iss`
    #[arg(long, value_name = "URL", requires = "oauth_subject", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub oauth_issuer: Option<String>,
    /// Whose access tokens: exactly their claim `sub`
    #[arg(long, value_name = "SUB", requires = "oauth_issuer", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub oauth_subject: Option<String>,
}

/// `raglan key import`
#[derive(Debug, Clone, Args)]
pub struct ImportArguments {
    /// What the key is for
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: String,
    /// Where what it may do is found again.
    #[command(flatten)]
    pub holder: ImportedHolder,
    /// What it may do.
    #[command(flatten)]
    pub grants: NewGrants,
}

/// `raglan key list`
#[derive(Debug, Clone, Args)]
pub struct ListArguments {
    /// Only keys of this owner
    #[arg(long, value_name = "NAME")]
    pub owner: Option<String>,
    /// Ended keys as well: revoked, expired and replaced ones
    #[arg(long)]
    pub all: bool,
}

/// `raglan key grant`
#[derive(Debug, Clone, Default, Args)]
#[group(required = true, multiple = true)]
pub struct GrantChanges {
    /// Exactly these tools, `all` or `none`
    #[arg(long, value_name = "TOOL", value_delimiter = ',', value_parser = tool_parser())]
    pub tools: Vec<ToolChoice>,
    /// These tools as well
    #[arg(long, value_name = "TOOL", value_delimiter = ',', conflicts_with = "tools", value_parser = tool_parser())]
    pub add_tools: Vec<ToolChoice>,
    /// These tools not any more
    #[arg(long, value_name = "TOOL", value_delimiter = ',', conflicts_with = "tools", value_parser = tool_parser())]
    pub remove_tools: Vec<ToolChoice>,
    /// Exactly these knowledge bases, `all` or `none`
    #[arg(long = "kb", value_name = "ID", value_delimiter = ',')]
    pub knowledge_bases: Vec<KnowledgeBaseChoice>,
    /// These knowledge bases as well
    #[arg(long = "add-kb", value_name = "ID", value_delimiter = ',', conflicts_with = "knowledge_bases", value_parser = KnowledgeBaseId::parse)]
    pub add_knowledge_bases: Vec<KnowledgeBaseId>,
    /// These knowledge bases not any more
    #[arg(long = "remove-kb", value_name = "ID", value_delimiter = ',', conflicts_with = "knowledge_bases", value_parser = KnowledgeBaseId::parse)]
    pub remove_knowledge_bases: Vec<KnowledgeBaseId>,
    /// Requests per minute and how many may come at once, or `default`
    #[arg(long, value_name = "PER_MINUTE/BURST", value_parser = parse_rate_limit)]
    pub rate_limit: Option<RateLimitChoice>,
    /// Calls of one tool per day (UTC), or `default`; may be given several times
    #[arg(long = "quota", value_name = "TOOL=CALLS", value_parser = parse_quota)]
    pub quotas: Vec<QuotaChoice>,
    /// What the audit trail keeps of the callers' words: `plain`, `hash`, `drop`, or `default`
    #[arg(long, value_name = "POLICY", value_parser = audit_text_parser())]
    pub audit_text: Option<AuditTextChoice>,
}

/// `raglan key grant`
#[derive(Debug, Clone, Args)]
pub struct GrantArguments {
    /// Identifier, fingerprint, or `-`
    pub key: String,
    /// What changes.
    #[command(flatten)]
    pub changes: GrantChanges,
}

/// `raglan key revoke`
#[derive(Debug, Clone, Args)]
pub struct RevokeArguments {
    /// Identifier, fingerprint, or `-`
    pub key: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Do it even if the audit trail cannot be told; the event is shown instead
    #[arg(long)]
    pub allow_unaudited: bool,
}

/// `raglan key rotate`
#[derive(Debug, Clone, Args)]
pub struct RotateArguments {
    /// Identifier, fingerprint, or `-`
    pub key: String,
    /// How long the old key works on: 0 to 7d
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_grace)]
    pub grace: Grace,
    /// When the new key ends (default: when the old one would have)
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    pub expires: Option<When>,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Where the new key goes.
    #[command(flatten)]
    pub handover: HandoverArguments,
}

/// `raglan key expire`
#[derive(Debug, Clone, Args)]
pub struct ExpireArguments {
    /// Identifier, fingerprint, or `-`
    pub key: String,
    /// 30d, 12h, `now`, a date (its beginning in UTC) or `never`
    #[arg(value_parser = parse_when)]
    pub when: When,
    /// Do not ask when the key ends at once
    #[arg(long)]
    pub yes: bool,
}

/// `raglan key usage`
#[derive(Debug, Clone, Args)]
pub struct UsageArguments {
    /// Identifier, fingerprint, or `-`; without it all keys
    pub key: Option<String>,
    /// Ended keys as well: revoked, expired and replaced ones
    #[arg(long, conflicts_with = "key")]
    pub all: bool,
}
