//! The names of the tools.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One of the six read-only tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// Answers a question from passages, with citations.
    Ask,
    /// Describes one knowledge base.
    GetKnowledgeBase,
    /// Tells how an indexing task stands.
    GetTask,
    /// Lists the documents of knowledge bases.
    ListDocuments,
    /// Lists the knowledge bases that the key may use.
    ListKnowledgeBases,
    /// Finds passages.
    Retrieve,
}

impl Tool {
    /// Every tool, in the order in which `tools/list` shows them (by name).
    pub const ALL: [Self; 6] = [
        Self::Ask,
        Self::GetKnowledgeBase,
        Self::GetTask,
        Self::ListDocuments,
        Self::ListKnowledgeBases,
        Self::Retrieve,
    ];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::GetKnowledgeBase => "get_knowledge_base",
            Self::GetTask => "get_task",
            Self::ListDocuments => "list_documents",
            Self::ListKnowledgeBases => "list_knowledge_bases",
            Self::Retrieve => "retrieve",
        }
    }

    /// The tool of that name, compared exactly.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_found_by_its_own_name_and_by_no_other() {
        for tool in Tool::ALL {
            assert_eq!(Tool::from_name(tool.name()), Some(tool));
            assert_eq!(Tool::from_name(&tool.name().to_uppercase()), None);
            assert_eq!(serde_json::to_value(tool).unwrap(), tool.name());
        }
        assert!(Tool::ALL.map(Tool::name).is_sorted());
    }
}
