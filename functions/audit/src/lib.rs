//! The audit function: takes audit events out of the queue and stores each one once.
//!
//! [`handler`] does the work, [`config`] says with what.

pub mod config;
pub mod handler;
