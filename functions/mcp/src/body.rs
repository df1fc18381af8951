//! A request's body. Several steps look into it, and it is parsed once for all of them; the protocol
//! library reads the bytes.

use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::Value;

/// A body and, as soon as somebody wants it, the JSON in it.
#[derive(Debug)]
pub struct RequestBody {
    bytes: Bytes,
    max_bytes: usize,
    parsed: OnceLock<Option<Value>>,
}

impl RequestBody {
    /// A body that is not looked into when it has more than `max_bytes`.
    #[must_use]
    pub const fn new(bytes: Bytes, max_bytes: usize) -> Self {
        Self {
            bytes,
            max_bytes,
            parsed: OnceLock::new(),
        }
    }

    /// The body as it came.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The JSON in it; `None` when there is none, or when it is too large. Of a member that is there
    /// twice the last one counts.
    #[must_use]
    pub fn json(&self) -> Option<&Value> {
        let parse = || {
            if self.bytes.len() > self.max_bytes {
                return None;
            }
            serde_json::from_slice(&self.bytes).ok()
        };
        self.parsed.get_or_init(parse).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_too_large_is_not_parsed() {
        let body = |max_bytes| RequestBody::new(Bytes::from_static(br#"{"a":1}"#), max_bytes);
        assert!(body(7).json().is_some());
        assert!(body(6).json().is_none());
    }

    #[test]
    fn what_is_no_json_gives_none() {
        assert!(
            RequestBody::new(Bytes::from_static(b"{"), 10)
                .json()
                .is_none()
        );
    }
}
