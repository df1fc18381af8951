//! What people read: lines on standard output and standard error.

use std::fmt::Display;
use std::io::Write as _;

/// Writes one line to standard output. A reader that went away (`raglan … | head`) is no failure.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Writes one line to standard error.
pub fn warn(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
