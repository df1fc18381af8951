//! What the steps before the protocol have found out about one request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use raglan_core::tool::Tool;
use raglan_texts::Language;
use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::RequestContext;

use crate::authenticate::Caller;
use crate::limit::DailyQuotaUsedUp;
use crate::record::CallRecord;

/// Travels in the request's extensions to the handlers.
#[derive(Debug)]
pub struct Exchange {
    /// The language of what the caller is told.
    pub language: Language,
    /// Who asks.
    pub caller: Caller,
    /// The tools whose daily quota the caller has used up.
    pub used_up: BTreeMap<Tool, DailyQuotaUsedUp>,
    /// Collects the audit event.
    pub record: Arc<CallRecord>,
    /// The request's id, for error texts.
    pub request_id: String,
    /// How long the work may take.
    pub time_left: Duration,
    /// Audited parameters are cut after this many characters.
    pub parameters_max_chars: usize,
}

impl Exchange {
    /// The same exchange for one element of a batch, with a record of its own.
    #[must_use]
    pub fn element(&self) -> Self {
        Self {
            language: self.language,
            caller: self.caller.clone(),
            used_up: self.used_up.clone(),
            record: self.record.element(),
            request_id: self.request_id.clone(),
            time_left: self.time_left,
            parameters_max_chars: self.parameters_max_chars,
        }
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
