//! The trace that a request belongs to, so that a caller's, raglan's and an engine's records of one
//! call can be found together: W3C Trace Context (<https://www.w3.org/TR/trace-context/>) in and out,
//! and AWS X-Ray's header where Lambda sends one.

use http::HeaderMap;
use raglan_core::ids::to_hex;
use sha2::{Digest as _, Sha256};

const TRACEPARENT: &str = "traceparent";
/// Lambda's; the one that the Runtime API tells of is put here.
pub const XRAY_HEADER: &str = "x-amzn-trace-id";
const TRACE_ID_DIGITS: usize = 32;
const PARENT_ID_DIGITS: usize = 16;
const XRAY_EPOCH_DIGITS: usize = 8;
const SAMPLED: u8 = 1;

/// The trace of one request. It decides nothing: callers choose what they send.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceContext {
    trace_id: String,
    request_id: String,
    is_sampled: bool,
}

impl TraceContext {
    /// The caller's trace, or Lambda's, or a new one. What breaks the rules is as if it were not there
    /// (Trace Context, section 3.2.2.3 and 4.3).
    ///
    /// Identifiers that have to be new are taken from the request's id, which nobody else has.
    #[must_use]
    pub fn of_request(headers: &HeaderMap, request_id: &str) -> Self {
        let told = parent(headers).or_else(|| {
            let header = headers.get(XRAY_HEADER)?;
            of_xray(header.to_str().ok()?)
        });
        let (trace_id, is_sampled) = told.unwrap_or_else(|| (new_identifiers(request_id).0, false));
        Self {
            trace_id,
            request_id: request_id.to_owned(),
            is_sampled,
        }
    }

    /// The trace's identifier, 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.trace_id
    }

    /// The `traceparent` of requests to others: this request is their parent.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let flags = u8::from(self.is_sampled);
        let (_, span_id) = new_identifiers(&self.request_id);
        format!("00-{}-{span_id}-{flags:02x}", self.trace_id)
    }
}

/// A trace's identifier and a span's.
fn new_identifiers(request_id: &str) -> (String, String) {
    let mut digits = to_hex(&Sha256::digest(request_id.as_bytes()));
    digits.truncate(TRACE_ID_DIGITS + PARENT_ID_DIGITS);
    let span_id = digits.split_off(TRACE_ID_DIGITS);
    (digits, span_id)
}

fn parent(headers: &HeaderMap) -> Option<(String, bool)> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    of_traceparent(value)
}

/// `version-trace_id-parent_id-flags`. A higher version may have more fields behind these.
fn of_traceparent(value: &str) -> Option<(String, bool)> {
    let mut fields = value.trim().split('-');
    let (version, trace_id) = (fields.next()?, fields.next()?);
    let (parent_id, flags) = (fields.next()?, fields.next()?);
    let is_known = is_hex(version, 2) && version != "ff";
    let has_more = fields.next().is_some();
    if !is_known
        || (version == "00" && has_more)
        || !is_identifier(trace_id, TRACE_ID_DIGITS)
        || !is_identifier(parent_id, PARENT_ID_DIGITS)
        || !is_hex(flags, 2)
    {
        return None;
    }
    let flags = u8::from_str_radix(flags, 16).ok()?;
    Some((trace_id.to_owned(), flags & SAMPLED != 0))
}

/// `Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1` (AWS X-Ray Developer
/// Guide, "Tracing header"). The same identifier as in a `traceparent`, written in two parts.
fn of_xray(value: &str) -> Option<(String, bool)> {
    let field = |name: &str| {
        let mut fields = value.split(';').map(str::trim);
        fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
    };
    let (epoch, unique) = field("Root")?.strip_prefix("1-")?.split_once('-')?;
    let trace_id = format!("{epoch}{unique}").to_ascii_lowercase();
    let fits = epoch.len() == XRAY_EPOCH_DIGITS && is_identifier(&trace_id, TRACE_ID_DIGITS);
    fits.then(|| (trace_id, field("Sampled") == Some("1")))
}

/// Lower-case hexadecimal digits, so many of them, and not only zeros.
fn is_identifier(text: &str, digits: usize) -> bool {
    is_hex(text, digits) && text.bytes().any(|digit| digit != b'0')
}

fn is_hex(text: &str, digits: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == digits && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn with(headers: &[(&'static str, &str)]) -> TraceContext {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        TraceContext::of_request(&map, "request-1")
    }

    #[test]
    fn the_callers_trace_goes_on_with_this_request_as_the_parent() {
        let trace = with(&[(
            TRACEPARENT,
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        )]);
        assert_eq!(trace.trace_id(), TRACE);
        let sent = trace.traceparent();
        assert!(sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-01"));
        assert!(!sent.contains("00f067aa0ba902b7"), "the caller's own span");
        assert_eq!(of_traceparent(&sent), Some((TRACE.to_owned(), true)));
    }

    #[test]
    fn a_later_version_may_say_more() {
        let value = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-what-comes";
        assert_eq!(with(&[(TRACEPARENT, value)]).trace_id(), TRACE);
    }

    #[test]
    fn what_breaks_the_rules_begins_a_new_trace() {
        let new = with(&[]);
        for value in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            assert_eq!(with(&[(TRACEPARENT, value)]), new, "{value}");
        }
        let twice = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(with(&[(TRACEPARENT, twice), (TRACEPARENT, twice)]), new);
        assert_ne!(
            new,
            TraceContext::of_request(&HeaderMap::new(), "request-2")
        );
    }

    #[test]
    fn lambdas_trace_is_the_callers_where_there_is_no_other() {
        let root = "Root=1-4bf92f35-77b34da6a3ce929d0e0e4736;Parent=53995c3f42cd8ad8;Sampled=1";
        let trace = with(&[(XRAY_HEADER, root)]);
        assert_eq!(trace.trace_id(), TRACE);
        assert!(trace.traceparent().ends_with("-01"));
        let both = with(&[
            (XRAY_HEADER, root),
            (
                TRACEPARENT,
                "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-00f067aa0ba902b7-00",
            ),
        ]);
        assert_eq!(both.trace_id(), "a".repeat(32));
        for broken in [
            "Root=1-4bf92f35",
            "Root=2-4bf92f35-77b34da6a3ce929d0e0e4736",
            "x",
        ] {
            assert_eq!(with(&[(XRAY_HEADER, broken)]), with(&[]), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_caller_sends_what_goes_on_is_a_traceparent(
            value in "[0-9a-f-]{0,80}|[ -~]{0,80}", request_id in any::<String>(),
        ) {
            let mut headers = HeaderMap::new();
            headers.insert(TRACEPARENT, value.parse().unwrap());
            let trace = TraceContext::of_request(&headers, &request_id);
            prop_assert!(of_traceparent(&trace.traceparent()).is_some());
        }
    }
}
