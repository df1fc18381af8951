//! What happens during one request, collected for its audit event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::USER_AGENT;
use http::{HeaderMap, Request};
use raglan_core::audit::privacy::{Keeper, TextPolicy};
use raglan_core::audit::{
    AuditEvent, Decision, EventPhase, HEADER_MAX_CHARS, SCHEMA_VERSION, cut_at_characters,
};
use raglan_core::clock::Timestamp;
use raglan_core::ids;
use raglan_core::random::{Random, RandomUnavailable};
use raglan_core::redact::masked;
use serde_json::{Map, Value};

use crate::authenticate::{AuthenticationError, Caller};
use crate::context::CallContext;
use crate::trace::TraceContext;

/// Collects one request's facts. Shared between the steps; every step writes what it learns.
#[derive(Debug)]
pub struct CallRecord {
    facts: Mutex<Facts>,
    /// Writes down what the caller sends, as the deployment has it.
    keeper: Keeper,
    /// The records of a batch's elements; a batch itself leaves no event.
    elements: Mutex<Vec<Arc<CallRecord>>>,
}

#[derive(Debug, Clone, Default)]
struct Facts {
    trace: TraceContext,
    /// Whether the request must be written down even if nothing else says so.
    auditable: bool,
    /// The place in a batch.
    batch_element: Option<u32>,
    /// What the key says about its callers' words.
    text: Option<TextPolicy>,
    decision: Option<Decision>,
    method: Option<String>,
    tool: Option<String>,
    key_id: Option<String>,
    key_fingerprint: Option<String>,
    owner: Option<String>,
    source_ip: Option<String>,
    user_agent: Option<String>,
    protocol_version: Option<String>,
    error_class: Option<String>,
    parameters: Option<String>,
    params_bytes: Option<u64>,
    cut: BTreeSet<String>,
    knowledge_bases: Vec<String>,
    result_count: Option<u64>,
    guard_findings: BTreeMap<String, u64>,
    store_failed: bool,
    not_announced: bool,
}

/// How far a request is when its event is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// Whether it is about to be worked on, or over.
    pub phase: EventPhase,
    /// The status of its answer; 0 while there is none.
    pub http_status: u16,
    /// When it came.
    pub began: Timestamp,
    /// Now.
    pub ended: Timestamp,
}

impl CallRecord {
    /// Begins with what the request says of itself.
    #[must_use]
    pub fn begin(request: &Request<Bytes>, context: &CallContext, keeper: Keeper) -> Self {
        let headers = request.headers();
        let facts = Facts {
            trace: TraceContext::of_request(headers, &context.request_id),
            source_ip: context.source_ip.clone(),
            user_agent: header_text(headers, USER_AGENT.as_str()),
            protocol_version: header_text(headers, "mcp-protocol-version"),
            ..Facts::default()
        };
        Self {
            facts: Mutex::new(facts),
            keeper,
            elements: Mutex::default(),
        }
    }

    /// The `traceparent` of requests that are made for this one.
    #[must_use]
    pub fn traceparent(&self) -> String {
        self.read(|facts| facts.trace.traceparent())
    }

    /// A record for one element of a batch. It begins with what is known of the whole request.
    #[must_use]
    pub fn element(&self) -> Arc<Self> {
        let mut elements = lock(&self.elements);
        let facts = Facts {
            batch_element: u32::try_from(elements.len()).ok(),
            ..self.read(Clone::clone)
        };
        let element = Arc::new(Self {
            facts: Mutex::new(facts),
            keeper: self.keeper.clone(),
            elements: Mutex::default(),
        });
        elements.push(Arc::clone(&element));
        element
    }

    /// The caller is known.
    pub fn recognised(&self, caller: &Caller) {
        self.write(|facts| {
            facts.key_id = Some(caller.key_id.clone());
            facts.owner.clone_from(&caller.owner);
            facts.text = caller.audit_text;
        });
    }

    /// Nobody is recognised.
    pub fn not_recognised(&self, error: &AuthenticationError) {
        self.write(|facts| {
            facts.decision = Some(Decision::Unauthenticated);
            facts.error_class = Some(error.class());
            match error {
                AuthenticationError::TooManyFailures { .. } => {
                    facts.decision = Some(Decision::Limited);
                }
                AuthenticationError::Malformed { fingerprint, .. }
                | AuthenticationError::Token { fingerprint, .. }
                | AuthenticationError::InsufficientScope { fingerprint }
                | AuthenticationError::Unknown { fingerprint } => {
                    facts.key_fingerprint = Some(fingerprint.clone());
                }
                AuthenticationError::NotWorking { key_id, owner, .. } => {
                    facts.key_id = Some(key_id.clone());
                    facts.owner.clone_from(owner);
                }
                _ => {}
            }
        });
    }

    /// The message names this method, and this revision where it says so itself.
    pub fn method(&self, method: &str, protocol_version: Option<&str>) {
        let method = self.keeper().name(method, HEADER_MAX_CHARS);
        self.write(|facts| {
            facts.method = Some(method);
            if let Some(version) = protocol_version {
                facts.protocol_version = Some(kept(version, HEADER_MAX_CHARS));
            }
        });
    }

    /// A tool is called with these arguments.
    pub fn tool_call(&self, tool: &str, arguments: &Map<String, Value>) {
        let tool = self.keeper().name(tool, HEADER_MAX_CHARS);
        self.write(|facts| facts.tool = Some(tool));
        self.parameters(arguments);
    }

    /// Something other than a tool is asked for, with these parameters: a prompt or a resource.
    pub fn access(&self, parameters: &Map<String, Value>) {
        self.write(|facts| facts.auditable = true);
        self.parameters(parameters);
    }

    fn parameters(&self, parameters: &Map<String, Value>) {
        let kept = self.keeper().parameters(parameters);
        self.write(|facts| {
            facts.params_bytes = Some(kept.size_bytes);
            facts.parameters = Some(kept.text);
            if kept.cut {
                facts.cut.insert("parameters".to_owned());
            }
        });
    }

    /// Writes down what this caller sends.
    fn keeper(&self) -> Keeper {
        let text = self.read(|facts| facts.text).unwrap_or(self.keeper.text);
        Keeper {
            text,
            ..self.keeper.clone()
        }
    }

    /// The call is refused.
    pub fn denied(&self, class: &str) {
        self.write(|facts| {
            facts.decision = Some(Decision::Denied);
            facts.error_class = Some(class.to_owned());
        });
    }

    /// The caller asks too much.
    pub fn limited(&self, class: &str) {
        self.write(|facts| {
            facts.decision = Some(Decision::Limited);
            facts.error_class = Some(class.to_owned());
        });
    }

    /// The call did not succeed.
    pub fn failed(&self, class: &str) {
        self.write(|facts| facts.error_class = Some(class.to_owned()));
    }

    /// The store could not be asked in the middle of the call: the whole answer becomes a 503.
    pub fn store_failed(&self) {
        self.write(|facts| {
            facts.store_failed = true;
            facts.error_class = Some("store_unavailable".to_owned());
        });
    }

    /// Whether [`CallRecord::store_failed`] was called.
    #[must_use]
    pub fn is_store_failure(&self) -> bool {
        let elements = lock(&self.elements)
            .iter()
            .any(|element| element.is_store_failure());
        elements || self.read(|facts| facts.store_failed)
    }

    /// The call was not made, because the trail could not be told of it: the whole answer becomes a 503.
    pub fn not_announced(&self) {
        self.write(|facts| {
            facts.not_announced = true;
            facts.error_class = Some("audit_unavailable".to_owned());
        });
    }

    /// Whether [`CallRecord::not_announced`] was called.
    #[must_use]
    pub fn is_not_announced(&self) -> bool {
        let elements = lock(&self.elements)
            .iter()
            .any(|element| element.is_not_announced());
        elements || self.read(|facts| facts.not_announced)
    }

    /// What was asked and what came of it.
    pub fn answered(
        &self,
        knowledge_bases: Vec<String>,
        result_count: u64,
        guard_findings: BTreeMap<String, u64>,
    ) {
        self.write(|facts| {
            facts.knowledge_bases = knowledge_bases;
            facts.result_count = Some(result_count);
            facts.guard_findings = guard_findings;
        });
    }

    /// The records that have to be written down: every call of a tool, prompt or resource, and every
    /// refusal; each element of a batch by itself.
    #[must_use]
    pub fn auditable(self: &Arc<Self>) -> Vec<Arc<Self>> {
        let mut records = lock(&self.elements).clone();
        records.insert(0, Arc::clone(self));
        records.retain(|record| {
            record.read(|facts| {
                facts.auditable
                    || facts.tool.is_some()
                    || facts.decision.is_some()
                    || facts.error_class.is_some()
            })
        });
        records
    }

    /// The event for the trail.
    ///
    /// # Errors
    /// [`RandomUnavailable`] when no identifier can be made.
    pub fn event(
        &self,
        context: &CallContext,
        ending: Ending,
        random: &dyn Random,
    ) -> Result<AuditEvent, RandomUnavailable> {
        let Ending {
            phase,
            http_status,
            began,
            ended,
        } = ending;
        let event_id = ids::time_sortable(began, random)?;
        let event = self.read(|facts| AuditEvent {
            schema_version: SCHEMA_VERSION,
            event_id,
            at: began,
            request_id: context.request_id.clone(),
            phase,
            batch_element: facts.batch_element,
            trace_id: Some(facts.trace.trace_id().to_owned()),
            decision: facts.decision.unwrap_or(Decision::Allowed),
            http_status,
            method: facts.method.clone(),
            tool: facts.tool.clone(),
            key_id: facts.key_id.clone(),
            key_fingerprint: facts.key_fingerprint.clone(),
            owner: facts.owner.clone(),
            source_ip: facts.source_ip.clone(),
            user_agent: facts.user_agent.clone(),
            protocol_version: facts.protocol_version.clone(),
            error_class: facts.error_class.clone(),
            duration_ms: u64::try_from(ended.epoch_ms() - began.epoch_ms()).unwrap_or(0),
            parameters: facts.parameters.clone(),
            params_bytes: facts.params_bytes,
            knowledge_bases: facts.knowledge_bases.clone(),
            result_count: facts.result_count,
            guard_findings: facts.guard_findings.clone(),
            cut: facts.cut.clone(),
            administration: None,
        });
        Ok(event.bounded())
    }

    fn write(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut lock(&self.facts));
    }

    fn read<T>(&self, look: impl FnOnce(&Facts) -> T) -> T {
        look(&lock(&self.facts))
    }
}

/// A panic elsewhere must not cost the audit event: the values are plain, never half-written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn header_text(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(kept(text, HEADER_MAX_CHARS))
}

/// The text as it is written down: without what a caller put in the wrong place, and cut.
fn kept(text: &str, max_chars: usize) -> String {
    cut_at_characters(&masked(text), max_chars)
}
