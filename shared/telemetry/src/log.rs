//! The structured log: one JSON object a line on standard output, which Lambda hands to CloudWatch.

use std::io;

use raglan_core::redact::without_credentials;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Opens the log. To be called once, at the start.
///
/// `level` holds for raglan's own entries. Libraries stay at warnings whatever it is: at lower levels
/// they write down whole requests, and with them keys and questions.
pub fn install(level: Level) {
    tracing_subscriber::registry()
        .with(layer(level, io::stdout))
        .init();
    // The default hook prints the payload, which may hold a caller's or a document's text.
    std::panic::set_hook(Box::new(|panic| {
        let location = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        tracing::error!(location, "panic");
    }));
}

/// Writes entries to `writer`, each as one line of JSON and without credentials that are in it.
pub fn layer<S, W>(level: Level, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_current_span(false)
        .with_writer(WithoutCredentials(writer))
        .with_filter(filter(level, LevelFilter::WARN))
}

/// An engine's or a library's error text can hold what it was sent.
struct WithoutCredentials<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for WithoutCredentials<W> {
    type Writer = WithoutCredentials<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        WithoutCredentials(self.0.make_writer())
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        WithoutCredentials(self.0.make_writer_for(metadata))
    }
}

impl<W: io::Write> io::Write for WithoutCredentials<W> {
    /// The subscriber hands over each entry in one piece.
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(entry);
        self.0.write_all(without_credentials(&text).as_bytes())?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Which entries are written: raglan's own from `level` on, those of libraries from `libraries` on.
#[must_use]
pub fn filter(level: Level, libraries: LevelFilter) -> Targets {
    Targets::new()
        .with_default(libraries)
        // It warns of every error that a caller is told.
        .with_target("rmcp", LevelFilter::ERROR)
        .with_target("raglan_", level)
        .with_target("mcp", level)
        .with_target("audit", level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_never_write_more_than_warnings() {
        let filter = filter(Level::TRACE, LevelFilter::WARN);
        assert!(filter.would_enable("raglan_mcp::app", &Level::TRACE));
        for library in [
            "lambda_runtime",
            "hyper",
            "aws_smithy_runtime",
            "rmcp::service",
        ] {
            assert!(!filter.would_enable(library, &Level::INFO), "{library}");
        }
        assert!(filter.would_enable("lambda_runtime", &Level::WARN));
    }
}
