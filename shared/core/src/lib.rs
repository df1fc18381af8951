//! The decisions that raglan exists for, without any I/O: who is calling ([`key`], [`key_record`]) and
//! how a key lives ([`life_cycle`], [`rotation`]), what that caller may do ([`access`]), what there is to ask about ([`catalog`], [`task`]) and what
//! is written down about it ([`audit`], [`redact`]).
//!
//! Nothing here knows an AWS type or an HTTP type, and nothing here reads a clock or the operating
//! system's randomness on its own: both are parameters ([`clock`], [`random`]).

pub mod access;
pub mod audit;
pub mod audit_chain;
pub mod catalog;
pub mod clock;
pub mod ids;
pub mod json_text;
pub mod key;
pub mod key_record;
pub mod life_cycle;
pub mod limits;
pub mod random;
pub mod redact;
pub mod rotation;
pub mod task;
pub mod tool;
