//! The values that the options of `raglan key` take.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use raglan_core::audit::privacy::TextPolicy;
use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::key_record::RateLimit;
use raglan_core::rotation::Grace;
use raglan_core::tool::Tool;

use crate::language::text;
use crate::moment::parse_duration_seconds;

/// A tool, all of them, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolChoice {
    /// Every tool that this version has.
    All,
    /// No tool.
    None,
    /// This one.
    One(Tool),
}

pub(super) fn tool_parser() -> impl TypedValueParser<Value = ToolChoice> {
    let names = Tool::ALL.map(Tool::name).into_iter().chain(["all", "none"]);
    PossibleValuesParser::new(names).map(|name| match Tool::from_name(&name) {
        Some(tool) => ToolChoice::One(tool),
        None if name == "all" => ToolChoice::All,
        None => ToolChoice::None,
    })
}

/// A knowledge base, all of them, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnowledgeBaseChoice {
    /// All that the key's kind may see.
    All,
    /// None.
    None,
    /// This one.
    One(KnowledgeBaseId),
}

impl std::str::FromStr for KnowledgeBaseChoice {
    type Err = raglan_core::catalog::InvalidKnowledgeBaseId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            _ => KnowledgeBaseId::parse(text).map(Self::One),
        }
    }
}

/// A policy of the key's own for the words in its audit events, or the deployment's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditTextChoice {
    /// What holds for keys without a policy of their own.
    Default,
    /// This one.
    Own(TextPolicy),
}

impl AuditTextChoice {
    /// What a key's record says of it.
    #[must_use]
    pub const fn policy(self) -> Option<TextPolicy> {
        match self {
            Self::Default => None,
            Self::Own(policy) => Some(policy),
        }
    }
}

pub(super) fn audit_text_parser() -> impl TypedValueParser<Value = AuditTextChoice> {
    let names = TextPolicy::ALL.map(TextPolicy::name);
    PossibleValuesParser::new(names.into_iter().chain(["default"])).map(|name| {
        TextPolicy::from_name(&name).map_or(AuditTextChoice::Default, AuditTextChoice::Own)
    })
}

/// A limit of the key's own, or the deployment's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateLimitChoice {
    /// What holds for keys without a limit of their own.
    Default,
    /// This one.
    Own(RateLimit),
}

/// A quota of one tool; `None` is the deployment's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaChoice {
    /// The tool.
    pub tool: Tool,
    /// Calls per day.
    pub calls: Option<u64>,
}

pub(super) fn parse_rate_limit(text: &str) -> Result<RateLimitChoice, String> {
    if text == "default" {
        return Ok(RateLimitChoice::Default);
    }
    let limit = text.split_once('/').and_then(|(rate, burst)| {
        Some(RateLimit {
            requests_per_minute: rate.parse().ok().filter(|rate| *rate > 0)?,
            burst: burst.parse().ok().filter(|burst| *burst > 0)?,
        })
    });
    limit.map(RateLimitChoice::Own).ok_or_else(|| {
        text!("expected requests per minute and burst, as 60/10, or default").to_owned()
    })
}

pub(super) fn parse_quota(text: &str) -> Result<QuotaChoice, String> {
    let quota = text.split_once('=').and_then(|(tool, calls)| {
        let tool = Tool::from_name(tool)?;
        let calls = match calls {
            "default" => None,
            number => Some(number.parse().ok()?),
        };
        Some(QuotaChoice { tool, calls })
    });
    quota.ok_or_else(|| {
        text!("expected a tool and its calls per day, as ask=100 or ask=default").to_owned()
    })
}

pub(super) fn parse_grace(text: &str) -> Result<Grace, String> {
    let seconds = parse_duration_seconds(text).map_err(|error| error.to_string())?;
    Grace::from_seconds(seconds).map_err(|_| text!("a grace is 0 to 7 days long").to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn limits_are_numbers_above_zero_and_quotas_name_a_tool() {
        let limit = RateLimit {
            requests_per_minute: 60,
            burst: 10,
        };
        assert_eq!(parse_rate_limit("60/10"), Ok(RateLimitChoice::Own(limit)));
        assert_eq!(parse_rate_limit("default"), Ok(RateLimitChoice::Default));
        for bad in ["", "60", "0/1", "1/0", "a/b", "60/10/1", "-1/1"] {
            assert!(parse_rate_limit(bad).is_err(), "{bad}");
        }
        let quota = |calls| QuotaChoice {
            tool: Tool::Ask,
            calls,
        };
        assert_eq!(parse_quota("ask=0"), Ok(quota(Some(0))));
        assert_eq!(parse_quota("ask=default"), Ok(quota(None)));
        for bad in ["", "ask", "ask=", "ask=-1", "delete=1", "Ask=1"] {
            assert!(parse_quota(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_grace_beyond_seven_days_is_a_wrong_command_line() {
        assert!(parse_grace("7d").is_ok() && parse_grace("0").is_ok());
        for bad in ["8d", "-1d", "soon"] {
            assert!(parse_grace(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in ".*") {
            let _ = (parse_rate_limit(&text), parse_quota(&text), parse_grace(&text));
        }
    }
}
