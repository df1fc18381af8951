//! `list_documents`: what documents there are.

use raglan_core::access::Denial;
use raglan_core::catalog::KnowledgeBase;
use raglan_core::tool::Tool;
use raglan_guard::SecuritySummary;
use raglan_rag::backend::{Document, DocumentPage};
use serde_json::{Map, Value, json};

use super::arguments::Arguments;
use super::paging::{CURSOR_MAX_CHARS, cursor_schema, limit_schema, read_limit};
use super::passages::{Labels, findings_by_rule};
use super::search::{kb_id_schema, read_kb_ids};
use super::size::fitting;
use super::{Definition, ToolCall, ToolError, ToolOutput};
use crate::cursor::{CursorScope, InvalidCursor};

const LIMIT_DEFAULT: u64 = 50;
const LIMIT_MAX: u64 = 200;

pub const DEFINITION: Definition = Definition {
    tool: Tool::ListDocuments,
    title: "List documents",
    description: "Lists the documents of knowledge bases, with format, size and age. Use it to see \
        what is there; use retrieve to find text.",
    input_schema,
    output_schema,
};

fn input_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "kb_id": kb_id_schema(),
            "cursor": cursor_schema(),
            "limit": limit_schema(LIMIT_DEFAULT, LIMIT_MAX)
        }
    })
}

fn output_schema() -> Value {
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
            "next_cursor": { "type": "string" }
        }
    })
}

pub async fn run(
    call: &ToolCall<'_>,
    arguments: &Map<String, Value>,
) -> Result<ToolOutput, ToolError> {
    let mut reader = Arguments::new(arguments, "");
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
    let mut page = collect(call, &selected, position.as_ref(), limit).await?;

    let mut structured = Map::new();
    let mut security = SecuritySummary::default();
    let mut labels = Labels::new(call.services.guard, &mut security);
    let mut items: Vec<Value> = page
        .documents
        .iter()
        .map(|(kb_id, document)| present(&mut labels, kb_id, document))
        .collect();
    let fitting = fitting(&items, call.services.max_result.inside_envelope());
    if fitting < items.len() {
        items.truncate(fitting);
        page.documents.truncate(fitting);
        page.more = true;
    }
    structured.insert("items".to_owned(), items.into());
    if let (true, Some((kb_id, document))) = (page.more, page.documents.last()) {
        let next = cursors.seal(secret, &format!("{kb_id}/{}", document.id));
        structured.insert("next_cursor".to_owned(), next.into());
    }
    Ok(ToolOutput {
        structured,
        knowledge_bases: selected.iter().map(|kb| kb.id.to_string()).collect(),
        result_count: page.documents.len() as u64,
        guard_findings: findings_by_rule(&security),
    })
}

/// The last document of the page before.
struct Position<'a> {
    kb_id: &'a str,
    document_id: &'a str,
}

impl<'a> Position<'a> {
    fn parse(text: &'a str) -> Result<Self, InvalidCursor> {
        let (kb_id, document_id) = text.split_once('/').ok_or(InvalidCursor)?;
        Ok(Self { kb_id, document_id })
    }
}

#[derive(Default)]
struct Page {
    documents: Vec<(String, Document)>,
    more: bool,
}

/// Goes through the knowledge bases in the order of their ids until the page is full.
async fn collect(
    call: &ToolCall<'_>,
    selected: &[&KnowledgeBase],
    position: Option<&Position<'_>>,
    limit: usize,
) -> Result<Page, ToolError> {
    let mut page = Page::default();
    for knowledge_base in selected {
        let kb_id = knowledge_base.id.as_str();
        let after = match position {
            Some(position) if kb_id < position.kb_id => continue,
            Some(position) if kb_id == position.kb_id => Some(position.document_id),
            _ => None,
        };
        let room = limit - page.documents.len();
        if room == 0 {
            page.more = true;
            break;
        }
        let found = list_one(call, knowledge_base, after, room).await?;
        page.documents
            .extend(found.documents.into_iter().map(|d| (kb_id.to_owned(), d)));
        if found.next.is_some() {
            page.more = true;
            break;
        }
    }
    Ok(page)
}

async fn list_one(
    call: &ToolCall<'_>,
    knowledge_base: &KnowledgeBase,
    after: Option<&str>,
    limit: usize,
) -> Result<DocumentPage, ToolError> {
    let backend = call.services.backends.of(knowledge_base)?;
    let kb_id = &knowledge_base.backend.id;
    let engine_call = call.engine_call();
    call.wait_for(backend.list_documents(kb_id, after, limit, &engine_call))
        .await
}

fn present(labels: &mut Labels<'_>, kb_id: &str, document: &Document) -> Value {
    json!({
        "id": document.id,
        "kb_id": kb_id,
        "filename": labels.clean(&document.filename),
        "title": labels.clean(&document.title),
        "format": document.format,
        "size_bytes": document.size_bytes,
        "status": document.status,
        "created_at": document.created_at,
        "updated_at": document.updated_at,
    })
}
