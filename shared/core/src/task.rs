//! Indexing tasks, as `get_task` shows them.

use serde::{Deserialize, Serialize};

use crate::catalog::KnowledgeBaseId;
use crate::clock::Timestamp;

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Not begun.
    Pending,
    /// Under way.
    Running,
    /// Ended, everything was taken in.
    Succeeded,
    /// Ended; some documents were left out and are named in the error.
    Partial,
    /// Ended without result; the earlier index, if any, still answers.
    Failed,
}

impl TaskStatus {
    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Partial => "partial",
            Self::Failed => "failed",
        }
    }
}

/// Why a task did not (fully) succeed: a class for programs and a sentence for people. Never a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskError {
    /// A stable word: `unreadable_documents`, `interrupted`, `storage`, …
    pub class: String,
    /// A sentence that is safe to show to any caller who may see the task.
    pub message: String,
}

/// One indexing task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Identifier, unguessable.
    pub id: String,
    /// The knowledge base that the task works on; it decides who may see the task.
    pub kb_id: KnowledgeBaseId,
    /// The document, when the task is about a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document_id: Option<String>,
    /// Where it stands.
    pub status: TaskStatus,
    /// How often it was tried again.
    pub retry_count: u32,
    /// Why it did not fully succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}
