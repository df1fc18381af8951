//! The one place that states the order of a request's steps.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use http::Request;
use raglan_core::clock::{Clock, Timestamp};
use raglan_core::ids;
use raglan_core::random::Random;
use raglan_guard::{Guard, GuardOptions};
use raglan_store::{AuditQueue, AwsClients, CatalogStore, KeyStore};

use crate::authenticate::{AuthenticationError, authenticate};
use crate::backends::Backends;
use crate::config::Config;
use crate::context::CallContext;
use crate::edge::{self, Admission};
use crate::protocol::Protocol;
use crate::protocol::exchange::Exchange;
use crate::record::CallRecord;
use crate::reply::{Refusal, Reply};
use crate::tools::Services;

/// The whole function, independent of what carries its requests.
pub struct App {
    config: Config,
    keys: KeyStore,
    audit: AuditQueue,
    protocol: Protocol,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl App {
    /// The function over these clients and engines. Nothing is asked of the network here.
    #[must_use]
    pub fn new(
        config: Config,
        clients: &AwsClients,
        backends: Backends,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        let services = Services {
            catalog: CatalogStore::new(clients.dynamodb.clone(), config.catalog_table.clone()),
            backends,
            guard: Guard::new(GuardOptions {
                enabled: config.guard_enabled,
                include_raw: false,
            }),
            cursor_secret: config.cursor_secret.clone(),
            max_result_bytes: config.max_result_bytes,
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
        };
        Self {
            keys: KeyStore::new(clients.dynamodb.clone(), config.keys_table.clone()),
            audit: AuditQueue::new(clients.sqs.clone(), config.audit_queue_url.clone()),
            protocol: Protocol::new(Arc::new(services), config.max_body_bytes),
            config,
            clock,
            random,
        }
    }

    /// Opens the connections to DynamoDB and SQS, so that the first caller does not wait for it.
    /// Failures are logged and change nothing: every request finds out for itself.
    pub async fn warm_up(&self) {
        let (keys, audit) = tokio::join!(self.keys.warm(), self.audit.warm());
        for error in [keys.err(), audit.err()].into_iter().flatten() {
            tracing::warn!(%error, "a connection could not be opened beforehand");
        }
    }

    /// Answers one request: edge → key → body → protocol → permission → tool → audit → answer.
    pub async fn handle(&self, request: Request<Bytes>, context: &CallContext) -> Reply {
        let began = self.clock.now();
        let record = Arc::new(CallRecord::begin(&request, context));
        let mut reply = self.decide(&request, context, &record, began).await;
        let http_status = reply.status().as_u16();
        let records = record.auditable();
        join_all(
            records
                .iter()
                .map(|one| self.write_down(one, context, http_status, began)),
        )
        .await;
        edge::finish(&self.config, request.headers(), &mut reply);
        reply
    }

    async fn decide(
        &self,
        request: &Request<Bytes>,
        context: &CallContext,
        record: &Arc<CallRecord>,
        began: Timestamp,
    ) -> Reply {
        match edge::admit(&self.config, request) {
            Admission::Mcp => {}
            Admission::Answered(reply) => return reply,
            Admission::Refused(refusal) => return refusal.reply(&context.request_id),
        }
        let caller = match authenticate(&self.keys, request.headers(), began).await {
            Ok(caller) => caller,
            Err(error) => {
                record.not_recognised(&error);
                return refuse_caller(&error).reply(&context.request_id);
            }
        };
        record.recognised(&caller);
        if let Err(refusal) = edge::check_body(&self.config, request) {
            record.failed(refusal.class());
            return refusal.reply(&context.request_id);
        }
        let exchange = Arc::new(Exchange {
            caller,
            record: Arc::clone(record),
            request_id: context.request_id.clone(),
            time_left: context.time_left(self.clock.now(), self.config.call_timeout),
            parameters_max_chars: self.config.audit_parameters_max_chars,
        });
        let session_id = || {
            let id = ids::time_sortable(began, self.random.as_ref()).ok()?;
            Some(format!("mcp-session-{id}"))
        };
        let reply = self
            .protocol
            .answer(request.headers(), request.body(), exchange, session_id)
            .await;
        if record.is_store_failure() {
            return Refusal::StoreUnavailable.reply(&context.request_id);
        }
        reply
    }

    /// Sends the event to the queue; when the queue refuses, the event is in the log in full.
    async fn write_down(
        &self,
        record: &CallRecord,
        context: &CallContext,
        http_status: u16,
        began: Timestamp,
    ) {
        let ended = self.clock.now();
        let event = match record.event(context, http_status, began, ended, self.random.as_ref()) {
            Ok(event) => event,
            Err(error) => {
                tracing::error!(request_id = %context.request_id, %error, "no audit event could be made");
                return;
            }
        };
        if let Err(error) = self.audit.send(&event).await {
            let event = serde_json::to_string(&event).unwrap_or_default();
            tracing::error!(marker = "AUDIT_NOT_SENT", %error, event, "the audit queue refused an event");
        }
    }
}

/// Whoever is not recognised is told one of two things. The cause goes to the log and the trail.
fn refuse_caller(error: &AuthenticationError) -> Refusal {
    if let AuthenticationError::Store(cause) = error {
        tracing::error!(error = %cause, "a key could not be checked");
        return Refusal::StoreUnavailable;
    }
    tracing::info!(class = error.class(), "a caller was not recognised");
    Refusal::Unauthorized
}
