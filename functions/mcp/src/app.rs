//! The one place that states the order of a request's steps.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use http::Request;
use raglan_core::audit::AuditEvent;
use raglan_core::clock::{Clock, Timestamp};
use raglan_core::ids;
use raglan_core::key::KeyHash;
use raglan_core::random::Random;
use raglan_guard::{Guard, GuardOptions};
use raglan_store::{
    AuditQueue, AwsClients, CatalogStore, IdempotencyStore, KeyStore, LeaseStore, MeterStore,
};
use tracing::Instrument as _;

use crate::ask_gate::AskGate;
use crate::authenticate::{
    AuthenticationError, Caller, Presented, check_token, presented, recognise,
};
use crate::backends::Backends;
use crate::call_log;
use crate::config::Config;
use crate::context::CallContext;
use crate::edge::{self, Admission};
use crate::failed_attempts::FailedAttempts;
use crate::limit::{Counted, Limiter, Refused};
use crate::metrics;
use crate::oauth::Oauth;
use crate::protocol::Protocol;
use crate::protocol::exchange::Exchange;
use crate::record::CallRecord;
use crate::reply::{Refusal, Reply};
use crate::tools::Services;

/// The whole function, independent of what carries its requests.
pub struct App {
    config: Config,
    keys: KeyStore,
    failed_attempts: FailedAttempts,
    limiter: Limiter,
    audit: AuditQueue,
    oauth: Option<Oauth>,
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
        let state = (clients.dynamodb.clone(), config.state_table.clone());
        let (results, leases, meters) = (
            IdempotencyStore::new(state.0.clone(), state.1.clone()),
            LeaseStore::new(state.0.clone(), state.1.clone()),
            MeterStore::new(state.0, state.1),
        );
        let services = Services {
            ask_gate: AskGate::new(results, leases, config.ask_concurrency),
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
            failed_attempts: FailedAttempts::new(config.auth_failures_per_minute, random.as_ref()),
            limiter: Limiter::new(meters, config.limits.clone(), config.limiter_failure),
            audit: AuditQueue::new(clients.sqs.clone(), config.audit_queue_url.clone()),
            oauth: config
                .oauth
                .clone()
                .map(|oauth| Oauth::new(oauth, Arc::clone(&clock))),
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

    /// Answers one request: edge → key → body → rate → protocol → permission → tool → audit → answer.
    pub async fn handle(&self, request: Request<Bytes>, context: &CallContext) -> Reply {
        // Every entry of the log that is written on the way carries it, whatever the level.
        let span = tracing::error_span!("request", request_id = context.request_id);
        self.answer(request, context).instrument(span).await
    }

    async fn answer(&self, request: Request<Bytes>, context: &CallContext) -> Reply {
        let began = self.clock.now();
        let record = Arc::new(CallRecord::begin(&request, context));
        // Boxed, because it is the largest future there is, and every carrier would copy it.
        let mut reply = Box::pin(self.decide(&request, context, &record, began)).await;
        let ended = self.clock.now();
        let http_status = reply.status().as_u16();
        let records = record.auditable();
        let event = |one: &Arc<CallRecord>| {
            one.event(context, http_status, began, ended, self.random.as_ref())
        };
        match records.iter().map(event).collect::<Result<Vec<_>, _>>() {
            Ok(events) => self.write_down(&events, http_status, began, ended).await,
            Err(error) => tracing::error!(
                request_id = %context.request_id, %error, "no audit event could be made"
            ),
        }
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
        let oauth = self.config.oauth.as_ref();
        match edge::admit(&self.config, request) {
            Admission::Mcp => {}
            Admission::Answered(reply) => return reply,
            Admission::Refused(refusal) => {
                // A page that may not call is a refusal; a path that does not exist is none.
                if refusal == Refusal::OriginNotAllowed {
                    record.denied(refusal.class());
                }
                return refusal.reply_with(&context.request_id, oauth);
            }
        }
        let (caller, counted) = match self.identify(request, context, began).await {
            Ok(identified) => identified,
            Err(error) => {
                record.not_recognised(&error);
                return refuse_caller(&error).reply_with(&context.request_id, oauth);
            }
        };
        record.recognised(&caller);
        if let Err(refusal) = edge::check_body(&self.config, request) {
            record.failed(refusal.class());
            return refusal.reply_with(&context.request_id, oauth);
        }
        let judged = self.limiter.judge(&caller, request.body(), counted, began);
        let allowance = match judged.await {
            Ok(allowance) => allowance,
            Err((refused, calls)) => {
                let (tool, arguments) = &calls.first;
                let max_chars = self.config.audit_parameters_max_chars;
                record.method("tools/call", None);
                record.tool_call(tool, arguments, max_chars);
                return refuse_calls(&refused, record, &context.request_id);
            }
        };
        if allowance.uncounted {
            record.failed(Refusal::LimiterUnavailable.class());
        }
        let exchange = Arc::new(Exchange {
            caller,
            used_up: allowance.used_up.clone(),
            record: Arc::clone(record),
            request_id: context.request_id.clone(),
            time_left: context.time_left(self.clock.now(), self.config.call_timeout),
            parameters_max_chars: self.config.audit_parameters_max_chars,
        });
        let session_id = || {
            let id = ids::time_sortable(began, self.random.as_ref()).ok()?;
            Some(format!("mcp-session-{id}"))
        };
        let mut reply = self
            .protocol
            .answer(request.headers(), request.body(), exchange, session_id)
            .await;
        if record.is_store_failure() {
            return Refusal::StoreUnavailable.reply_with(&context.request_id, oauth);
        }
        allowance.write(reply.headers_mut());
        reply
    }

    /// Finds out who calls, unless the address has failed too often.
    async fn identify(
        &self,
        request: &Request<Bytes>,
        context: &CallContext,
        now: Timestamp,
    ) -> Result<(Caller, Option<Counted>), AuthenticationError> {
        let source_ip = context.source_ip.as_deref();
        let presented = presented(request.headers(), self.oauth.is_some());
        let known = match &presented {
            Ok(Presented::Key(key)) => self.limiter.knows(&key.hash()),
            _ => false,
        };
        if !known && let Some(wait) = self.failed_attempts.wait_seconds(source_ip, now) {
            return Err(AuthenticationError::TooManyFailures {
                retry_after_seconds: wait,
            });
        }
        let identified = match presented {
            Ok(Presented::Key(key)) => self.look_up(&key.hash(), request.body(), now).await,
            Ok(Presented::Token(token)) => self.look_up_bearer(token, request.body(), now).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &identified
            && error.is_the_callers()
        {
            self.failed_attempts.note(source_ip, now);
        }
        identified
    }

    /// Checks an access token, and looks up what its subject may do. The token's scopes can only take
    /// away from that.
    async fn look_up_bearer(
        &self,
        token: &str,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(Caller, Option<Counted>), AuthenticationError> {
        let Some(oauth) = &self.oauth else {
            return Err(AuthenticationError::UnusableHeader);
        };
        let bearer = check_token(oauth, token).await?;
        let (mut caller, counted) = self.look_up(&bearer.record_hash, body, now).await?;
        if let Some(tools) = &bearer.tools {
            caller.grant.tools.retain(|tool| tools.contains(tool));
        }
        Ok((caller, counted))
    }

    /// Asks for the key's record and, where the key's limit is known from before, for the count of its
    /// calls at the same time.
    async fn look_up(
        &self,
        hash: &KeyHash,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(Caller, Option<Counted>), AuthenticationError> {
        let too_large = body.len() > self.config.max_body_bytes;
        let countable = if too_large { &[] } else { body };
        // Boxed, because the SDK's futures are large and would be moved from step to step.
        let find = Box::pin(self.keys.find(hash));
        let count = Box::pin(self.limiter.count_early(hash, countable, now));
        let (found, counted) = tokio::join!(find, count);
        let caller = recognise(hash, found?, now);
        if caller.is_err() {
            self.limiter.forget(hash);
        }
        Ok((caller?, counted))
    }

    /// Sends the events to the queue and measures them; an event that the queue refuses is in the log
    /// in full.
    async fn write_down(
        &self,
        events: &[AuditEvent],
        http_status: u16,
        began: Timestamp,
        ended: Timestamp,
    ) {
        events.iter().for_each(call_log::write);
        let mut groups = Vec::new();
        if self.config.metrics_enabled {
            let duration_ms = u64::try_from(ended.epoch_ms() - began.epoch_ms()).unwrap_or(0);
            groups = metrics::of_request(http_status, duration_ms, events);
        }
        let sent = join_all(events.iter().map(|event| self.audit.send(event))).await;
        for (event, sent) in events.iter().zip(sent) {
            if let Err(error) = sent {
                let event = serde_json::to_string(event).unwrap_or_default();
                tracing::error!(
                    marker = "AUDIT_NOT_SENT", %error, event, "the audit queue refused an event"
                );
                if self.config.metrics_enabled {
                    groups.extend(metrics::of_audit_failure());
                }
            }
        }
        raglan_telemetry::metrics::write(&groups, ended.epoch_ms());
    }
}

/// Whoever is not recognised is told one of two things. The cause goes to the log and the trail.
fn refuse_caller(error: &AuthenticationError) -> Refusal {
    if matches!(
        error,
        AuthenticationError::Store(_) | AuthenticationError::Issuer(_)
    ) {
        tracing::error!(%error, "a caller could not be checked");
        return Refusal::StoreUnavailable;
    }
    if matches!(error, AuthenticationError::InsufficientScope { .. }) {
        return Refusal::InsufficientScope;
    }
    if let AuthenticationError::TooManyFailures {
        retry_after_seconds,
    } = error
    {
        return Refusal::TooManyFailures {
            retry_after_seconds: *retry_after_seconds,
        };
    }
    Refusal::Unauthorized
}

/// Tells the caller that the key asks too much, or that this cannot be checked.
fn refuse_calls(refused: &Refused, record: &CallRecord, request_id: &str) -> Reply {
    match refused {
        Refused::Limited(told) => {
            let refusal = Refusal::RateLimited {
                retry_after_seconds: told.retry_after_seconds(),
            };
            record.limited(refusal.class());
            let mut reply = refusal.reply(request_id);
            told.write(reply.headers_mut());
            reply
        }
        Refused::Unavailable(error) => {
            tracing::error!(%error, "a call could not be counted");
            record.failed(Refusal::LimiterUnavailable.class());
            Refusal::LimiterUnavailable.reply(request_id)
        }
    }
}
