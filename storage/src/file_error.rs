//! An error of the system, with the path.

use std::io;
use std::path::{Path, PathBuf};

/// The system could not read or write a file or a folder.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}", path = path.display())]
pub struct FileError {
    /// The file or folder.
    pub path: PathBuf,
    /// The system's error.
    pub error: io::Error,
}

/// Adds the path to a system error: `.map_err(at(&path))`.
pub fn at(path: &Path) -> impl Fn(io::Error) -> FileError + use<> {
    let path = path.to_owned();
    move |error| FileError {
        path: path.clone(),
        error,
    }
}
