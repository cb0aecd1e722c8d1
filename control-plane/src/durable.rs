//! Files and folders that are on disk when a function returns: written aside, fsynced, renamed, folder fsynced.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Replaces `folder/name` with `contents` (readable by its owner only), all or nothing even if the machine dies.
pub(crate) fn write_file(folder: &Path, name: &str, contents: &[u8]) -> io::Result<()> {
    let aside = folder.join(format!("{name}.new"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&aside)?;
    file.write_all(contents)?;
    file.sync_all()?;
    std::fs::rename(&aside, folder.join(name))?;
    sync_folder(folder)
}

/// Removes a file; a file that is not there counts as removed.
pub(crate) fn remove_file(folder: &Path, name: &str) -> io::Result<()> {
    match std::fs::remove_file(folder.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    sync_folder(folder)
}

/// Creates a folder that only its owner can enter. An existing one is left as it is.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_folder(parent),
        _ => Ok(()),
    }
}

/// Makes the names in a folder durable: without it a crash may forget a file that was itself fsynced.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Reads a file whose size is known to be small. A larger one is an error, not an allocation.
pub(crate) fn read_small_file(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    File::open(path)?
        .take(limit.saturating_add(1))
        .read_to_end(&mut contents)?;
    if contents.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {limit} bytes"),
        ));
    }
    Ok(contents)
}
