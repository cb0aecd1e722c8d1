//! What the control plane keeps on disk stands on this: a folder of one process ([`folder_lock`]), files that are on disk when
//! a function returns ([`durable`]), small ones with a checksum ([`small_file`]), and databases that are whole or refused
//! ([`database`]).

pub mod database;
pub mod durable;
mod file_error;
pub mod folder_lock;
pub mod small_file;

pub use file_error::{FileError, at};
