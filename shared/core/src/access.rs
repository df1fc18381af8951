//! The permission rule: tool whitelist × knowledge-base scope × owner. Pure, written once; every tool
//! goes through it.
//!
//! | key | scope `none` | scope `all` | scope `list` |
//! |---|---|---|---|
//! | system key (no owner) | nothing | every knowledge base | exactly the list |
//! | user key | nothing | what its owner owns | the list ∩ what its owner owns |
//!
//! Nothing is open by default: no tools means no tool, and a scope that is not understood is `none`.

use std::collections::BTreeSet;

use crate::catalog::{KnowledgeBase, KnowledgeBaseId};
use crate::tool::Tool;

/// Which knowledge bases a key names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scope {
    /// No knowledge base.
    #[default]
    None,
    /// All that the key's kind may see.
    All,
    /// These, as far as the key's kind may see them.
    List(BTreeSet<KnowledgeBaseId>),
}

/// What a key may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// The owner; `None` for a system key.
    pub owner: Option<String>,
    /// The tools that may be called.
    pub tools: BTreeSet<Tool>,
    /// The knowledge bases that may be asked.
    pub scope: Scope,
}

/// Why a call is refused. "Not permitted" and "does not exist" are the same denial, so that nobody can
/// find out which identifiers exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The tool is not on the key's list.
    #[error("tool not allowed")]
    ToolNotAllowed,
    /// At least one of the named knowledge bases is out of scope, or there is none.
    #[error("knowledge base not found or not permitted")]
    KnowledgeBase,
    /// The task belongs to a knowledge base out of scope, or there is none.
    #[error("task not found")]
    Task,
}

impl Denial {
    /// The JSON-RPC error code of every denial.
    pub const CODE: i32 = -32001;
}

/// The part of the catalogue that has to be read to know a grant's effective scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach<'a> {
    /// Nothing: the scope is empty whatever the catalogue says.
    Nothing,
    /// Every entry of the deployment (`owner: None`) or of one owner.
    Everything {
        /// The owner, `None` for a system key.
        owner: Option<&'a str>,
    },
    /// The named entries, as far as they are the deployment's (`owner: None`) or the owner's.
    Listed {
        /// The owner, `None` for a system key.
        owner: Option<&'a str>,
        /// The names.
        ids: &'a BTreeSet<KnowledgeBaseId>,
    },
}

impl Grant {
    /// Whether the tool is on the list.
    ///
    /// # Errors
    /// [`Denial::ToolNotAllowed`] when it is not.
    pub fn permit_tool(&self, tool: Tool) -> Result<(), Denial> {
        if self.tools.contains(&tool) {
            Ok(())
        } else {
            Err(Denial::ToolNotAllowed)
        }
    }

    /// Whether this knowledge base is within the grant: **the** rule.
    #[must_use]
    pub fn covers(&self, knowledge_base: &KnowledgeBase) -> bool {
        let owner_fits = match &self.owner {
            None => true,
            Some(owner) => knowledge_base.owner.as_ref() == Some(owner),
        };
        let scope_fits = match &self.scope {
            Scope::None => false,
            Scope::All => true,
            Scope::List(ids) => ids.contains(&knowledge_base.id),
        };
        owner_fits && scope_fits
    }

    /// What must be read before [`Grant::effective_scope`] can be answered.
    #[must_use]
    pub fn reach(&self) -> Reach<'_> {
        let owner = self.owner.as_deref();
        match &self.scope {
            Scope::None => Reach::Nothing,
            Scope::List(ids) if ids.is_empty() => Reach::Nothing,
            Scope::All => Reach::Everything { owner },
            Scope::List(ids) => Reach::Listed { owner, ids },
        }
    }

    /// The knowledge bases that the key may use, out of what was read for [`Grant::reach`]. Entries
    /// beyond the grant are dropped, whatever the store returned.
    #[must_use]
    pub fn effective_scope(&self, read: Vec<KnowledgeBase>) -> EffectiveScope {
        let mut permitted: Vec<_> = read.into_iter().filter(|kb| self.covers(kb)).collect();
        permitted.sort_by(|a, b| a.id.cmp(&b.id));
        permitted.dedup_by(|a, b| a.id == b.id);
        EffectiveScope { permitted }
    }
}

/// The knowledge bases that a key may use at this moment, ordered by id. Only
/// [`Grant::effective_scope`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveScope {
    permitted: Vec<KnowledgeBase>,
}

impl EffectiveScope {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[KnowledgeBase] {
        &self.permitted
    }

    /// The one with this identifier.
    ///
    /// # Errors
    /// [`Denial::KnowledgeBase`] when it is out of scope or does not exist.
    pub fn find(&self, id: &str) -> Result<&KnowledgeBase, Denial> {
        self.permitted
            .iter()
            .find(|kb| kb.id.as_str() == id)
            .ok_or(Denial::KnowledgeBase)
    }

    /// The named ones, or the whole scope when none is named. Narrows, never widens.
    ///
    /// # Errors
    /// [`Denial::KnowledgeBase`] when any of the names is out of scope or does not exist.
    pub fn select(&self, ids: &[String]) -> Result<Vec<&KnowledgeBase>, Denial> {
        if ids.is_empty() {
            return Ok(self.permitted.iter().collect());
        }
        let mut selected = Vec::with_capacity(ids.len());
        for id in ids {
            let knowledge_base = self.find(id)?;
            if !selected
                .iter()
                .any(|known: &&KnowledgeBase| known.id == knowledge_base.id)
            {
                selected.push(knowledge_base);
            }
        }
        Ok(selected)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalog::BackendReference;
    use crate::clock::Timestamp;

    fn id(text: &str) -> KnowledgeBaseId {
        KnowledgeBaseId::parse(text).unwrap()
    }

    fn knowledge_base(name: &str, owner: Option<&str>) -> KnowledgeBase {
        KnowledgeBase {
            id: id(name),
            name: name.to_owned(),
            description: String::new(),
            owner: owner.map(ToOwned::to_owned),
            backend: BackendReference {
                kind: "embedded".to_owned(),
                id: name.to_owned(),
            },
            strategy: "bm25".to_owned(),
            document_count: None,
            chunk_count: None,
            created_at: Timestamp::from_epoch_ms(0),
            updated_at: Timestamp::from_epoch_ms(0),
        }
    }

    fn catalogue() -> Vec<KnowledgeBase> {
        vec![
            knowledge_base("public", None),
            knowledge_base("anna-1", Some("anna")),
            knowledge_base("anna-2", Some("anna")),
            knowledge_base("bo-1", Some("bo")),
        ]
    }

    fn grant(owner: Option<&str>, scope: Scope) -> Grant {
        Grant {
            owner: owner.map(ToOwned::to_owned),
            tools: Tool::ALL.into_iter().collect(),
            scope,
        }
    }

    fn list(ids: &[&str]) -> Scope {
        Scope::List(ids.iter().map(|text| id(text)).collect())
    }

    fn visible(grant: &Grant) -> Vec<String> {
        let scope = grant.effective_scope(catalogue());
        scope.all().iter().map(|kb| kb.id.to_string()).collect()
    }

    #[test]
    fn every_kind_of_key_sees_exactly_its_row_of_the_table() {
        let everything = &["anna-1", "anna-2", "bo-1", "public"][..];
        let rows: [(Option<&str>, Scope, &[&str]); 12] = [
            (None, Scope::None, &[]),
            (None, Scope::All, everything),
            (None, list(&[]), &[]),
            (None, list(&["bo-1", "public"]), &["bo-1", "public"]),
            (None, list(&["no-such"]), &[]),
            (Some("anna"), Scope::None, &[]),
            (Some("anna"), Scope::All, &["anna-1", "anna-2"]),
            (Some("anna"), list(&[]), &[]),
            (
                Some("anna"),
                list(&["anna-2", "bo-1", "public"]),
                &["anna-2"],
            ),
            (Some("anna"), list(&["bo-1"]), &[]),
            (Some("nobody"), Scope::All, &[]),
            (Some(""), Scope::All, &[]),
        ];
        for (owner, scope, expected) in rows {
            let grant = grant(owner, scope);
            assert_eq!(visible(&grant), expected, "{grant:?}");
        }
    }

    #[test]
    fn every_tool_is_refused_unless_it_is_listed() {
        for listed in Tool::ALL {
            let only = Grant {
                tools: BTreeSet::from([listed]),
                ..Grant::default()
            };
            for asked in Tool::ALL {
                assert_eq!(only.permit_tool(asked).is_ok(), asked == listed);
                assert_eq!(
                    Grant::default().permit_tool(asked),
                    Err(Denial::ToolNotAllowed)
                );
            }
        }
    }

    #[test]
    fn forbidden_and_absent_are_the_same_denial() {
        let scope = grant(Some("anna"), Scope::All).effective_scope(catalogue());
        assert_eq!(scope.find("bo-1"), scope.find("no-such"));
        let ask = |name: &str| scope.select(&["anna-1".to_owned(), name.to_owned()]);
        assert_eq!(ask("bo-1"), Err(Denial::KnowledgeBase));
        assert_eq!(ask("bo-1"), ask("no-such"));
        assert_eq!(ask("public"), ask("../anna-1"));
    }

    #[test]
    fn an_empty_scope_reads_nothing_at_all() {
        assert_eq!(grant(None, Scope::None).reach(), Reach::Nothing);
        assert_eq!(grant(Some("anna"), list(&[])).reach(), Reach::Nothing);
        assert_eq!(
            grant(None, Scope::All).reach(),
            Reach::Everything { owner: None }
        );
        assert_eq!(
            grant(Some("anna"), Scope::All).reach(),
            Reach::Everything {
                owner: Some("anna")
            }
        );
    }

    proptest! {
        #[test]
        fn no_argument_widens_a_scope(
            owner in prop_oneof![Just(None), Just(Some("anna")), Just(Some("bo"))],
            listed in proptest::sample::subsequence(vec!["public", "anna-1", "anna-2", "bo-1"], 0..=4),
            all in any::<bool>(),
            asked in proptest::collection::vec(
                prop_oneof!["public|anna-1|anna-2|bo-1|none|all|\\*", ".{0,8}"], 0..4),
        ) {
            let scope = if all { Scope::All } else { list(&listed) };
            let grant = grant(owner, scope);
            let effective = grant.effective_scope(catalogue());
            if let Ok(selected) = effective.select(&asked) {
                for kb in selected {
                    prop_assert!(grant.covers(kb));
                    prop_assert!(asked.is_empty() || asked.contains(&kb.id.to_string()));
                }
            }
        }
    }
}
