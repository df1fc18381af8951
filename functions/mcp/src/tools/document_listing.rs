//! The documents of several knowledge bases as one list, in pages.
//!
//! Every engine pages in its own way, and its pages have their own length. A place in the whole list
//! is therefore an engine's position together with how many documents behind it were given already:
//! from there the list goes on wherever a page was cut.

use std::time::Duration;

use raglan_core::catalog::{KnowledgeBase, KnowledgeBaseId};
use raglan_rag::backend::{BackendError, Document, DocumentPage};
use raglan_texts::{Language, text};
use serde::{Deserialize, Serialize};

use super::search::cut_warnings;
use super::{ToolCall, ToolError};
use crate::cursor::InvalidCursor;

/// Pages that are asked of engines for one page of ours: some give few documents at a time, and one
/// that gives none must not keep the call busy.
const ENGINE_PAGES_MAX: usize = 20;
/// Longest position of an engine that is carried in a cursor, in bytes.
const POSITION_MAX_BYTES: usize = 4_096;
/// The least time that a knowledge base gets, however many there are.
const TIME_MIN: Duration = Duration::from_millis(500);

/// A place in the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The knowledge base.
    #[serde(rename = "k")]
    pub kb_id: String,
    /// The engine's position in it; `None` is its beginning.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    engine: Option<String>,
    /// How many documents behind that position were given.
    #[serde(rename = "n")]
    given: usize,
    /// Whether nothing more of this knowledge base follows.
    #[serde(rename = "d", default, skip_serializing_if = "std::ops::Not::not")]
    done: bool,
}

impl Position {
    fn beginning_of(kb_id: &KnowledgeBaseId) -> Self {
        Self {
            kb_id: kb_id.to_string(),
            engine: None,
            given: 0,
            done: false,
        }
    }

    /// The position as text, for a cursor.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The position in a cursor.
    pub fn parse(text: &str) -> Result<Self, InvalidCursor> {
        serde_json::from_str(text).map_err(|_| InvalidCursor)
    }
}

/// A document with the place behind it.
#[derive(Debug)]
pub struct Listed {
    /// The document.
    pub document: Document,
    /// Where the list goes on after it.
    pub behind: Position,
}

/// A part of the list.
#[derive(Debug, Default)]
pub struct Listing {
    /// The documents.
    pub documents: Vec<Listed>,
    /// Where the list goes on; `None` at its end.
    pub next: Option<Position>,
    /// One sentence for each knowledge base whose documents are missing.
    pub warnings: Vec<String>,
}

impl Listing {
    /// Goes through the knowledge bases, which are in the order of their ids, from `position` on until
    /// there are `limit` documents.
    ///
    /// # Errors
    /// What the first knowledge base that failed says, when none listed anything.
    pub async fn of(
        call: &ToolCall<'_>,
        selected: &[&KnowledgeBase],
        position: Option<Position>,
        limit: usize,
    ) -> Result<Self, ToolError> {
        let language = call.services.language;
        let mut walk = Walk {
            listing: Self::default(),
            limit,
            engine_pages: 0,
        };
        let ahead: Vec<&KnowledgeBase> = selected
            .iter()
            .copied()
            .filter(|knowledge_base| {
                let kb_id = knowledge_base.id.as_str();
                position
                    .as_ref()
                    .is_none_or(|at| kb_id > at.kb_id.as_str() || (kb_id == at.kb_id && !at.done))
            })
            .collect();
        let (mut listed_any, mut failure) = (false, None);
        for (number, knowledge_base) in ahead.iter().enumerate() {
            let kb_id = &knowledge_base.id;
            let start = position
                .as_ref()
                .filter(|at| at.kb_id == kb_id.as_str())
                .cloned()
                .unwrap_or_else(|| Position::beginning_of(kb_id));
            if walk.is_over() {
                walk.listing.next = Some(start);
                break;
            }
            // One that hangs must leave time for the others.
            let others = u32::try_from(ahead.len() - number).unwrap_or(u32::MAX);
            let share = (call.time_left() / others).max(TIME_MIN);
            let work = walk.through(call, knowledge_base, start);
            match tokio::time::timeout(share, work).await {
                Ok(Ok(next)) => {
                    listed_any = true;
                    if next.is_some() {
                        walk.listing.next = next;
                        break;
                    }
                }
                failed => {
                    let error = match failed {
                        Ok(Err(error)) => error,
                        _ => BackendError::TimedOut(share).into(),
                    };
                    tracing::warn!(%kb_id, %error, "a knowledge base did not list its documents");
                    walk.listing
                        .warnings
                        .push(did_not_list(kb_id, &error, language));
                    failure = Some(worse_of(failure, error));
                }
            }
        }
        match failure {
            Some(error) if !listed_any && walk.listing.documents.is_empty() => Err(error),
            _ => {
                cut_warnings(&mut walk.listing.warnings, language);
                Ok(walk.listing)
            }
        }
    }
}

/// A listing that is being made.
struct Walk {
    listing: Listing,
    limit: usize,
    engine_pages: usize,
}

impl Walk {
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.listing.documents.len())
    }

    fn is_over(&self) -> bool {
        self.room() == 0 || self.engine_pages >= ENGINE_PAGES_MAX
    }

    /// Takes documents of one knowledge base; gives the place where it goes on, or `None` at its end.
    async fn through(
        &mut self,
        call: &ToolCall<'_>,
        knowledge_base: &KnowledgeBase,
        mut at: Position,
    ) -> Result<Option<Position>, ToolError> {
        while !self.is_over() {
            self.engine_pages += 1;
            let engine = at.engine.as_deref();
            let page = ask(call, knowledge_base, engine, at.given + self.room()).await?;
            let page_length = page.documents.len();
            let behind_page = Position {
                kb_id: at.kb_id.clone(),
                // A page that is shorter than what was given of it before: the rest comes with the
                // pages behind it.
                given: at.given.saturating_sub(page_length),
                done: page.next.is_none(),
                engine: page.next,
            };
            for (index, document) in page.documents.into_iter().enumerate().skip(at.given) {
                if self.room() == 0 {
                    at.given = index;
                    return Ok(Some(at));
                }
                let behind = if index + 1 == page_length {
                    behind_page.clone()
                } else {
                    Position {
                        given: index + 1,
                        ..at.clone()
                    }
                };
                self.listing.documents.push(Listed { document, behind });
            }
            if behind_page.done {
                return Ok(None);
            }
            at = behind_page;
        }
        Ok(Some(at))
    }
}

async fn ask(
    call: &ToolCall<'_>,
    knowledge_base: &KnowledgeBase,
    position: Option<&str>,
    limit: usize,
) -> Result<DocumentPage, ToolError> {
    let backend = call.services.backends.of(knowledge_base)?;
    if !backend.abilities().lists_documents {
        return Err(BackendError::Unsupported("list documents").into());
    }
    let engine_call = call.engine_call();
    let kb_id = &knowledge_base.backend.id;
    let work = backend.list_documents(kb_id, position, limit, &engine_call);
    let page = call.wait_for(work).await?;
    let next_bytes = page.next.as_ref().map_or(0, String::len);
    if next_bytes > POSITION_MAX_BYTES {
        let cause = format!("a position of {next_bytes} bytes");
        return Err(BackendError::UnreadableAnswer(cause).into());
    }
    Ok(page)
}

/// Of two failures the one to tell when nothing is listed: that an engine has no list at all is only
/// worth telling when nothing else is wrong.
fn worse_of(known: Option<ToolError>, error: ToolError) -> ToolError {
    match known {
        Some(known) if !is_unsupported(&known) => known,
        _ => error,
    }
}

const fn is_unsupported(error: &ToolError) -> bool {
    matches!(error, ToolError::Backend(BackendError::Unsupported(_)))
}

fn did_not_list(kb_id: &KnowledgeBaseId, error: &ToolError, language: Language) -> String {
    if is_unsupported(error) {
        text!(
            language,
            "The engine of knowledge base `{kb_id}` cannot list documents; they are missing here. \
             retrieve and ask find text in them.",
            kb_id
        )
    } else if matches!(error, ToolError::Backend(BackendError::TimedOut(_))) {
        text!(
            language,
            "Knowledge base `{kb_id}` did not answer in time; its documents are missing here.",
            kb_id
        )
    } else {
        text!(
            language,
            "Knowledge base `{kb_id}` did not answer; its documents are missing here.",
            kb_id
        )
    }
}
