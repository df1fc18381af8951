//! The function's log.

use tracing::Level;

/// Writes one JSON object a line to standard output, which Lambda hands to CloudWatch. To be called
/// once, at the start.
pub fn install(level: Level) {
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_current_span(false)
        .with_max_level(level)
        .init();
    // The default hook prints the payload, which may hold the text of an event.
    std::panic::set_hook(Box::new(|panic| {
        let location = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        tracing::error!(location, "panic");
    }));
}
