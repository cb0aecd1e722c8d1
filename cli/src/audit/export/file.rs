//! A file that appears under its name only once it is complete.

use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::failure::Failure;

/// A new file beside this path, without its name until it is published. Dropping it earlier removes it. Only its owner
/// may read it, because evidence is about people.
pub(super) fn create(path: &Path) -> Result<NamedTempFile, Failure> {
    if path.exists() {
        return Err(Failure::input(format!(
            "--out {}: the file exists and is not overwritten; name a new file",
            path.display()
        )));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    NamedTempFile::with_prefix_in(".credence-export-", folder.unwrap_or(Path::new(".")))
        .map_err(|error| failed(path, &error))
}

/// Gives the file its name once it is on disk. It does not replace a file that appeared in the meantime.
pub(super) fn publish(file: NamedTempFile, path: &Path) -> Result<(), Failure> {
    file.as_file()
        .sync_all()
        .and_then(|()| Ok(file.persist_noclobber(path)?))
        .map(|_| ())
        .map_err(|error| failed(path, &error))
}

pub(super) fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::operation(format!(
        "{} cannot be written: {error}; check the disk and run the same command again",
        path.display()
    ))
}
