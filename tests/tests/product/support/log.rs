//! Everything that is logged while a test runs.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::Registry;

/// The log so far. Logging ends when this is dropped.
pub struct CapturedLog {
    lines: Lines,
    _guard: DefaultGuard,
}

impl CapturedLog {
    /// All lines, JSON, one event a line.
    pub fn text(&self) -> String {
        String::from_utf8(self.lines.0.lock().unwrap().clone()).unwrap()
    }
}

/// Captures what this thread logs from now on, libraries included, down to `level`. The tests run on
/// a runtime of one thread, so that is what the function logs.
pub fn capture_log(level: Level) -> CapturedLog {
    capture(|lines| {
        tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(lines)
            .with_filter(LevelFilter::from_level(level))
    })
}

/// Captures what this thread logs as the deployed functions do when `LOG_LEVEL` is `level`.
pub fn capture_own_log(level: Level) -> CapturedLog {
    capture(|lines| raglan_telemetry::log::layer(level, lines))
}

fn capture<L>(layer: impl FnOnce(Lines) -> L) -> CapturedLog
where
    L: Layer<Registry> + Send + Sync + 'static,
{
    let lines = Lines::default();
    let subscriber = Registry::default().with(layer(lines.clone()));
    CapturedLog {
        lines,
        _guard: tracing::subscriber::set_default(subscriber),
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
