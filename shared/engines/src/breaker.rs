//! A circuit breaker: an engine that keeps failing is left alone for a while, so that callers are not
//! made to wait for it and it is not kept down by requests.

use std::sync::{Mutex, PoisonError};

use raglan_core::clock::Timestamp;

/// Failures in a row that open the circuit.
pub const FAILURES_TO_OPEN: u32 = 5;
/// How long an open circuit stays open before one request may try.
pub const OPEN_SECONDS: i64 = 15;
/// An engine that asks to be left alone is believed up to this long.
const HOLD_MAX_SECONDS: i64 = 60;

/// The breaker of one engine.
#[derive(Debug, Default)]
pub struct CircuitBreaker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures_in_a_row: u32,
    /// Set while the circuit is open.
    opened_at: Option<Timestamp>,
    /// Whether the one request of a half-open circuit is under way.
    is_probing: bool,
    /// Until when the engine asked to be left alone.
    held_until: Option<Timestamp>,
}

/// Why a request is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotNow {
    /// The engine failed too often a moment ago.
    Open,
    /// The engine asked to be left alone.
    Held,
}

/// The right to send one request. It has to be told how the request went; dropped without, it counts as
/// neither success nor failure.
#[derive(Debug)]
#[must_use]
pub struct Permit<'a> {
    breaker: &'a CircuitBreaker,
    is_probe: bool,
}

impl CircuitBreaker {
    /// Asks to send a request.
    ///
    /// # Errors
    /// [`NotNow`] when it must not be sent.
    pub fn permit(&self, now: Timestamp) -> Result<Permit<'_>, NotNow> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.held_until.is_some_and(|until| now < until) {
            return Err(NotNow::Held);
        }
        state.held_until = None;
        let Some(opened_at) = state.opened_at else {
            return Ok(Permit {
                breaker: self,
                is_probe: false,
            });
        };
        // A clock that was set back must not keep the circuit open.
        let is_over = now < opened_at || now >= opened_at.plus_seconds(OPEN_SECONDS);
        if !is_over || state.is_probing {
            return Err(NotNow::Open);
        }
        state.is_probing = true;
        Ok(Permit {
            breaker: self,
            is_probe: true,
        })
    }

    /// The engine asks to be left alone for this long.
    pub fn hold(&self, now: Timestamp, seconds: u64) {
        let seconds = i64::try_from(seconds).map_or(HOLD_MAX_SECONDS, |s| s.min(HOLD_MAX_SECONDS));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.held_until = Some(now.plus_seconds(seconds));
    }
}

impl Permit<'_> {
    /// The engine answered: whatever it said, it is there.
    pub fn succeeded(self) {
        let mut state = self.lock();
        state.failures_in_a_row = 0;
        state.opened_at = None;
    }

    /// The engine did not answer, or answered that it is broken. Tells whether this opened the circuit.
    #[must_use]
    pub fn failed(self, now: Timestamp) -> bool {
        let mut state = self.lock();
        state.failures_in_a_row = state.failures_in_a_row.saturating_add(1);
        let opens = self.is_probe || state.failures_in_a_row >= FAILURES_TO_OPEN;
        if opens {
            state.opened_at = Some(now);
        }
        opens
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        let state = self.breaker.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.is_probe {
            self.lock().is_probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_epoch_seconds(1_000_000);

    fn open(breaker: &CircuitBreaker) {
        for _ in 0..FAILURES_TO_OPEN {
            let _ = breaker.permit(NOW).unwrap().failed(NOW);
        }
    }

    #[test]
    fn failures_in_a_row_open_the_circuit_and_a_success_between_them_does_not() {
        let breaker = CircuitBreaker::default();
        for _ in 1..FAILURES_TO_OPEN {
            assert!(!breaker.permit(NOW).unwrap().failed(NOW));
        }
        breaker.permit(NOW).unwrap().succeeded();
        open(&breaker);
        assert_eq!(breaker.permit(NOW).unwrap_err(), NotNow::Open);
    }

    #[test]
    fn after_the_pause_exactly_one_request_tries_and_decides() {
        let breaker = CircuitBreaker::default();
        open(&breaker);
        let later = NOW.plus_seconds(OPEN_SECONDS);
        let probe = breaker.permit(later).unwrap();
        assert_eq!(breaker.permit(later).unwrap_err(), NotNow::Open);
        assert!(probe.failed(later));
        assert_eq!(breaker.permit(later).unwrap_err(), NotNow::Open);
        let again = later.plus_seconds(OPEN_SECONDS);
        breaker.permit(again).unwrap().succeeded();
        let both = (breaker.permit(again), breaker.permit(again));
        assert!(both.0.is_ok() && both.1.is_ok());
    }

    #[test]
    fn a_probe_that_is_given_up_lets_the_next_one_try() {
        let breaker = CircuitBreaker::default();
        open(&breaker);
        let later = NOW.plus_seconds(OPEN_SECONDS);
        drop(breaker.permit(later).unwrap());
        assert!(breaker.permit(later).is_ok());
    }

    #[test]
    fn an_engine_that_asks_for_a_pause_gets_it_and_not_more_than_a_minute() {
        let breaker = CircuitBreaker::default();
        breaker.hold(NOW, 86_400);
        assert_eq!(
            breaker.permit(NOW.plus_seconds(59)).unwrap_err(),
            NotNow::Held
        );
        assert!(breaker.permit(NOW.plus_seconds(60)).is_ok());
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_keep_the_circuit_open() {
        let breaker = CircuitBreaker::default();
        open(&breaker);
        assert!(breaker.permit(NOW.plus_seconds(-3600)).is_ok());
    }
}
