//! The command line of `raglan kb`.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use raglan_core::catalog::{BackendReference, InvalidKnowledgeBaseId, KnowledgeBaseId};

use crate::arguments::TargetArguments;

// One line of the text is one paragraph: clap breaks it to the width of the terminal.
const KB_HELP: &str = "\
`raglan index` makes a knowledge base out of a folder and writes its entry itself; `kb add` is for \
those that another engine answers for.

Each change is an audit event with your identity, written before the change is made and again \
afterwards. When the audit queue cannot be reached, nothing is changed.

Exit codes: 0 done, 1 failed, 2 wrong command line, 3 done with something left out, 4 no such \
knowledge base, 5 refused (there already, not confirmed, or changed by somebody else meanwhile).";

/// `raglan kb`
#[derive(Debug, Clone, Args)]
#[command(after_help = KB_HELP)]
pub struct KbArguments {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// The deployment.
    #[command(flatten)]
    pub target: TargetArguments,
    /// What to do.
    #[command(subcommand)]
    pub command: KbCommand,
}

/// The commands for knowledge bases.
#[derive(Debug, Clone, Subcommand)]
pub enum KbCommand {
    /// Enters a knowledge base into the catalogue
    #[command(after_help = ADD_EXAMPLES)]
    Add(AddArguments),
    /// Lists the catalogue
    List {
        /// Only knowledge bases of this owner
        #[arg(long, value_name = "NAME")]
        owner: Option<String>,
    },
    /// Shows one entry
    Show {
        /// The knowledge base
        #[arg(value_parser = KnowledgeBaseId::parse)]
        id: KnowledgeBaseId,
    },
    /// Changes what an entry says
    #[command(after_help = EDIT_EXAMPLES)]
    Edit(EditArguments),
    /// Takes an entry out of the catalogue: no key reaches the knowledge base any more. Its index stays
    Remove {
        /// The knowledge base
        #[arg(value_parser = KnowledgeBaseId::parse)]
        id: KnowledgeBaseId,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Lists the knowledge bases of the configured engines
    #[command(after_help = DISCOVER_HELP)]
    Discover {
        /// Only those of this engine
        #[arg(value_name = "ENGINE")]
        engine: Option<String>,
    },
    /// Gives a knowledge base to another owner; it takes effect with the next call
    #[command(after_help = OWNER_EXAMPLES)]
    Owner(OwnerArguments),
}

/// The names of engines are written like the identifiers of knowledge bases.
fn engine_name(text: &str) -> Result<String, InvalidKnowledgeBaseId> {
    KnowledgeBaseId::parse(text).map(String::from)
}

const DISCOVER_HELP: &str = "\
The engines are those that BACKENDS or BACKENDS_FILE names, as for the function. Callers see only what is \
entered into the catalogue.

Examples:
  BACKENDS_FILE=engines.json raglan kb discover
  raglan kb add handbook --backend wiki --backend-id vs_123 --description 'The handbook'";

const ADD_EXAMPLES: &str = "\
Examples:
  raglan kb add products --name 'Product manuals' \\
    --description 'Manuals of all products since 2019, in English'
  raglan kb add notes --description 'Meeting notes of the team' --owner anna";

const EDIT_EXAMPLES: &str = "\
Examples:
  raglan kb edit products --description 'Manuals of all products, in English and German'
  raglan kb edit products --backend-id manuals-v2";

const OWNER_EXAMPLES: &str = "\
Keys of an owner reach the owner's knowledge bases only. Without owner, only system keys reach it.

Examples:
  raglan kb owner products anna
  raglan kb owner products --none";

/// `raglan kb add`
#[derive(Debug, Clone, Args)]
pub struct AddArguments {
    /// Identifier: a-z, 0-9, '_' and '-'
    #[arg(value_parser = KnowledgeBaseId::parse)]
    pub id: KnowledgeBaseId,
    /// Name for people (default: the identifier)
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub name: Option<String>,
    /// What it covers, in a sentence that a model can choose by
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub description: String,
    /// Whose it is; without it only keys without owner reach it
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub owner: Option<String>,
    /// The engine that answers for it
    #[arg(long, value_name = "NAME", default_value = BackendReference::EMBEDDED, value_parser = engine_name)]
    pub backend: String,
    /// The engine's own identifier (default: the identifier)
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub backend_id: Option<String>,
    /// How passages are found, for people and models (default: bm25, or engine for another engine)
    #[arg(long, value_name = "WORD", value_parser = NonEmptyStringValueParser::new())]
    pub strategy: Option<String>,
}

/// What an entry says.
#[derive(Debug, Clone, Default, Args)]
#[group(required = true, multiple = true)]
pub struct EntryChanges {
    /// Name for people
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub name: Option<String>,
    /// What it covers, in a sentence that a model can choose by
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub description: Option<String>,
    /// The engine that answers for it
    #[arg(long, value_name = "NAME", value_parser = engine_name)]
    pub backend: Option<String>,
    /// The engine's own identifier
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub backend_id: Option<String>,
    /// How passages are found, for people and models
    #[arg(long, value_name = "WORD", value_parser = NonEmptyStringValueParser::new())]
    pub strategy: Option<String>,
}

/// `raglan kb edit`
#[derive(Debug, Clone, Args)]
pub struct EditArguments {
    /// The knowledge base
    #[arg(value_parser = KnowledgeBaseId::parse)]
    pub id: KnowledgeBaseId,
    /// What changes.
    #[command(flatten)]
    pub changes: EntryChanges,
}

/// `raglan kb owner`
#[derive(Debug, Clone, Args)]
pub struct OwnerArguments {
    /// The knowledge base
    #[arg(value_parser = KnowledgeBaseId::parse)]
    pub id: KnowledgeBaseId,
    /// Whose it becomes
    #[arg(value_name = "NAME", required_unless_present = "none", value_parser = NonEmptyStringValueParser::new())]
    pub owner: Option<String>,
    /// Nobody's: for keys without owner only
    #[arg(long, conflicts_with = "owner")]
    pub none: bool,
}
