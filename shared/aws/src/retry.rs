//! What is worth repeating, and when. The rules are those of the SDKs' standard mode.
//!
//! Source: AWS SDKs and Tools Reference Guide, "Retry behavior".

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Response;

use crate::refusal::{ERROR_TYPE, Refusal};

/// The first attempt and its repetitions.
pub const MAX_ATTEMPTS: u32 = 3;
/// The pause before the second attempt, at most; the SDK's own second is long for a waiting caller.
pub const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Repetitions cost tokens, so that a service that fails for everybody is not asked three times as
/// often by everybody.
const BUDGET: u32 = 500;
const COST: u32 = 5;

/// Asks for fewer calls, by the service's code.
const THROTTLING: [&str; 13] = [
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottledException",
    "TooManyRequestsException",
    "ProvisionedThroughputExceededException",
    "TransactionInProgressException",
    "RequestLimitExceeded",
    "BandwidthLimitExceeded",
    "LimitExceededException",
    "RequestThrottled",
    "SlowDown",
    "PriorRequestNotComplete",
];
/// May be over at the next attempt, by the service's code.
const TRANSIENT: [&str; 3] = [
    "RequestTimeout",
    "RequestTimeoutException",
    "InternalServerError",
];
/// The service's clock is not ours.
const SKEWED: [&str; 5] = [
    "RequestTimeTooSkewed",
    "RequestExpired",
    "RequestInTheFuture",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
];

/// What a refused attempt says about the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The answer stays the same.
    Final,
    /// The next attempt may succeed.
    Repeat,
    /// The next attempt may succeed if it is signed with the service's time.
    Resign,
}

/// What to do after an answer that is no success.
#[must_use]
pub fn verdict(answer: &Response<Bytes>) -> Verdict {
    let code = error_code(answer).unwrap_or_default();
    let is = |codes: &[&str]| codes.contains(&code.as_str());
    if is(&SKEWED) {
        return Verdict::Resign;
    }
    let by_status = matches!(answer.status().as_u16(), 500 | 502 | 503 | 504);
    if by_status || is(&THROTTLING) || is(&TRANSIENT) {
        Verdict::Repeat
    } else {
        Verdict::Final
    }
}

/// The service's name for a refusal; S3 writes XML.
fn error_code(answer: &Response<Bytes>) -> Option<String> {
    let header = answer.headers().get(ERROR_TYPE);
    let header = header.and_then(|code| code.to_str().ok());
    if let Some(code) = Refusal::read(header, answer.body()).code {
        return Some(code);
    }
    let xml = std::str::from_utf8(answer.body()).ok()?;
    let (code, _) = xml.split_once("<Code>")?.1.split_once("</Code>")?;
    Some(code.to_owned())
}

/// The pause before the attempt after this one, counted from 1: up to twice as long each time, and spread by chance so
/// that many callers do not come back at once. `chance` is any number that differs from call to call.
#[must_use]
pub fn pause(attempt: u32, chance: u32) -> Duration {
    let longest = FIRST_PAUSE * 2_u32.saturating_pow(attempt.saturating_sub(1));
    longest.mul_f64(f64::from(chance % 1024) / 1024.0)
}

/// The tokens of one client.
#[derive(Debug)]
pub struct Budget(AtomicU32);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicU32::new(BUDGET))
    }
}

impl Budget {
    /// Takes the tokens for one repetition, if they are there.
    pub fn take(&self) -> bool {
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(COST)
            });
        taken.is_ok()
    }

    /// Success gives a token back, and those of the repetitions that led to it.
    pub fn give_back(&self, repetitions: u32) {
        if repetitions == 0 && self.0.load(Ordering::Relaxed) >= BUDGET {
            return;
        }
        let given = repetitions * COST + 1;
        // What others do meanwhile does not matter: a budget is no account.
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_add(given).min(BUDGET))
            });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, code: &str) -> Verdict {
        let body =
            format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"m"}}"#);
        of(status, &body)
    }

    fn of(status: u16, body: &str) -> Verdict {
        let answer = Response::builder().status(status);
        verdict(
            &answer
                .body(Bytes::copy_from_slice(body.as_bytes()))
                .unwrap(),
        )
    }

    #[test]
    fn only_what_may_pass_is_repeated() {
        let rows = [
            (500, "InternalServerError", Verdict::Repeat),
            (503, "", Verdict::Repeat),
            (400, "ThrottlingException", Verdict::Repeat),
            (
                400,
                "ProvisionedThroughputExceededException",
                Verdict::Repeat,
            ),
            (400, "InvalidSignatureException", Verdict::Resign),
            (403, "RequestTimeTooSkewed", Verdict::Resign),
            (400, "ConditionalCheckFailedException", Verdict::Final),
            (400, "TransactionCanceledException", Verdict::Final),
            (400, "TransactionConflictException", Verdict::Final),
            (400, "ValidationException", Verdict::Final),
            (400, "AccessDeniedException", Verdict::Final),
            (400, "ResourceNotFoundException", Verdict::Final),
            (501, "", Verdict::Final),
        ];
        for (status, code, expected) in rows {
            assert_eq!(answer(status, code), expected, "{status} {code}");
        }
        assert_eq!(of(502, "<html>"), Verdict::Repeat);
        assert_eq!(of(404, ""), Verdict::Final);
        let sqs = r#"{"__type":"com.amazonaws.sqs#RequestThrottled:http://x/"}"#;
        assert_eq!(of(403, sqs), Verdict::Repeat);
        let s3 = "<Error><Code>RequestTimeTooSkewed</Code><Message>m</Message></Error>";
        assert_eq!(of(403, s3), Verdict::Resign);
        let bedrock = Response::builder()
            .status(429)
            .header(ERROR_TYPE, "ThrottlingException:http://internal/");
        let bedrock = bedrock.body(Bytes::from_static(b"{}")).unwrap();
        assert_eq!(verdict(&bedrock), Verdict::Repeat);
    }

    #[test]
    fn pauses_grow_and_are_spread() {
        assert_eq!(pause(1, 0), Duration::ZERO);
        assert_eq!(pause(1, 512), FIRST_PAUSE / 2);
        assert!(pause(1, 1023) < FIRST_PAUSE);
        assert_eq!(pause(2, 512), FIRST_PAUSE);
        assert!(pause(2, 2047) < FIRST_PAUSE * 2);
    }

    #[test]
    fn a_service_that_fails_for_everybody_is_not_asked_three_times_by_everybody() {
        let budget = Budget::default();
        let repetitions = std::iter::from_fn(|| budget.take().then_some(())).count();
        assert_eq!(repetitions, 100);
        budget.give_back(0);
        assert!(!budget.take(), "one success does not pay a repetition");
        budget.give_back(1);
        assert!(budget.take());
        for _ in 0..1000 {
            budget.give_back(2);
        }
        assert_eq!(
            std::iter::from_fn(|| budget.take().then_some(())).count(),
            100
        );
    }
}
