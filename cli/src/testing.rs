//! A local system in a temporary folder, on which a test types command lines and sends real requests.

use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use clap::Parser as _;
use http::{Request, StatusCode};
use raglan_core::audit::AuditEvent;
use raglan_core::clock::{Clock as _, ManualClock, Timestamp};
use raglan_core::random::SequenceRandom;
use raglan_mcp::app::App;
use raglan_mcp::context::CallContext;
use raglan_store::AuditRecord;
use raglan_store::audit_table::{Bounds, Slice};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Outcome;
use crate::arguments::{Arguments, Command};
use crate::failure::outcome_of;
use crate::session::Session;
use crate::system::LocalSystem;
use crate::target::Target;
use crate::terminal::Console;
use crate::{audit, doctor, kb, key};

pub(crate) const NOW: Timestamp = Timestamp::from_epoch_seconds(1_800_000_000);
pub(crate) const DAY: i64 = 86_400;

#[derive(Clone, Default)]
pub(crate) struct Capture(Arc<Mutex<Vec<u8>>>);

impl Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Capture {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) out: String,
    /// Standard error, and the error itself.
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self, pointer: &str) -> String {
        self.json()
            .pointer(pointer)
            .unwrap()
            .as_str()
            .unwrap()
            .to_owned()
    }
}

pub(crate) struct World {
    pub(crate) target: Target,
    app: App,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) random: SequenceRandom,
    pub(crate) folder: TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(NOW));
        let system = LocalSystem::start(&folder.path().join("state"))
            .await
            .unwrap();
        let system = system.with_clock(clock.clone());
        Self {
            app: system.app().unwrap(),
            target: Target::of_local_system(system),
            clock,
            random: SequenceRandom::seeded(1),
            folder,
        }
    }

    /// Runs a command line in a script: nobody sees the output or answers questions.
    pub(crate) async fn run(&self, line: &[&str]) -> Ran {
        self.run_at(line, false, "").await
    }

    /// Runs a command line on a terminal, where `typed` is answered.
    pub(crate) async fn run_on_terminal(&self, line: &[&str], typed: &'static str) -> Ran {
        self.run_at(line, true, typed).await
    }

    pub(crate) async fn run_at(&self, line: &[&str], is_terminal: bool, typed: &str) -> Ran {
        let (out, err) = (Capture::default(), Capture::default());
        let mut console = Console {
            out: Box::new(out.clone()),
            err: Box::new(err.clone()),
            input: Box::new(Cursor::new(typed.to_owned())),
            is_out_terminal: is_terminal,
            is_input_terminal: is_terminal,
        };
        let arguments = Arguments::try_parse_from([&["raglan"], line].concat()).unwrap();
        let mut session = Session {
            target: &self.target,
            console: &mut console,
            json: line.contains(&"--json"),
            clock: self.clock.as_ref(),
            random: &self.random,
        };
        let result = match arguments.command {
            Command::Key(key) => key::execute(&mut session, key.command).await,
            Command::Audit(audit) => audit::execute(&mut session, audit.command).await,
            Command::Kb(kb) => kb::execute(&mut session, kb.command).await,
            Command::Doctor(arguments) => doctor::execute(&mut session, &arguments).await,
            other => panic!("{other:?}"),
        };
        let mut err = err.text();
        let outcome = result.unwrap_or_else(|error| {
            err = format!("{err}{error:#}");
            outcome_of(&error)
        });
        Ran {
            outcome,
            out: out.text(),
            err,
        }
    }

    /// Makes a key and returns its identifier and itself.
    pub(crate) async fn key(&self, options: &[&str]) -> (String, String) {
        let line = [&["key", "create", "test", "--print", "--json"], options].concat();
        let made = self.run(&line).await;
        assert_eq!(made.outcome, Outcome::Done, "{made:?}");
        (made.text("/key_id"), made.text("/key"))
    }

    /// Asks for the knowledge bases with a key, as a client would.
    pub(crate) async fn ask(&self, key: &str) -> (StatusCode, Value) {
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "list_knowledge_bases", "arguments": {} }
        });
        let request = Request::post("/mcp")
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json")
            .body(Bytes::from(body.to_string()))
            .unwrap();
        let context = CallContext {
            request_id: "request".to_owned(),
            deadline: None,
            source_ip: None,
        };
        let response = Box::pin(self.app.handle(request, &context)).await;
        let (parts, body) = response.into_parts();
        (
            parts.status,
            serde_json::from_slice(&body.into_bytes()).unwrap(),
        )
    }

    pub(crate) async fn status(&self, key: &str) -> u16 {
        self.ask(key).await.0.as_u16()
    }

    /// The knowledge bases that a key sees.
    pub(crate) async fn sees(&self, key: &str) -> Vec<String> {
        let (_, answer) = self.ask(key).await;
        let items = answer["result"]["structuredContent"]["items"]
            .as_array()
            .unwrap();
        items
            .iter()
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Everything in the audit trail of that day.
    pub(crate) async fn trail(&self) -> Vec<AuditEvent> {
        let system = self.target.local_system().unwrap();
        system.store_audit_events().await.unwrap();
        let table = system.audit_table();
        let day = self.clock.now().day();
        let records = table
            .all(Slice::Day(&day), Bounds::default())
            .await
            .unwrap();
        records.into_iter().map(AuditRecord::into_event).collect()
    }
}
