//! The audit function: takes audit events out of the queue and stores each one once, and closes the days
//! that are over.
//!
//! [`handler`] does the work with the help of [`chains`], [`closing`] seals days into an
//! [`archive`]; [`call`] tells the calls apart, and [`config`] says with what.

pub mod archive;
pub mod call;
mod chains;
pub mod closing;
pub mod config;
pub mod handler;
