//! The structured log: one JSON object a line on standard output, which Lambda hands to CloudWatch.

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Opens the log. To be called once, at the start.
///
/// `level` holds for raglan's own entries. Libraries stay at warnings whatever it is: at lower levels
/// they write down whole requests, and with them keys and questions.
pub fn install(level: Level) {
    let json = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_current_span(false);
    tracing_subscriber::registry()
        .with(json)
        .with(filter(level))
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

/// Which entries are written.
#[must_use]
pub fn filter(level: Level) -> Targets {
    Targets::new()
        .with_default(LevelFilter::WARN)
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
        let filter = filter(Level::TRACE);
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
