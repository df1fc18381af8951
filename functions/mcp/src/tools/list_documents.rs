//! `list_documents`: what documents there are.

use raglan_core::access::Denial;
use raglan_core::tool::Tool;
use raglan_guard::SecuritySummary;
use raglan_rag::backend::Document;
use raglan_texts::{Language, text};
use serde_json::{Map, Value, json};

use super::arguments::Arguments;
use super::document_listing::{Listing, Position};
use super::paging::{CURSOR_MAX_CHARS, cursor_schema, limit_schema, read_limit, truncated_schema};
use super::passages::{Labels, findings_by_rule};
use super::search::{kb_id_schema, read_kb_ids};
use super::size::{Size, fitting};
use super::{Definition, ToolCall, ToolError, ToolOutput};
use crate::cursor::CursorScope;

/// What the cursor of a page may take: one with the longest position of an engine that is known.
const CURSOR: Size = Size {
    bytes: 12_288,
    tokens: 3_500,
};
const LIMIT_DEFAULT: u64 = 50;
const LIMIT_MAX: u64 = 200;

pub const DEFINITION: Definition = Definition {
    tool: Tool::ListDocuments,
    title: |language| text!(language, "List documents"),
    description: |language| {
        text!(
            language,
            "Lists the documents of knowledge bases, with format, size and age. Use it to see \
             what is there; use retrieve to find text."
        )
    },
    input_schema,
    output_schema,
};

fn input_schema(language: Language) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "kb_id": kb_id_schema(language),
            "cursor": cursor_schema(language),
            "limit": limit_schema(LIMIT_DEFAULT, LIMIT_MAX, language)
        }
    })
}

fn output_schema(language: Language) -> Value {
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["id", "kb_id", "filename", "title", "format", "size_bytes",
                        "status", "created_at", "updated_at"],
                    "properties": {
                        "id": { "type": "string" },
                        "kb_id": { "type": "string" },
                        "filename": { "type": "string" },
                        "title": { "type": "string" },
                        "format": { "type": "string" },
                        "size_bytes": { "type": "integer", "minimum": 0 },
                        "status": { "type": "string" },
                        "created_at": { "type": "string" },
                        "updated_at": { "type": "string" }
                    }
                }
            },
            "next_cursor": { "type": "string" },
            "truncated": truncated_schema(language),
            "partial": { "type": "boolean",
                "description": text!(
                    language,
                    "Whether documents are missing because a knowledge base does not list them now."
                ) },
            "warnings": { "type": "array", "items": { "type": "string" } }
        }
    })
}

pub async fn run(
    call: &ToolCall<'_>,
    arguments: &Map<String, Value>,
) -> Result<ToolOutput, ToolError> {
    let mut reader = Arguments::new(arguments, "", call.services.language);
    let mut kb_ids = read_kb_ids(&mut reader);
    let cursor = reader.optional_text("cursor", CURSOR_MAX_CHARS);
    let limit = read_limit(&mut reader, LIMIT_DEFAULT, LIMIT_MAX);
    reader.finish()?;
    kb_ids.sort();
    let question = kb_ids.join(",");
    let cursors = CursorScope {
        key_id: &call.caller.key_id,
        tool: DEFINITION.tool.name(),
        question: &question,
    };
    let secret = &call.services.cursor_secret;
    let position = cursors.open(secret, cursor.as_deref().unwrap_or_default())?;
    let position = position.as_deref().map(Position::parse).transpose()?;

    let scope = call.scope().await?;
    let mut selected = scope.select(&kb_ids)?;
    if selected.is_empty() {
        return Err(Denial::KnowledgeBase.into());
    }
    selected.sort_by(|a, b| a.id.cmp(&b.id));
    let mut listing = Listing::of(call, &selected, position, limit).await?;

    let mut security = SecuritySummary::new(call.services.language);
    let mut labels = Labels::new(call.services.guard, &mut security);
    let mut items: Vec<Value> = listing
        .documents
        .iter()
        .map(|listed| present(&mut labels, &listed.behind.kb_id, &listed.document))
        .collect();
    let mut structured = Map::new();
    if !listing.warnings.is_empty() {
        structured.insert("partial".to_owned(), true.into());
        structured.insert("warnings".to_owned(), listing.warnings.clone().into());
    }
    let room = call.services.max_result.inside_envelope();
    let room = room.without(Size::of(&structured));
    let room = room.and_then(|room| room.without(CURSOR));
    let fitting = fitting(&items, room.unwrap_or_default());
    if fitting < items.len() {
        items.truncate(fitting);
        listing.next = Some(listing.documents.swap_remove(fitting - 1).behind);
        structured.insert("truncated".to_owned(), true.into());
    }
    let result_count = items.len() as u64;
    structured.insert("items".to_owned(), items.into());
    if let Some(next) = listing.next {
        let next = cursors.seal(secret, &next.to_text());
        structured.insert("next_cursor".to_owned(), next.into());
    }
    Ok(ToolOutput {
        structured: structured.into(),
        knowledge_bases: selected.iter().map(|kb| kb.id.to_string()).collect(),
        result_count,
        guard_findings: findings_by_rule(&security),
    })
}

fn present(labels: &mut Labels<'_>, kb_id: &str, document: &Document) -> Value {
    json!({
        "id": labels.clean(&document.id),
        "kb_id": kb_id,
        "filename": labels.clean(&document.filename),
        "title": labels.clean(&document.title),
        "format": labels.clean(&document.format),
        "size_bytes": document.size_bytes,
        "status": labels.clean(&document.status),
        "created_at": document.created_at,
        "updated_at": document.updated_at,
    })
}
