//! A knowledge base as callers see it.

use raglan_core::catalog::KnowledgeBase;
use raglan_texts::{Language, text};
use serde_json::{Value, json};

/// JSON Schema of a knowledge base's fields.
pub fn properties(language: Language) -> Value {
    json!({
        "id": { "type": "string" },
        "name": { "type": "string" },
        "description": { "type": "string" },
        "strategy": { "type": "string",
            "description": text!(language, "How passages are found: bm25 matches words.") },
        "document_count": { "type": "integer", "minimum": 0 },
        "chunk_count": { "type": "integer", "minimum": 0 },
        "created_at": { "type": "string" },
        "updated_at": { "type": "string" }
    })
}

/// The fields that are always there.
pub const REQUIRED: [&str; 6] = [
    "id",
    "name",
    "description",
    "strategy",
    "created_at",
    "updated_at",
];

/// The catalogue entry without what only operators need: owner and backend.
pub fn present(knowledge_base: &KnowledgeBase) -> Value {
    let mut entry = json!({
        "id": knowledge_base.id,
        "name": knowledge_base.name,
        "description": knowledge_base.description,
        "strategy": knowledge_base.strategy,
    });
    if let Some(count) = knowledge_base.document_count {
        entry["document_count"] = count.into();
    }
    if let Some(count) = knowledge_base.chunk_count {
        entry["chunk_count"] = count.into();
    }
    entry["created_at"] = knowledge_base.created_at.to_string().into();
    entry["updated_at"] = knowledge_base.updated_at.to_string().into();
    entry
}
