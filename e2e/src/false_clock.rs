//! A wall clock that jumps, for programs that are started with it (libfaketime). The monotonic clock goes on as it does.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;

/// A wall clock of one's own.
#[derive(Debug)]
pub struct FalseClock {
    file: PathBuf,
    library: PathBuf,
}

impl FalseClock {
    /// One that is right so far. Its file goes into `folder`.
    ///
    /// # Errors
    /// If libfaketime is not installed.
    pub fn right(folder: &Path) -> Result<Self, Failure> {
        let installed = LIBRARIES.iter().map(PathBuf::from).find(|library| library.is_file());
        let library = installed.ok_or_else(|| {
            Failure::new("libfaketime is not installed: run scripts/setup-tests.sh, or apt-get install faketime")
        })?;
        let clock = Self {
            file: folder.join("false-clock"),
            library,
        };
        clock.jump(0)?;
        Ok(clock)
    }

    /// Has it show so many seconds more than the true time.
    ///
    /// # Errors
    /// If its file can not be written.
    pub fn jump(&self, seconds: i64) -> Result<(), Failure> {
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{seconds:+}\n")).map_err(Failure::of("setting a false clock"))?;
        fs::rename(&new, &self.file).map_err(Failure::of("setting a false clock"))
    }

    /// What a program's environment needs in order to see it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let pairs = [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

/// Where the distributions put the variant for programs with threads.
const LIBRARIES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
];
