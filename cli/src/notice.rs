//! Standard error: what is said beside a command's result.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes a line. That nobody can read it, as where the disk is full that it goes to, changes nothing about what the
/// command does; `eprintln!` would panic.
pub(crate) fn print(line: impl Display) {
    // One write, so that lines of several processes do not mix.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
