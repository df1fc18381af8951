//! One line in the log for each call and each refusal: what operators look for first.

use raglan_core::audit::AuditEvent;

/// Writes it. Questions and answers are not in the log. The identifier of the key is here, in the trail
/// and beside the metrics; as a dimension of a metric it would be one that grows without an end.
pub fn write(event: &AuditEvent) {
    tracing::info!(
        request_id = event.request_id.as_str(),
        trace_id = event.trace_id.as_deref(),
        key_id = event.key_id.as_deref(),
        tool = event.tool.as_deref(),
        method = event.method.as_deref(),
        decision = event.decision.name(),
        status = event.http_status,
        error_class = event.error_class.as_deref(),
        result_count = event.result_count,
        duration_ms = event.duration_ms,
        "call"
    );
}
