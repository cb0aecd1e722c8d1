//! Standard error: messages beside a command's result.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes a line. Ignores write errors, which do not affect the command's result. `eprintln!` would panic.
pub(crate) fn print(line: impl Display) {
    // One write, so that lines of several processes do not mix.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
