//! `raglan bench`: how many calls a second an endpoint answers, and how fast, under a steady load.
//!
//! Closed loop: every connection sends its next call when the one before has been answered, so what is
//! measured is what the endpoint gives and not how a queue grows in front of it.

pub mod arguments;
mod load;

use std::sync::Arc;

use hdrhistogram::Histogram;
use raglan_mcp::protocol::envelope::SERVED_VERSIONS;
use serde_json::{Value, json};

use self::arguments::{BenchArguments, Load};
use self::load::{Measured, Target};
use crate::Outcome;
use crate::failure::Failure;
use crate::language::text;
use crate::terminal::say;

const KEY_VARIABLE: &str = "RAGLAN_KEY";
/// Questions that fit the sample knowledge base.
const QUERIES: [&str; 4] = [
    "How long can the old key stay valid after a rotation?",
    "torque of the hinge bolt",
    "成都员工入职满一年有多少天年假？",
    "Who approves travel expenses?",
];

/// Runs the command.
///
/// # Errors
/// One line for a person.
pub async fn run(arguments: BenchArguments) -> anyhow::Result<Outcome> {
    let key = std::env::var(KEY_VARIABLE).unwrap_or_default();
    if key.is_empty() {
        let problem = text!(
            "{variable} is not set: the calls need a key",
            variable = KEY_VARIABLE
        );
        return Err(Failure::Usage(problem).into());
    }
    let target = Arc::new(Target::new(&arguments.url, &key, bodies(&arguments))?);
    target.check().await?;
    let mut rows = Vec::new();
    if !arguments.json {
        say(text!(
            "connections   calls/s    p50 ms    p95 ms    p99 ms    max ms   calls  errors"
        ));
    }
    for connections in &arguments.connections {
        let measured = target.measure(*connections, arguments.duration()).await?;
        if !arguments.json {
            say(line(*connections, &measured));
        }
        rows.push((*connections, measured));
    }
    let errors: u64 = rows.iter().map(|(_, measured)| measured.errors()).sum();
    if arguments.json {
        say(as_json(&arguments, &rows));
    } else {
        for (problem, count) in problems(&rows) {
            say(format_args!("{count} times: {problem}"));
        }
    }
    Ok(if errors == 0 {
        Outcome::Done
    } else {
        Outcome::Incomplete
    })
}

/// The messages that take turns.
fn bodies(arguments: &BenchArguments) -> Vec<Value> {
    let queries: Vec<&str> = if arguments.queries.is_empty() {
        QUERIES.to_vec()
    } else {
        arguments.queries.iter().map(String::as_str).collect()
    };
    let call = |name: &str, arguments: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": name, "arguments": arguments } })
    };
    match arguments.call {
        Load::List => vec![json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })],
        Load::Retrieve => queries
            .iter()
            .map(|query| call("retrieve", json!({ "query": query })))
            .collect(),
        Load::Ask => queries
            .iter()
            .map(|question| call("ask", json!({ "question": question })))
            .collect(),
    }
}

/// The revision that the calls name: the last one with a handshake, which every server answers.
const fn version() -> &'static str {
    SERVED_VERSIONS[SERVED_VERSIONS.len() - 2]
}

fn line(connections: u16, measured: &Measured) -> String {
    let times = &measured.times_us;
    format!(
        "{connections:>11} {:>9.0} {} {} {} {} {:>7} {:>7}",
        measured.calls_per_second(),
        milliseconds(times, 0.50),
        milliseconds(times, 0.95),
        milliseconds(times, 0.99),
        milliseconds(times, 1.0),
        times.len(),
        measured.errors(),
    )
}

fn milliseconds(times_us: &Histogram<u64>, quantile: f64) -> String {
    format!("{:>9.2}", quantile_ms(times_us, quantile))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds of a call are far below 2^52"
)]
fn quantile_ms(times_us: &Histogram<u64>, quantile: f64) -> f64 {
    times_us.value_at_quantile(quantile) as f64 / 1000.0
}

fn problems(rows: &[(u16, Measured)]) -> Vec<(&str, u64)> {
    let mut all: Vec<(&str, u64)> = Vec::new();
    for (problem, count) in rows.iter().flat_map(|(_, measured)| &measured.problems) {
        match all.iter_mut().find(|(known, _)| known == problem) {
            Some((_, total)) => *total += count,
            None => all.push((problem, *count)),
        }
    }
    all
}

fn as_json(arguments: &BenchArguments, rows: &[(u16, Measured)]) -> Value {
    let row = |(connections, measured): &(u16, Measured)| {
        let times = &measured.times_us;
        json!({
            "connections": connections,
            "calls_per_second": measured.calls_per_second(),
            "p50_ms": quantile_ms(times, 0.50),
            "p95_ms": quantile_ms(times, 0.95),
            "p99_ms": quantile_ms(times, 0.99),
            "max_ms": quantile_ms(times, 1.0),
            "calls": times.len(),
            "errors": measured.errors(),
            "problems": measured.problems,
        })
    };
    json!({
        "url": arguments.url,
        "seconds": arguments.seconds,
        "loads": rows.iter().map(row).collect::<Vec<_>>(),
    })
}
