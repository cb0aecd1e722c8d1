//! A wall clock that jumps, for programs started with it: the library of false_clock.c replaces the C library's
//! functions. The monotonic clock is not changed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// A wall clock under the test's control.
#[derive(Debug)]
pub struct FalseClock {
    /// The file with the number of seconds that it is ahead.
    ahead: PathBuf,
    library: PathBuf,
}

impl FalseClock {
    /// A clock that is right at first. Its files go into `folder`.
    ///
    /// # Errors
    /// If there is no C compiler (cargo links with it), or it fails.
    pub fn right(folder: &Path) -> Result<Self, Failure> {
        let source = folder.join("false_clock.c");
        fs::write(&source, SOURCE).map_err(Failure::of("making a false clock"))?;
        let clock = Self {
            ahead: folder.join("false-clock"),
            library: folder.join("false_clock.so"),
        };
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .arg(&clock.library)
            .arg(&source);
        let status = compiler
            .status()
            .map_err(Failure::of("compiling a false clock with cc"))?;
        if !status.success() {
            return Err(Failure::new(format!("compiling a false clock with cc: {status}")));
        }
        clock.jump(0)?;
        Ok(clock)
    }

    /// Sets the clock this many seconds ahead of the true time.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn jump(&self, seconds: i64) -> Result<(), Failure> {
        // In place, since programs read the file all the time: they must see neither another file nor an empty one.
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.ahead);
        let written = file.and_then(|file| file.write_all_at(&seconds.to_ne_bytes(), 0));
        written.map_err(Failure::of("setting a false clock"))
    }

    /// The environment variables with which a program uses this clock.
    pub fn environment(&self) -> Vec<(String, String)> {
        let pairs = [("LD_PRELOAD", &self.library), ("FALSE_CLOCK", &self.ahead)];
        pairs
            .map(|(name, file)| (name.to_owned(), file.display().to_string()))
            .into()
    }
}

const SOURCE: &str = include_str!("false_clock.c");
