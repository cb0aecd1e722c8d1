//! Standard error: what is said beside a command's result.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes a line. Write errors are ignored: they change nothing about what the command does. `eprintln!` would panic.
pub(crate) fn print(line: impl Display) {
    // One write, so that lines of several processes do not mix.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
