//! Files and folders that are durable on return: written under another name, synced and renamed, then the folder is
//! synced.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Replaces `folder/name` with `contents`, readable by its owner only. A crash leaves the old or the new file.
pub fn write_file(folder: &Path, name: &str, contents: &[u8]) -> io::Result<()> {
    let aside = folder.join(format!("{name}.new"));
    let mut file = create(&aside)?;
    file.write_all(contents)?;
    file.sync_all()?;
    std::fs::rename(&aside, folder.join(name))?;
    sync_folder(folder)
}

/// As [`write_file`], for a path that names a file.
pub fn write_path(path: &Path, contents: &[u8]) -> io::Result<()> {
    match (path.parent(), path.file_name().and_then(|name| name.to_str())) {
        (Some(folder), Some(name)) => write_file(folder, name, contents),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "this names no file")),
    }
}

pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// Creates a folder that only its owner can enter, and its missing parents. Existing folders stay as they are.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let path = here_if_empty(path);
    if path.is_dir() {
        return Ok(());
    }
    let Some(parent) = path.parent().map(here_if_empty) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "there is no such root folder",
        ));
    };
    create_folder(parent)?;
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    sync_folder(parent)
}

/// Removes a file, if it exists.
pub fn remove_if_present(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the names in a folder durable: without it a crash may lose a synced file.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(here_if_empty(path))?.sync_all()
}

/// A bare name has an empty parent path, which cannot be opened.
fn here_if_empty(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

/// Reads a file that should be small. A larger one is an error, so that it is never read into memory.
pub fn read_small_file(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn every_missing_folder_above_is_created_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c");
        create_folder(&path).unwrap();
        create_folder(&path).unwrap();
        for created in [path.as_path(), path.parent().unwrap()] {
            assert_eq!(created.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn the_folder_of_a_bare_name_is_the_current_one() {
        create_folder(Path::new("")).unwrap();
        sync_folder(Path::new("")).unwrap();
    }

    #[test]
    fn a_file_in_the_way_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("data"), "").unwrap();
        assert!(create_folder(&folder.path().join("data/below")).is_err());
    }
}
