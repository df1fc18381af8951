//! The audit function: takes audit events out of the queue and stores each one once.
//!
//! [`handler`] does the work with the help of [`chains`], [`config`] says with what.

mod chains;
pub mod config;
pub mod handler;
