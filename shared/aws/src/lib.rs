//! The AWS account: what region, credentials and endpoints there are, HTTP to its services, and a light
//! client for the services that the functions ask.
//!
//! | module | what |
//! |---|---|
//! | [`clients`] | the account of an operator or of the local system, and the clients for it |
//! | [`function_account`] | the account of a function on Lambda |
//! | [`service`] | sends an operation: signs, repeats, bounds in time |
//! | [`operation`] | which operations there are: the SDK's types, writers and readers |
//! | `parameter` | one operation whose writer and reader are ours, with the feature `secrets` |
//! | `refusal` | what a service says when it refuses |
//! | `s3` | reads objects of S3, with the feature `s3` |
//! | [`retry`] | what is worth repeating, and when |
//! | [`signing`] | Signature Version 4 |
//! | [`transport`] | requests over the network, for the light client and for the SDK's own ones |
//!
//! The SDK's own clients make a request in some two hundred steps that can all be configured; that costs
//! more than the request. Here the steps are the ones that these services need, and the types, the JSON
//! and the errors are the SDK's. A caller may read the usual success itself.

pub mod clients;
pub mod function_account;
pub mod operation;
#[cfg(feature = "secrets")]
mod parameter;
mod refusal;
pub mod retry;
#[cfg(feature = "s3")]
pub mod s3;
pub mod service;
pub mod signing;
pub mod transport;

pub use clients::{AccountChoice, AwsClients, LazyAccount};
pub use function_account::function_account;
pub use service::{Answer, CallLimits, DynamoDb, ServiceClient, Sqs};
