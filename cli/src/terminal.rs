//! Foreign text, made safe for a terminal.

pub(crate) use credence_agent::terminal::{printable, printable_json, unquoted, value};
