//! Resources: the catalogue entries and documents that the key may read, under the same rule as the
//! tools. `kb://{kb_id}` is the entry, `kb://{kb_id}/documents/{document_id}` a document's text.

use raglan_core::catalog::KnowledgeBase;
use raglan_core::ids;
use raglan_core::tool::Tool;
use raglan_guard::PassageInfo;
use raglan_rag::backend::BackendError;
use raglan_texts::text;

use crate::cursor::CursorScope;
use crate::tools::{ToolCall, ToolError, knowledge_base};

/// RFC 6570 template of a knowledge base's URI.
pub const KNOWLEDGE_BASE_TEMPLATE: &str = "kb://{kb_id}";
/// RFC 6570 template of a document's URI.
pub const DOCUMENT_TEMPLATE: &str = "kb://{kb_id}/documents/{document_id}";
const SCHEME: &str = "kb://";
const DOCUMENTS: &str = "/documents/";
const PAGE_ITEMS: usize = 50;

/// What a URI points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target<'a> {
    KnowledgeBase {
        kb_id: &'a str,
    },
    Document {
        kb_id: &'a str,
        document_id: &'a str,
    },
}

impl<'a> Target<'a> {
    fn parse(uri: &'a str) -> Option<Self> {
        let rest = uri.strip_prefix(SCHEME)?;
        match rest.split_once(DOCUMENTS) {
            Some((kb_id, document_id)) if !document_id.is_empty() => {
                Some(Self::Document { kb_id, document_id })
            }
            Some(_) => None,
            None => Some(Self::KnowledgeBase { kb_id: rest }),
        }
    }
}

/// The URI of a knowledge base.
#[must_use]
pub fn knowledge_base_uri(knowledge_base: &KnowledgeBase) -> String {
    format!("{SCHEME}{}", knowledge_base.id)
}

/// One page of the knowledge bases that can be read.
#[derive(Debug)]
pub struct Page {
    /// The entries.
    pub items: Vec<KnowledgeBase>,
    /// Where the list goes on.
    pub next_cursor: Option<String>,
}

/// What was read.
#[derive(Debug)]
pub struct Content {
    /// Its media type.
    pub mime_type: &'static str,
    /// The text.
    pub text: String,
    /// The knowledge base that it belongs to.
    pub kb_id: String,
}

/// Lists what can be read; nothing without the right to the tool that shows the same.
///
/// # Errors
/// [`ToolError`]
pub async fn list(call: &ToolCall<'_>, cursor: Option<&str>) -> Result<Page, ToolError> {
    let scope = CursorScope {
        key_id: &call.caller.key_id,
        tool: "resources/list",
        question: "",
    };
    let secret = &call.services.cursor_secret;
    let after = scope.open(secret, cursor.unwrap_or_default())?;
    if call
        .caller
        .grant
        .permit_tool(Tool::ListKnowledgeBases)
        .is_err()
    {
        return Ok(Page {
            items: Vec::new(),
            next_cursor: None,
        });
    }
    let effective = call.scope().await?;
    let after = after.as_deref().unwrap_or_default();
    let mut rest = effective.all().iter().filter(|kb| kb.id.as_str() > after);
    let items: Vec<KnowledgeBase> = rest.by_ref().take(PAGE_ITEMS).cloned().collect();
    let last = items.last().filter(|_| rest.next().is_some());
    let next_cursor = last.map(|last| scope.seal(secret, last.id.as_str()));
    Ok(Page { items, next_cursor })
}

/// Reads one resource; `None` when there is none or the key may not: nobody can tell the two apart.
///
/// # Errors
/// [`ToolError`]
pub async fn read(call: &ToolCall<'_>, uri: &str) -> Result<Option<Content>, ToolError> {
    let Some(target) = Target::parse(uri) else {
        return Ok(None);
    };
    let (kb_id, tool) = match target {
        Target::KnowledgeBase { kb_id } => (kb_id, Tool::GetKnowledgeBase),
        Target::Document { kb_id, .. } => (kb_id, Tool::Retrieve),
    };
    if call.caller.grant.permit_tool(tool).is_err() {
        return Ok(None);
    }
    let scope = call.scope().await?;
    let Ok(entry) = scope.find(kb_id) else {
        return Ok(None);
    };
    match target {
        Target::KnowledgeBase { .. } => Ok(Some(Content {
            mime_type: "application/json",
            text: knowledge_base::present(entry).to_string(),
            kb_id: entry.id.to_string(),
        })),
        Target::Document { document_id, .. } => read_document(call, entry, document_id).await,
    }
}

async fn read_document(
    call: &ToolCall<'_>,
    entry: &KnowledgeBase,
    document_id: &str,
) -> Result<Option<Content>, ToolError> {
    let backend = call.services.backends.of(entry)?;
    let engine_call = call.engine_call();
    let work = backend.read_document(&entry.backend.id, document_id, &engine_call);
    let document = match call.wait_for(work).await {
        Err(ToolError::Backend(BackendError::Unsupported(_))) => None,
        answer => answer?,
    };
    let Some(document) = document else {
        return Ok(None);
    };
    let shown = call.services.max_result.beginning_of(&document.text);
    let nonce = ids::random_hex::<8>(call.services.random.as_ref())?;
    let source = PassageInfo {
        source: &document.title,
        chunk_index: 0,
    };
    let mut text = call.services.guard.isolate(&source, shown, &nonce).text;
    if shown.len() < document.text.len() {
        text.push('\n');
        text.push_str(text!(
            call.services.language,
            "[The document goes on; use retrieve to find passages in the rest.]"
        ));
    }
    Ok(Some(Content {
        mime_type: "text/plain",
        text,
        kb_id: entry.id.to_string(),
    }))
}

/// The identifiers of permitted knowledge bases that begin with `prefix`, at most `limit`, and how
/// many there are in all.
///
/// # Errors
/// [`ToolError`]
pub async fn complete_kb_id(
    call: &ToolCall<'_>,
    prefix: &str,
    limit: usize,
) -> Result<(Vec<String>, usize), ToolError> {
    if call
        .caller
        .grant
        .permit_tool(Tool::ListKnowledgeBases)
        .is_err()
    {
        return Ok((Vec::new(), 0));
    }
    let scope = call.scope().await?;
    let fitting = scope
        .all()
        .iter()
        .map(|kb| kb.id.as_str())
        .filter(|id| id.starts_with(prefix));
    let all: Vec<String> = fitting.map(ToOwned::to_owned).collect();
    let total = all.len();
    Ok((all.into_iter().take(limit).collect(), total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_read_as_a_whole() {
        assert_eq!(
            Target::parse("kb://a"),
            Some(Target::KnowledgeBase { kb_id: "a" })
        );
        assert_eq!(
            Target::parse("kb://a/documents/d-1"),
            Some(Target::Document {
                kb_id: "a",
                document_id: "d-1"
            })
        );
        for other in ["a", "http://a", "KB://a", "kb://a/documents/", ""] {
            assert_eq!(Target::parse(other), None, "{other}");
        }
    }
}
