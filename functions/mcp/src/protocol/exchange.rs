//! What the steps before the protocol have found out about one request.

use std::collections::BTreeMap;
use std::sync::Arc;

use raglan_core::tool::Tool;
use raglan_texts::Language;
use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::RequestContext;
use tokio::time::Instant;

use super::answer_parts::AnswerParts;
use crate::authenticate::Caller;
use crate::limit::DailyQuotaUsedUp;
use crate::record::CallRecord;
use crate::scopes::EarlyReadSlot;
use crate::trail::Intents;

/// Travels in the request's extensions to the handlers.
#[derive(Debug)]
pub struct Exchange {
    /// The language of what the caller is told.
    pub language: Language,
    /// Who asks.
    pub caller: Caller,
    /// What was read of the catalogue before it was known who asks.
    pub early_read: EarlyReadSlot,
    /// The tools whose daily quota the caller has used up.
    pub used_up: BTreeMap<Tool, DailyQuotaUsedUp>,
    /// Collects the audit event.
    pub record: Arc<CallRecord>,
    /// The request's id, for error texts.
    pub request_id: String,
    /// When the work must be over.
    pub until: Instant,
    /// The large parts of the answer.
    pub parts: AnswerParts,
    /// Announces calls before they are made; only where the trail is a condition of the answer.
    pub intents: Option<Arc<Intents>>,
}

impl Exchange {
    /// The same exchange for one element of a batch, with a record of its own.
    #[must_use]
    pub fn element(&self) -> Self {
        Self {
            language: self.language,
            caller: self.caller.clone(),
            early_read: EarlyReadSlot::default(),
            used_up: self.used_up.clone(),
            record: self.record.element(),
            request_id: self.request_id.clone(),
            until: self.until,
            parts: AnswerParts::default(),
            intents: self.intents.clone(),
        }
    }

    /// Writes down that the call in the record is about to be made, where that is a condition of it.
    ///
    /// # Errors
    /// An internal error: the call must not be made, and the whole answer becomes a 503.
    pub async fn announce(&self) -> Result<(), ErrorData> {
        let Some(intents) = &self.intents else {
            return Ok(());
        };
        intents.announce(&self.record).await.map_err(|unrecorded| {
            self.record.not_announced();
            ErrorData::internal_error(unrecorded.to_string(), None)
        })
    }

    /// The exchange that a handler's request belongs to.
    ///
    /// # Errors
    /// An internal error when there is none: without a caller nothing may be answered.
    pub fn of(context: &RequestContext<RoleServer>) -> Result<Arc<Self>, ErrorData> {
        let parts = context.extensions.get::<http::request::Parts>();
        let exchange = parts.and_then(|parts| parts.extensions.get::<Arc<Self>>());
        exchange
            .cloned()
            .ok_or_else(|| ErrorData::internal_error("no caller", None))
    }
}
