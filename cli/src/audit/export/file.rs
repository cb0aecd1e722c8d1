//! A file that is there only once it is whole.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A new file under another name, until it is finished. Dropped before, it is removed.
#[derive(Debug)]
pub(super) struct NewFile {
    path: PathBuf,
    partial: Partial,
    writer: BufWriter<File>,
}

/// The file's name until it is finished.
#[derive(Debug)]
struct Partial(PathBuf);

// === impl NewFile ===

impl NewFile {
    /// Only its owner may read it, for it is evidence about people.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        if path.exists() {
            return Err(Failure::input(format!(
                "--out {}: it is there already and is not overwritten; name a new file",
                path.display()
            )));
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        // One that is there may be another's, who could read what is written into it.
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&partial)
            .map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Failure::input(format!(
                    "{} is there already: another export is writing it, or one was interrupted; remove it in that case",
                    partial.display()
                )),
                _ => failed(&partial, &error),
            })?;
        Ok(Self {
            path: path.to_owned(),
            partial: Partial(partial),
            writer: BufWriter::new(file),
        })
    }

    pub(super) fn write_line(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.writer, "{line}").map_err(|error| failed(&self.partial.0, &error))
    }

    /// It is whole, on disk, and has its name.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let finished = self
            .writer
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            // Unlike renaming, this never replaces a file that was put there meanwhile.
            .and_then(|()| std::fs::hard_link(&self.partial.0, &self.path));
        finished.map_err(|error| failed(&self.path, &error))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // It may be gone, or stay: it is not what was asked for either way.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::operation(format!(
        "{} cannot be written: {error}; see to the disk and run the same command again",
        path.display()
    ))
}
