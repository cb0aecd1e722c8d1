//! A wall clock that jumps, for programs that are started with it: false_clock.c, which answers in the C library's place.
//! The monotonic clock goes on as it does.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// A wall clock of one's own.
#[derive(Debug)]
pub struct FalseClock {
    /// By how many seconds it is ahead.
    ahead: PathBuf,
    library: PathBuf,
}

impl FalseClock {
    /// One that is right so far. Its files go into `folder`.
    ///
    /// # Errors
    /// If there is no C compiler (the one by which cargo links), or it fails.
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

    /// Has it show so many seconds more than the true time.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn jump(&self, seconds: i64) -> Result<(), Failure> {
        // In place, for it is looked at all the time: neither a new file nor, for a moment, an empty one.
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.ahead);
        let written = file.and_then(|file| file.write_all_at(&seconds.to_ne_bytes(), 0));
        written.map_err(Failure::of("setting a false clock"))
    }

    /// What a program's environment needs in order to see it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let pairs = [("LD_PRELOAD", &self.library), ("FALSE_CLOCK", &self.ahead)];
        pairs
            .map(|(name, file)| (name.to_owned(), file.display().to_string()))
            .into()
    }
}

const SOURCE: &str = include_str!("false_clock.c");
