//! Storage for the control plane: a folder locked to one process ([`folder_lock`]), files that are durable on return
//! ([`durable`]), small files with a checksum ([`small_file`]), and databases that are checked when they open
//! ([`database`]).

pub mod database;
pub mod durable;
mod file_error;
pub mod folder_lock;
pub mod small_file;

pub use file_error::{FileError, at};
