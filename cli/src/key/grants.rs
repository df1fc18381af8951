//! What the options for grants and limits make of a key's record.

use std::collections::BTreeSet;

use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::key_record::{KeyRecord, ScopeKind};
use raglan_core::tool::Tool;

use super::arguments::GrantChanges;
use super::choices::{KnowledgeBaseChoice, QuotaChoice, RateLimitChoice, ToolChoice};
use crate::failure::Failure;
use crate::language::text;

/// The tools that the options name.
///
/// # Errors
/// [`Failure::Usage`] when `none` stands beside something else.
pub fn tools(choices: &[ToolChoice]) -> Result<BTreeSet<Tool>, Failure> {
    let mut tools = BTreeSet::new();
    for choice in choices {
        match choice {
            ToolChoice::All => tools.extend(Tool::ALL),
            ToolChoice::One(tool) => {
                tools.insert(*tool);
            }
            ToolChoice::None if choices.len() > 1 => return Err(alone("none")),
            ToolChoice::None => {}
        }
    }
    Ok(tools)
}

/// The scope that the options name, with the listed knowledge bases.
///
/// # Errors
/// [`Failure::Usage`] when `all` or `none` stands beside something else.
pub fn scope(
    choices: &[KnowledgeBaseChoice],
) -> Result<(ScopeKind, BTreeSet<KnowledgeBaseId>), Failure> {
    let mut ids = BTreeSet::new();
    for choice in choices {
        match choice {
            KnowledgeBaseChoice::One(id) => {
                ids.insert(id.clone());
            }
            KnowledgeBaseChoice::All if choices.len() > 1 => return Err(alone("all")),
            KnowledgeBaseChoice::None if choices.len() > 1 => return Err(alone("none")),
            KnowledgeBaseChoice::All => return Ok((ScopeKind::All, ids)),
            KnowledgeBaseChoice::None => return Ok((ScopeKind::None, ids)),
        }
    }
    Ok((list_or_none(&ids), ids))
}

/// Writes limits of the key's own, or takes them away.
pub fn set_limits(record: &mut KeyRecord, rate: Option<RateLimitChoice>, quotas: &[QuotaChoice]) {
    match rate {
        None => {}
        Some(RateLimitChoice::Default) => record.rate_limit = None,
        Some(RateLimitChoice::Own(limit)) => record.rate_limit = Some(limit),
    }
    for quota in quotas {
        let tool = quota.tool.name();
        match quota.calls {
            None => record.daily_quotas.remove(tool),
            Some(calls) => record.daily_quotas.insert(tool.to_owned(), calls),
        };
    }
}

/// The record with the changes made.
///
/// # Errors
/// [`Failure::Usage`] when options do not fit together; [`Failure::Refused`] when one knowledge base is
/// to be added to, or taken from, `all`.
pub fn changed(record: &KeyRecord, changes: &GrantChanges) -> Result<KeyRecord, Failure> {
    let mut after = record.clone();
    if !changes.tools.is_empty() {
        after.tools = tools(&changes.tools)?;
    }
    after.tools.extend(tools(&changes.add_tools)?);
    for tool in tools(&changes.remove_tools)? {
        after.tools.remove(&tool);
    }
    if !changes.knowledge_bases.is_empty() {
        (after.scope, after.kb_ids) = scope(&changes.knowledge_bases)?;
    }
    let (add, remove) = (
        &changes.add_knowledge_bases,
        &changes.remove_knowledge_bases,
    );
    if !add.is_empty() || !remove.is_empty() {
        if record.scope == ScopeKind::All {
            return Err(Failure::Refused(
                text!("the key's scope is all knowledge bases: set the whole list with --kb")
                    .to_owned(),
            ));
        }
        // What a record of scope `none` may still list counts for nothing.
        if record.scope == ScopeKind::None {
            after.kb_ids.clear();
        }
        after.kb_ids.extend(add.iter().cloned());
        after.kb_ids.retain(|id| !remove.contains(id));
        after.scope = list_or_none(&after.kb_ids);
    }
    set_limits(&mut after, changes.rate_limit, &changes.quotas);
    if let Some(choice) = changes.audit_text {
        after.audit_text = choice.policy();
    }
    Ok(after)
}

fn list_or_none(ids: &BTreeSet<KnowledgeBaseId>) -> ScopeKind {
    if ids.is_empty() {
        ScopeKind::None
    } else {
        ScopeKind::List
    }
}

fn alone(word: &str) -> Failure {
    Failure::Usage(text!("`{word}` stands alone", word))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use raglan_core::access::Scope;
    use raglan_core::audit::privacy::TextPolicy;
    use raglan_core::clock::Timestamp;
    use raglan_core::key::PlainKey;
    use raglan_core::key_record::RateLimit;
    use raglan_core::random::SequenceRandom;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        changes: GrantChanges,
    }

    fn record(options: &[&str]) -> KeyRecord {
        let key = PlainKey::generate(&SequenceRandom::seeded(1)).unwrap();
        let bare = serde_json::json!({
            "key_hash": key.hash(), "key_id": "key-1", "name": "n", "fingerprint": "f",
            "enabled": true, "created_at": Timestamp::from_epoch_seconds(1_800_000_000),
        });
        let record = serde_json::from_value(bare).unwrap();
        if options.is_empty() {
            record
        } else {
            apply(&record, options).unwrap()
        }
    }

    fn apply(record: &KeyRecord, options: &[&str]) -> Result<KeyRecord, Failure> {
        let line = [&["raglan"], options].concat();
        changed(record, &Line::try_parse_from(line).unwrap().changes)
    }

    fn scope_of(record: &KeyRecord) -> String {
        match record.grant().scope {
            Scope::None => "none".to_owned(),
            Scope::All => "all".to_owned(),
            Scope::List(ids) => ids
                .iter()
                .map(KnowledgeBaseId::as_str)
                .collect::<Vec<_>>()
                .join(","),
        }
    }

    #[test]
    fn knowledge_bases_are_set_added_and_taken_away() {
        for (before, options, after) in [
            ("none", vec!["--add-kb", "a,b"], "a,b"),
            ("a", vec!["--add-kb", "b"], "a,b"),
            ("a,b", vec!["--remove-kb", "a"], "b"),
            ("a", vec!["--remove-kb", "a"], "none"),
            ("a", vec!["--remove-kb", "x"], "a"),
            ("a", vec!["--add-kb", "b", "--remove-kb", "a"], "b"),
            ("a", vec!["--kb", "all"], "all"),
            ("all", vec!["--kb", "b"], "b"),
            ("a,b", vec!["--kb", "none"], "none"),
        ] {
            let key = record(&["--kb", before]);
            assert_eq!(
                scope_of(&apply(&key, &options).unwrap()),
                after,
                "{before} {options:?}"
            );
        }
    }

    #[test]
    fn all_is_not_narrowed_or_widened_by_single_knowledge_bases() {
        let key = record(&["--kb", "all"]);
        for options in [["--add-kb", "a"], ["--remove-kb", "a"]] {
            assert!(matches!(apply(&key, &options), Err(Failure::Refused(_))));
        }
    }

    #[test]
    fn tools_are_set_added_and_taken_away() {
        for (before, options, after) in [
            ("none", ["--add-tools", "ask"], "ask"),
            ("ask", ["--add-tools", "retrieve"], "ask,retrieve"),
            ("ask,retrieve", ["--remove-tools", "ask"], "retrieve"),
            ("all", ["--tools", "ask"], "ask"),
            ("all", ["--remove-tools", "all"], ""),
            ("ask", ["--tools", "none"], ""),
        ] {
            let key = apply(&record(&["--tools", before]), &options).unwrap();
            let names: Vec<&str> = key.tools.iter().map(|tool| tool.name()).collect();
            assert_eq!(names.join(","), after, "{before} {options:?}");
        }
        assert_eq!(record(&["--tools", "all"]).tools.len(), Tool::ALL.len());
    }

    #[test]
    fn all_and_none_stand_alone() {
        for options in [
            ["--kb", "all,a"],
            ["--kb", "none,a"],
            ["--tools", "none,ask"],
        ] {
            assert!(matches!(
                apply(&record(&[]), &options),
                Err(Failure::Usage(_))
            ));
        }
    }

    #[test]
    fn limits_come_and_go_alone() {
        let key = record(&[
            "--rate-limit",
            "60/10",
            "--quota",
            "ask=5",
            "--quota",
            "retrieve=9",
        ]);
        let limit = RateLimit {
            requests_per_minute: 60,
            burst: 10,
        };
        assert_eq!(key.rate_limit, Some(limit));
        assert_eq!(key.daily_quotas.len(), 2);
        let key = apply(&key, &["--quota", "ask=default"]).unwrap();
        assert_eq!(key.daily_quotas.keys().collect::<Vec<_>>(), ["retrieve"]);
        assert_eq!(
            apply(&key, &["--rate-limit", "default"])
                .unwrap()
                .rate_limit,
            None
        );
        assert_eq!(scope_of(&key), "none");
    }

    #[test]
    fn a_policy_for_audited_words_comes_and_goes_alone() {
        let key = record(&["--audit-text", "hash"]);
        assert_eq!(key.audit_text, Some(TextPolicy::Hash));
        let key = apply(&key, &["--quota", "ask=5"]).unwrap();
        assert_eq!(key.audit_text, Some(TextPolicy::Hash));
        let key = apply(&key, &["--audit-text", "default"]).unwrap();
        assert_eq!((key.audit_text, key.daily_quotas.len()), (None, 1));
        assert!(Line::try_parse_from(["raglan", "--audit-text", "shout"]).is_err());
    }

    #[test]
    fn a_grant_without_a_change_is_a_wrong_command_line() {
        assert!(Line::try_parse_from(["raglan"]).is_err());
        assert!(Line::try_parse_from(["raglan", "--tools", "ask", "--add-tools", "ask"]).is_err());
        assert!(Line::try_parse_from(["raglan", "--tools", "delete"]).is_err());
    }
}
