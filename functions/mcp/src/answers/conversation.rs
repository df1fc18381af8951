//! The conversation that a question belongs to: kept here under a session's name, or carried along by
//! the caller.

use raglan_core::access::EffectiveScope;
use raglan_core::ids;
use raglan_core::redact::without_credentials;
use raglan_rag::generate::Turn;
use raglan_store::sessions::{CitedPassage, NewTurn, Session, SessionTurn, TURNS_READ};
use raglan_texts::{Language, text};
use serde_json::{Map, Value, json};

use crate::tools::arguments::Arguments;
use crate::tools::search::QUERY_MAX_CHARS;
use crate::tools::{ToolCall, ToolError};

/// The arguments' names.
pub const SESSION_ID: &str = "session_id";
/// See [`SESSION_ID`].
pub const HISTORY: &str = "history";

/// Longest name of a session, in characters.
pub const SESSION_ID_MAX_CHARS: usize = 64;
/// Turns that a caller may send; the last [`TURNS_READ`] count.
const HISTORY_MAX_ITEMS: usize = 50;

/// The conversation of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conversation {
    /// One that is kept here; it may not have begun yet.
    Kept {
        /// The caller's name of the session.
        session_id: String,
    },
    /// One that the caller did not name: it begins here, under a name that the caller is told.
    Begun {
        /// The new name.
        session_id: String,
    },
    /// One that the caller carries along, oldest turn first; nothing is kept.
    Carried(Vec<Turn>),
    /// Nothing is kept in this deployment, and the caller carries nothing.
    Single,
}

/// JSON Schema of `session_id`.
#[must_use]
pub fn session_id_schema(language: Language) -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": SESSION_ID_MAX_CHARS,
        "description": text!(
            language,
            "A name for this conversation: a follow-up question with the same name knows the last six \
             turns. It is given back; without one a new name is made."
        )
    })
}

/// JSON Schema of `history`.
#[must_use]
pub fn history_schema(language: Language) -> Value {
    json!({
        "type": "array", "maxItems": HISTORY_MAX_ITEMS,
        "description": text!(
            language,
            "The conversation so far, oldest turn first, instead of session_id: nothing is kept here."
        ),
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["question"],
            "properties": {
                "question": { "type": "string", "minLength": 1, "maxLength": QUERY_MAX_CHARS },
                "answer": { "anyOf": [{ "type": "string", "maxLength": QUERY_MAX_CHARS }, { "type": "null" }] }
            }
        }
    })
}

/// What the arguments say about the conversation.
#[derive(Debug)]
pub struct ConversationArguments {
    session_id: Option<String>,
    history: Option<Vec<Turn>>,
}

impl ConversationArguments {
    /// Reads `session_id` and `history`. `are_kept`: whether this deployment keeps conversations.
    pub fn read(arguments: &mut Arguments<'_>, are_kept: bool) -> Self {
        let language = arguments.language();
        let session_id = arguments.optional_text(SESSION_ID, SESSION_ID_MAX_CHARS);
        let session_id = session_id.filter(|text| !text.trim().is_empty());
        let history = read_history(arguments);
        if session_id.is_some() && history.is_some() {
            arguments.problem(
                text!(
                    language,
                    "`session_id` and `history` are two ways to carry a conversation on: send one of them."
                )
                .to_owned(),
            );
        } else if session_id.is_some() && !are_kept {
            arguments.problem(
                text!(
                    language,
                    "This server keeps no conversations: leave `session_id` out and send the turns so far in \
                     `history`."
                )
                .to_owned(),
            );
        }
        Self {
            session_id,
            history,
        }
    }

    /// The conversation that they mean.
    ///
    /// # Errors
    /// [`ToolError::Random`] when no name can be made.
    pub fn conversation(self, call: &ToolCall<'_>) -> Result<Conversation, ToolError> {
        Ok(match (self.session_id, self.history) {
            (Some(session_id), _) => Conversation::Kept { session_id },
            (None, Some(history)) => Conversation::Carried(history),
            (None, None) if call.services.session_ttl_seconds == 0 => Conversation::Single,
            (None, None) => {
                let now = call.services.clock.now();
                let session_id = ids::time_sortable(now, call.services.random.as_ref())?;
                Conversation::Begun { session_id }
            }
        })
    }
}

/// `None` without the argument; an empty list is one.
fn read_history(arguments: &mut Arguments<'_>) -> Option<Vec<Turn>> {
    let language = arguments.language();
    let is_there = arguments.has(HISTORY);
    let items = arguments.objects(HISTORY, HISTORY_MAX_ITEMS);
    let read = |item: &Map<String, Value>| {
        let mut turn = Arguments::new(item, "history[].", language);
        let question = turn.required_text("question", QUERY_MAX_CHARS);
        let answer = turn.optional_text("answer", QUERY_MAX_CHARS);
        let answer = answer.unwrap_or_default();
        (Turn { question, answer }, turn.finish())
    };
    let mut turns = Vec::new();
    for item in &items {
        let (turn, finished) = read(item);
        let is_valid = finished.is_ok();
        arguments.nested(finished);
        if !is_valid {
            // One turn's problems are enough to mend all of them.
            break;
        }
        turns.push(turn);
    }
    turns.drain(..turns.len().saturating_sub(TURNS_READ));
    is_there.then_some(turns)
}

impl Conversation {
    /// The session's name, where there is one.
    #[must_use]
    pub fn session_id(&self) -> Option<&str> {
        match self {
            Self::Kept { session_id } | Self::Begun { session_id } => Some(session_id),
            Self::Carried(_) | Self::Single => None,
        }
    }

    /// The turns so far, oldest first.
    ///
    /// # Errors
    /// [`ToolError::Store`]
    pub async fn earlier(&self, call: &ToolCall<'_>) -> Result<Earlier, ToolError> {
        match self {
            Self::Kept { session_id } => {
                let now = call.services.clock.now();
                let session = session(call, session_id);
                let turns = call.services.sessions.latest(session, now).await?;
                Ok(Earlier::Kept(turns))
            }
            Self::Carried(turns) => Ok(Earlier::Carried(turns.clone())),
            Self::Begun { .. } | Self::Single => Ok(Earlier::Carried(Vec::new())),
        }
    }

    /// The turn that an answer adds to what is kept: a key that a caller puts into a question is not.
    ///
    /// # Errors
    /// [`ToolError`] when it cannot be made.
    pub fn new_turn(
        &self,
        call: &ToolCall<'_>,
        question: &str,
        answer: Option<&str>,
        cited: Vec<CitedPassage>,
    ) -> Result<Option<NewTurn>, ToolError> {
        let Some(session_id) = self.session_id() else {
            return Ok(None);
        };
        let services = call.services;
        let now = services.clock.now();
        let turn = SessionTurn {
            question: without_credentials(question).into_owned(),
            answer: answer.map(|text| without_credentials(text).into_owned()),
            cited,
        };
        let turn_id = ids::time_sortable(now, services.random.as_ref())?;
        let expires = now.plus_seconds(services.session_ttl_seconds);
        let session = session(call, session_id);
        Ok(Some(
            services
                .sessions
                .new_turn(session, &turn_id, &turn, expires)?,
        ))
    }
}

const fn session<'a>(call: &'a ToolCall<'_>, id: &'a str) -> Session<'a> {
    Session {
        key: &call.caller.key_hash,
        id,
    }
}

/// Turns before the permission of this moment was asked.
#[derive(Debug)]
pub enum Earlier {
    /// From the store.
    Kept(Vec<SessionTurn>),
    /// From the caller.
    Carried(Vec<Turn>),
}

impl Earlier {
    /// Those that may be used: an answer from a knowledge base that is out of the key's scope by now is
    /// left out with its question.
    #[must_use]
    pub fn permitted(self, scope: &EffectiveScope) -> Vec<Turn> {
        let turns = match self {
            Self::Carried(turns) => return turns,
            Self::Kept(turns) => turns,
        };
        turns
            .into_iter()
            .filter(|turn| {
                turn.cited
                    .iter()
                    .all(|cited| scope.find(&cited.kb_id).is_ok())
            })
            .map(|turn| Turn {
                question: turn.question,
                answer: turn.answer.unwrap_or_default(),
            })
            .collect()
    }
}
