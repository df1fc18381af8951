//! `list_knowledge_bases`: what the key may use.

use raglan_core::tool::Tool;
use raglan_texts::{Language, text};
use serde_json::{Map, Value, json};

use super::arguments::Arguments;
use super::paging::{CURSOR_MAX_CHARS, cursor_schema, limit_schema, read_limit, truncated_schema};
use super::size::fitting;
use super::{Definition, ToolCall, ToolError, ToolOutput, knowledge_base};
use crate::cursor::CursorScope;

const LIMIT_DEFAULT: u64 = 50;
const LIMIT_MAX: u64 = 100;

pub const DEFINITION: Definition = Definition {
    tool: Tool::ListKnowledgeBases,
    title: |language| text!(language, "List knowledge bases"),
    description: |language| {
        text!(
            language,
            "Lists the knowledge bases that you may use, with what each one covers. Use it \
             first when you do not know where to look."
        )
    },
    input_schema,
    output_schema,
};

fn input_schema(language: Language) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": { "cursor": cursor_schema(language), "limit": limit_schema(LIMIT_DEFAULT, LIMIT_MAX, language) }
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
                    "required": knowledge_base::REQUIRED,
                    "properties": knowledge_base::properties(language)
                }
            },
            "next_cursor": { "type": "string" },
            "truncated": truncated_schema(language)
        }
    })
}

pub async fn run(
    call: &ToolCall<'_>,
    arguments: &Map<String, Value>,
) -> Result<ToolOutput, ToolError> {
    let mut reader = Arguments::new(arguments, "", call.services.language);
    let cursor = reader.optional_text("cursor", CURSOR_MAX_CHARS);
    let limit = read_limit(&mut reader, LIMIT_DEFAULT, LIMIT_MAX);
    reader.finish()?;
    let cursors = CursorScope {
        key_id: &call.caller.key_id,
        tool: DEFINITION.tool.name(),
        question: "",
    };
    let secret = &call.services.cursor_secret;
    let after = cursors.open(secret, cursor.as_deref().unwrap_or_default())?;

    let scope = call.scope().await?;
    let mut rest = scope
        .all()
        .iter()
        .filter(|kb| after.as_deref().is_none_or(|after| kb.id.as_str() > after));
    let mut page: Vec<_> = rest.by_ref().take(limit).collect();
    let mut items: Vec<Value> = page.iter().map(|kb| knowledge_base::present(kb)).collect();
    let fitting = fitting(&items, call.services.max_result.inside_envelope());
    let truncated = fitting < items.len();
    items.truncate(fitting);
    page.truncate(fitting);
    let mut structured = Map::new();
    structured.insert("items".to_owned(), items.into());
    let more = truncated || rest.next().is_some();
    if let (true, Some(last)) = (more, page.last()) {
        let next = cursors.seal(secret, last.id.as_str());
        structured.insert("next_cursor".to_owned(), next.into());
    }
    if truncated {
        structured.insert("truncated".to_owned(), true.into());
    }
    Ok(ToolOutput {
        structured: structured.into(),
        knowledge_bases: page.iter().map(|kb| kb.id.to_string()).collect(),
        result_count: page.len() as u64,
        guard_findings: std::collections::BTreeMap::new(),
    })
}
