//! What the guard can find: the rules, how serious each is, and one reported finding.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

/// How serious a finding is; the order is the order of seriousness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Unusual, rarely harmful by itself.
    Low,
    /// Hides something or carries data away.
    Medium,
    /// Tries to steer the model that reads the text.
    High,
}

impl Severity {
    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One kind of technique. The ids ([`Rule::id`]) are stable: they are metric dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// An order to drop earlier instructions, take a new role, reveal the prompt or hide something.
    InstructionOverride,
    /// A line that starts like a chat role.
    FakeRoleLine,
    /// A delimiter of a prompt template or of a tool protocol.
    FakeRoleTag,
    /// JSON or prose that imitates a tool call or a tool result.
    FakeToolCall,
    /// `Action:` followed by `Action Input:`, as in the `ReAct` prompt (Yao et al. 2022).
    ReactScaffold,
    /// A base64 run that decodes to something that another rule finds.
    Base64EncodedInstruction,
    /// A code point that a reader does not see and a model does.
    InvisibleChar,
    /// Markup that hides its content from a reader.
    HiddenMarkup,
    /// A link or image whose address can carry data away.
    ExfilUrl,
    /// One line longer than [`crate::OVERLONG_LINE_CHARS`] characters.
    OverlongLine,
    /// A long base64 run.
    Base64Blob,
}

impl Rule {
    /// Every rule, most serious first.
    pub const ALL: [Self; 11] = [
        Self::InstructionOverride,
        Self::FakeRoleLine,
        Self::FakeRoleTag,
        Self::FakeToolCall,
        Self::ReactScaffold,
        Self::Base64EncodedInstruction,
        Self::InvisibleChar,
        Self::HiddenMarkup,
        Self::ExfilUrl,
        Self::OverlongLine,
        Self::Base64Blob,
    ];

    /// The stable identifier, in `snake_case`.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::InstructionOverride => "instruction_override",
            Self::FakeRoleLine => "fake_role_line",
            Self::FakeRoleTag => "fake_role_tag",
            Self::FakeToolCall => "fake_tool_call",
            Self::ReactScaffold => "react_scaffold",
            Self::Base64EncodedInstruction => "base64_encoded_instruction",
            Self::InvisibleChar => "invisible_char",
            Self::HiddenMarkup => "hidden_markup",
            Self::ExfilUrl => "exfil_url",
            Self::OverlongLine => "overlong_line",
            Self::Base64Blob => "base64_blob",
        }
    }

    /// How serious a match of this rule is.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::InstructionOverride
            | Self::FakeRoleLine
            | Self::FakeRoleTag
            | Self::FakeToolCall
            | Self::ReactScaffold
            | Self::Base64EncodedInstruction => Severity::High,
            Self::InvisibleChar | Self::HiddenMarkup | Self::ExfilUrl => Severity::Medium,
            Self::OverlongLine | Self::Base64Blob => Severity::Low,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// What one rule found in one text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// How serious it is; always [`Rule::severity`] of `rule`.
    pub severity: Severity,
    /// What was recognised in the first match, as a short phrase in the language of the guard.
    pub detail: String,
    /// The first match in its neutralised form, cut to [`Finding::MATCHED_CHARS`] characters.
    pub matched: String,
    /// How many places in the text matched.
    pub count: u32,
    /// Where the first match is in the original text, in bytes.
    pub span: Range<usize>,
}

impl Finding {
    /// Longest `matched`, in characters; what was cut is shown by a final `…`.
    pub const MATCHED_CHARS: usize = 120;
}
