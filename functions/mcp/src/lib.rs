//! The MCP function, from an HTTP request to its answer. Read the files in the order of the steps:
//! [`app`] names them, [`edge`] → [`authenticate`] → [`limit`] → [`protocol`] → [`tools`] → [`trail`] do them.

pub mod answers;
pub mod app;
pub mod ask_gate;
pub mod authenticate;
pub mod backends;
pub mod body;
mod call_log;
pub mod config;
pub mod context;
pub mod cursor;
pub mod edge;
pub mod extension;
pub mod extensions_api;
pub mod failed_attempts;
pub mod function_url;
pub mod json_body;
pub mod lambda;
pub mod limit;
mod metrics;
pub mod oauth;
pub mod platform_api;
pub mod prompts;
pub mod protocol;
pub mod record;
pub mod reply;
pub mod resources;
pub mod scopes;
pub mod start;
pub mod tools;
pub mod trace;
pub mod trail;
