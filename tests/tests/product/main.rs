//! Black-box tests of the product: function-URL events in, responses out, through the code that Lambda
//! runs, against DynamoDB and SQS in this process. One program, because linking takes longer than
//! the tests.

#![expect(clippy::unwrap_used, reason = "in a test a failure is a failed test")]
#![expect(clippy::too_many_lines, reason = "tables and whole answers are long")]

mod answers;
mod audit_faults;
mod audit_kinds;
mod audit_trail;
mod bad_input;
mod command_line;
mod conversations;
mod deferred_audit;
mod dify_and_ragflow;
mod documents;
mod drain;
mod early_read;
mod engine_answers;
mod engines;
mod faults;
mod federation;
mod field_cases;
mod field_list;
mod generated_answers;
mod impersonation;
mod languages;
mod limits;
mod oauth;
mod observability;
mod permission;
mod protocol;
mod result_size;
mod sample;
mod schemas;
mod secrets;
mod strict_audit;
mod support;
mod tasks;
