//! The figures, as the scripts write them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Everything that was measured.
pub struct Figures {
    /// The function beside other functions.
    pub side_by_side: SideBySide,
    /// How the cost grows.
    pub growth: Growth,
    /// Under load; `None` before somebody has measured it.
    pub load: Option<Load>,
}

/// What the figures were measured on.
#[derive(Debug, Deserialize)]
pub struct Machine {
    /// Its processor.
    pub processor: String,
    /// How many of them.
    pub cores: u32,
    /// The kernel's release.
    pub kernel: String,
    /// When.
    pub date: String,
}

/// `tests/performance/run --json`.
#[derive(Debug, Deserialize)]
pub struct SideBySide {
    /// Where.
    pub machine: Machine,
    /// How large our program is.
    pub sizes: Sizes,
    /// The systems, the floor first.
    pub systems: Vec<System>,
}

/// Sizes of the program, in bytes.
#[derive(Debug, Deserialize)]
pub struct Sizes {
    /// Without symbols.
    pub stripped_bytes: u64,
    /// Zipped.
    pub zip_bytes: u64,
}

/// One system; a figure for each round.
#[derive(Debug, Deserialize)]
pub struct System {
    /// What it is.
    pub name: String,
    /// From its start to its first request for an event.
    pub init_ms: Vec<f64>,
    /// The CPU time of that.
    pub init_cpu_ms: Vec<f64>,
    /// Its first call.
    pub first_ms: Vec<f64>,
    /// CPU time of start and first call.
    pub first_cpu_ms: Vec<f64>,
    /// The most memory it had.
    pub peak_kib: Vec<f64>,
    /// Calls, by kind.
    pub calls: BTreeMap<String, Call>,
}

/// One kind of call; a figure for each round.
#[derive(Debug, Deserialize)]
pub struct Call {
    /// Half of the calls took no longer.
    pub p50_ms: Vec<f64>,
    /// 99 of 100 calls took no longer.
    pub p99_ms: Vec<f64>,
    /// CPU time of one.
    pub cpu_us: Vec<f64>,
}

/// `tests/performance/growth`.
#[derive(Debug, Deserialize)]
pub struct Growth {
    /// Where.
    pub machine: Machine,
    /// By passages in the index that is asked.
    pub passages_in_index: Vec<Point>,
    /// By knowledge bases of the key, one of which is asked.
    pub knowledge_bases_of_key_one_asked: Vec<Point>,
    /// By knowledge bases of the key, all of which are asked.
    pub knowledge_bases_of_key_all_asked: Vec<Point>,
    /// By passages in the answer.
    pub passages_in_answer: Vec<Point>,
    /// By the size of the request.
    pub request_bytes: Vec<Point>,
}

/// One point of a curve.
#[derive(Debug, Deserialize)]
pub struct Point {
    /// What grows.
    pub x: f64,
    /// The index on disk.
    #[serde(default)]
    pub index_bytes: Option<u64>,
    /// The cost of a call.
    #[serde(flatten)]
    pub call: Call,
    /// The most memory of the process.
    pub peak_kib: Vec<f64>,
}

/// `tests/performance/load`.
#[derive(Debug, Deserialize)]
pub struct Load {
    /// Where.
    pub machine: Machine,
    /// A steady load, where one was kept up.
    #[serde(default)]
    pub soak: Option<Soak>,
    /// By server and call.
    #[serde(flatten)]
    pub servers: BTreeMap<String, Bench>,
}

/// What `raglan bench --json` prints.
#[derive(Debug, Deserialize)]
pub struct Bench {
    /// One for each number of connections.
    pub loads: Vec<LoadPoint>,
}

/// One number of connections.
#[derive(Debug, Deserialize)]
pub struct LoadPoint {
    /// How many.
    pub connections: u32,
    /// Answered calls in a second.
    pub calls_per_second: f64,
    /// Half of the calls took no longer.
    pub p50_ms: f64,
    /// 95 of 100.
    pub p95_ms: f64,
    /// 99 of 100.
    pub p99_ms: f64,
    /// Calls that were not answered well.
    pub errors: u64,
}

/// A steady load for some minutes.
#[derive(Debug, Deserialize)]
pub struct Soak {
    /// How long.
    pub minutes: f64,
    /// What was answered.
    pub load: Bench,
    /// Seconds since the start, and the process's memory.
    pub resident_kib: Vec<(f64, f64)>,
}

impl Figures {
    /// Reads them from `folder`.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            side_by_side: read(&folder.join("side-by-side.json"))?,
            growth: read(&folder.join("growth.json"))?,
            load: read_if_there(&folder.join("load.json"))?,
        })
    }
}

fn read_if_there<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Option<T>> {
    path.exists().then(|| read(path)).transpose()
}

fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// The middle one of the values; of an even number the lower one in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}
