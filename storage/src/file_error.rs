//! What the system refused, and of which file.

use std::io;
use std::path::{Path, PathBuf};

/// The system refused to read or write a file or a folder.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}", path = path.display())]
pub struct FileError {
    /// The file or folder.
    pub path: PathBuf,
    /// What the system said.
    pub error: io::Error,
}

/// Says which file an error of the system is about: `.map_err(at(&path))`.
pub fn at(path: &Path) -> impl Fn(io::Error) -> FileError + use<> {
    let path = path.to_owned();
    move |error| FileError {
        path: path.clone(),
        error,
    }
}
