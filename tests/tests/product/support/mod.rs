//! What the tests stand on: a whole system in memory, requests into it, and answers out of it.

pub mod chat;
pub mod engine;
pub mod environment;
#[path = "../../../../shared/engines/src/testing/fake_engine.rs"]
pub mod fake_engine;
pub mod gate;
pub mod knowledge;
pub mod log;
pub mod message;
pub mod queue;
pub mod steps;
pub mod timeline;
pub mod upstream;
pub mod weather;
pub mod world;

pub use engine::{Behaviour, ScriptedEngine, passage};
pub use environment::{Environment, Extensions};
pub use log::{CapturedLog, capture_log, capture_own_log};
pub use message::{Answer, Request, call, rpc};
pub use queue::Mood;
pub use world::{ENGINE_KEY, NOW, World, id};
