//! The one place that states the order of a request's steps.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use http::Request;
use raglan_aws::AwsClients;
use raglan_core::audit::EventPhase;
use raglan_core::clock::{Clock, Timestamp};
use raglan_core::ids;
use raglan_core::key::KeyHash;
use raglan_core::random::Random;
use raglan_guard::{Guard, GuardOptions};
use raglan_index_store::Background;
use raglan_store::{
    AuditQueue, CatalogStore, IdempotencyStore, KeyStore, LeaseStore, MeterStore, SessionStore,
};
use raglan_texts::Language;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::answers::Answers;
use crate::ask_gate::AskGate;
use crate::authenticate::{
    AuthenticationError, Caller, Presented, check_token, presented, recognise,
};
use crate::backends::Backends;
use crate::body::RequestBody;
use crate::call_log;
use crate::config::{AuditMode, Config};
use crate::context::CallContext;
use crate::edge::{self, Admission};
use crate::failed_attempts::FailedAttempts;
use crate::limit::{Counted, Limiter, Refused};
use crate::metrics::{self, MeasuredEvents};
use crate::oauth::Oauth;
use crate::protocol::Protocol;
use crate::protocol::answer_parts::AnswerParts;
use crate::protocol::exchange::Exchange;
use crate::protocol::server::Server;
use crate::record::{CallRecord, Ending};
use crate::reply::{Refusal, Reply};
use crate::scopes::{EarlyRead, EarlyReadSlot, Scopes};
use crate::tools::{Services, Size};
use crate::trail::{Intents, Trail};

/// The whole function, independent of what carries its requests.
pub struct App {
    config: Config,
    keys: KeyStore,
    failed_attempts: FailedAttempts,
    limiter: Limiter,
    scopes: Arc<Scopes>,
    trail: Arc<Trail>,
    background: Option<Background>,
    oauth: Option<Oauth>,
    protocol: Protocol<Server>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl App {
    /// The function over these clients, engines and the model that writes answers. Nothing is asked of the network here.
    #[must_use]
    pub fn new(
        config: Config,
        clients: &AwsClients,
        backends: Backends,
        answers: Answers,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        let background = backends.background().cloned();
        let state = (clients.dynamodb.clone(), config.state_table.clone());
        let (results, leases, sessions, meters) = (
            IdempotencyStore::new(state.0.clone(), state.1.clone()),
            LeaseStore::new(state.0.clone(), state.1.clone()),
            SessionStore::new(state.0.clone(), state.1.clone()),
            MeterStore::new(state.0, state.1),
        );
        let catalog = CatalogStore::new(clients.dynamodb.clone(), config.catalog_table.clone());
        let scopes = Arc::new(Scopes::new(catalog.clone()));
        let services = Services {
            ask_gate: AskGate::new(results, leases, config.ask_concurrency),
            answers,
            sessions,
            session_ttl_seconds: config.session_ttl_seconds,
            scopes: Arc::clone(&scopes),
            catalog,
            backends,
            guard: Guard::new(GuardOptions {
                enabled: config.guard_enabled,
                include_raw: false,
                language: config.language,
            }),
            cursor_secret: config.cursor_secret.clone(),
            max_result: Size {
                bytes: config.max_result_bytes,
                tokens: config.max_result_tokens,
            },
            language: config.language,
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
        };
        Self {
            keys: KeyStore::new(clients.dynamodb.clone(), config.keys_table.clone()),
            failed_attempts: FailedAttempts::new(config.auth_failures_per_minute, random.as_ref()),
            limiter: Limiter::new(meters, config.limits.clone(), config.limiter_failure),
            scopes,
            trail: Arc::new(Trail::new(
                AuditQueue::new(clients.sqs.clone(), config.audit_queue_url.clone()),
                config.audit_mode,
                config.metrics_enabled,
                Arc::clone(&clock),
                Arc::clone(&random),
            )),
            background,
            oauth: config
                .oauth
                .clone()
                .map(|oauth| Oauth::new(oauth, Arc::clone(&clock))),
            protocol: Protocol::new(Server::new(Arc::new(services)), config.max_body_bytes),
            config,
            clock,
            random,
        }
    }

    /// Opens the connections to DynamoDB and SQS, so that the first caller does not wait for it, unless
    /// the configuration says otherwise. Failures are logged and change nothing: every request finds out
    /// for itself.
    pub async fn warm_up(&self) {
        if !self.config.warm_up {
            return;
        }
        let (keys, audit) = tokio::join!(self.keys.warm(), self.trail.warm());
        for error in [keys.err(), audit.err()].into_iter().flatten() {
            tracing::warn!(%error, "a connection could not be opened beforehand");
        }
    }

    /// The way to the audit queue.
    #[must_use]
    pub const fn trail(&self) -> &Arc<Trail> {
        &self.trail
    }

    /// What engines go on with after an answer.
    #[must_use]
    pub const fn background(&self) -> Option<&Background> {
        self.background.as_ref()
    }

    /// Answers one request: edge → key → body → rate → protocol → permission → tool → audit → answer.
    pub async fn handle(&self, request: Request<Bytes>, context: &CallContext) -> Reply {
        // Every entry of the log that is written on the way carries it, whatever the level.
        let span = tracing::error_span!("request", request_id = context.request_id);
        let answering = self.answer(request, context).instrument(span);
        // What the record could not be told of; no caller may be left without an answer.
        let answered = AssertUnwindSafe(answering).catch_unwind().await;
        answered.unwrap_or_else(|_panic| {
            tracing::error!(request_id = %context.request_id, "the end of a request panicked");
            Refusal::Internal.reply(self.config.language, &context.request_id)
        })
    }

    async fn answer(&self, request: Request<Bytes>, context: &CallContext) -> Reply {
        let began = self.clock.now();
        let keeper = self.config.audit_keeper.clone();
        let record = Arc::new(CallRecord::begin(&request, context, keeper));
        // Boxed, because it is the largest future there is, and every carrier would copy it.
        let deciding = Box::pin(self.decide(&request, context, &record, began));
        let mut reply = match AssertUnwindSafe(deciding).catch_unwind().await {
            Ok(reply) => reply,
            Err(_panic) => {
                tracing::error!(request_id = %context.request_id, "a request panicked");
                record.failed(Refusal::Internal.class());
                Refusal::Internal.reply(self.config.language, &context.request_id)
            }
        };
        let ending = Ending {
            phase: EventPhase::Outcome,
            http_status: reply.status().as_u16(),
            began,
            ended: self.clock.now(),
        };
        if let Err(refusal) = self.write_down(&record, context, ending).await {
            reply = refusal.reply(self.config.language, &context.request_id);
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
        let (language, oauth) = (self.config.language, self.config.oauth.as_ref());
        match edge::admit(&self.config, request) {
            Admission::Mcp => {}
            Admission::Answered(reply) => return reply,
            Admission::Refused(refusal) => {
                // A page that may not call is a refusal; a path that does not exist is none.
                if refusal == Refusal::OriginNotAllowed {
                    record.denied(refusal.class());
                }
                return refusal.reply_with(language, &context.request_id, oauth);
            }
        }
        let body = RequestBody::new(request.body().clone(), self.config.max_body_bytes);
        let identifying = self.identify(request, &body, context, began);
        let Identified {
            caller,
            counted,
            early_read,
        } = match identifying.await {
            Ok(identified) => identified,
            Err(error) => {
                record.not_recognised(&error);
                return refuse_caller(&error).reply_with(language, &context.request_id, oauth);
            }
        };
        record.recognised(&caller);
        if let Err(refusal) = edge::check_body(&self.config, request) {
            record.failed(refusal.class());
            return refusal.reply_with(language, &context.request_id, oauth);
        }
        let judged = self.limiter.judge(&caller, &body, counted, began);
        let allowance = match judged.await {
            Ok(allowance) => allowance,
            Err((refused, calls)) => {
                let (tool, arguments) = &calls.first;
                record.method("tools/call", None);
                record.tool_call(tool, arguments);
                return refuse_calls(&refused, record, language, &context.request_id);
            }
        };
        if allowance.uncounted {
            record.failed(Refusal::LimiterUnavailable.class());
        }
        let exchange = Arc::new(Exchange {
            language,
            caller,
            early_read: EarlyReadSlot::of(early_read),
            used_up: allowance.used_up.clone(),
            record: Arc::clone(record),
            request_id: context.request_id.clone(),
            until: Instant::now() + context.time_left(self.clock.now(), self.config.call_timeout),
            parts: AnswerParts::default(),
            intents: self.intents(context, began),
        });
        let session_id = || {
            let id = ids::time_sortable(began, self.random.as_ref()).ok()?;
            Some(format!("mcp-session-{id}"))
        };
        let mut reply = self
            .protocol
            .answer(request.headers(), &body, exchange, session_id)
            .await;
        if record.is_not_announced() {
            return Refusal::AuditUnavailable.reply_with(language, &context.request_id, oauth);
        }
        if record.is_store_failure() {
            return Refusal::StoreUnavailable.reply_with(language, &context.request_id, oauth);
        }
        allowance.write(reply.headers_mut());
        reply
    }

    /// Finds out who calls, unless the address has failed too often.
    async fn identify(
        &self,
        request: &Request<Bytes>,
        body: &RequestBody,
        context: &CallContext,
        now: Timestamp,
    ) -> Result<Identified, AuthenticationError> {
        let source_ip = context.source_ip.as_deref();
        let presented = presented(request.headers(), self.oauth.is_some());
        let known = match &presented {
            Ok(Presented::Key(hash)) => self.limiter.knows(hash),
            _ => false,
        };
        if !known && let Some(wait) = self.failed_attempts.wait_seconds(source_ip, now) {
            return Err(AuthenticationError::TooManyFailures {
                retry_after_seconds: wait,
            });
        }
        let identified = match presented {
            Ok(Presented::Key(hash)) => self.look_up(&hash, body, now).await,
            Ok(Presented::Token(token)) => self.look_up_bearer(token, body, now).await,
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
        body: &RequestBody,
        now: Timestamp,
    ) -> Result<Identified, AuthenticationError> {
        let Some(oauth) = &self.oauth else {
            return Err(AuthenticationError::UnusableHeader);
        };
        let bearer = check_token(oauth, token).await?;
        let mut identified = self.look_up(&bearer.record_hash, body, now).await?;
        if let Some(tools) = &bearer.tools {
            let granted = &mut identified.caller.grant.tools;
            granted.retain(|tool| tools.contains(tool));
        }
        Ok(identified)
    }

    /// Asks for the key's record and, where the key is known from before, for the count of its calls and for
    /// what it may see of the catalogue at the same time.
    async fn look_up(
        &self,
        hash: &KeyHash,
        body: &RequestBody,
        now: Timestamp,
    ) -> Result<Identified, AuthenticationError> {
        // Boxed, because these futures are large and would be moved from step to step.
        let find = Box::pin(self.keys.find(hash));
        let count = self.limiter.count_early(hash, body, now);
        let read = self.scopes.read_early(hash, body);
        let (found, counted, early_read) = tokio::join!(find, count, read);
        let caller = recognise(hash, found?, now);
        if caller.is_err() {
            self.limiter.forget(hash);
            self.scopes.forget(hash);
        }
        Ok(Identified {
            caller: caller?,
            counted,
            early_read,
        })
    }

    /// In strict mode: who announces the calls of this request.
    fn intents(&self, context: &CallContext, began: Timestamp) -> Option<Arc<Intents>> {
        (self.trail.mode() == AuditMode::Strict).then(|| {
            Arc::new(Intents {
                trail: Arc::clone(&self.trail),
                context: context.clone(),
                began,
            })
        })
    }

    /// Hands the request's events to the trail, and measures the request.
    ///
    /// # Errors
    /// In strict mode, when they cannot be written down: what to answer instead.
    async fn write_down(
        &self,
        record: &Arc<CallRecord>,
        context: &CallContext,
        ending: Ending,
    ) -> Result<(), Refusal> {
        let records = record.auditable();
        let event = |one: &Arc<CallRecord>| one.event(context, ending, self.random.as_ref());
        let strict = self.trail.mode() == AuditMode::Strict;
        let events = match records.iter().map(event).collect::<Result<Vec<_>, _>>() {
            Ok(events) => events,
            Err(error) => {
                tracing::error!(
                    request_id = %context.request_id, %error, "no audit event could be made"
                );
                return if strict {
                    Err(Refusal::AuditUnavailable)
                } else {
                    Ok(())
                };
            }
        };
        events.iter().for_each(call_log::write);
        let measured = self
            .config
            .metrics_enabled
            .then(|| MeasuredEvents::of(&events));
        let written = self.trail.outcome(events, context).await;
        let refusal = written.map_err(|_| Refusal::AuditUnavailable);
        if let Some(measured) = measured {
            let status =
                refusal.map_or_else(|refusal| refusal.status().as_u16(), |()| ending.http_status);
            let duration_ms = ending.ended.epoch_ms() - ending.began.epoch_ms();
            let duration_ms = u64::try_from(duration_ms).unwrap_or(0);
            let groups = metrics::of_request(status, duration_ms, measured);
            raglan_telemetry::metrics::write(&groups, ending.ended.epoch_ms());
        }
        refusal
    }
}

/// Who calls, and what was found out at the same time.
struct Identified {
    caller: Caller,
    counted: Option<Counted>,
    early_read: Option<EarlyRead>,
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
fn refuse_calls(
    refused: &Refused,
    record: &CallRecord,
    language: Language,
    request_id: &str,
) -> Reply {
    match refused {
        Refused::Limited(told) => {
            let refusal = Refusal::RateLimited {
                retry_after_seconds: told.retry_after_seconds(),
            };
            record.limited(refusal.class());
            let mut reply = refusal.reply(language, request_id);
            told.write(reply.headers_mut());
            reply
        }
        Refused::Unavailable(error) => {
            tracing::error!(%error, "a call could not be counted");
            record.failed(Refusal::LimiterUnavailable.class());
            Refusal::LimiterUnavailable.reply(language, request_id)
        }
    }
}
