//! The `credence` command, used as its users do.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::Failure;

/// The program, and a folder for the keys it makes.
#[derive(Debug, Clone)]
pub struct Credence {
    program: PathBuf,
    folder: PathBuf,
}

/// A key pair that `credence keygen` has made.
#[derive(Debug, Clone)]
pub struct Key {
    /// The file of the private JWK.
    pub file: PathBuf,
    /// The public key: the member `x` of its JWK.
    pub x: String,
}

impl Credence {
    /// The program at this path; keys go into `folder`.
    pub fn new(program: &Path, folder: &Path) -> Self {
        Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
        }
    }

    /// The program's path.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs it and returns what it prints, without the last newline.
    ///
    /// # Errors
    /// If it exits with anything but 0, with what it says about it.
    pub fn run(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String, Failure> {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        let said = command
            .output()
            .map_err(Failure::of(format_args!("starting {}", self.program.display())))?;
        if !said.status.success() {
            let complaint = String::from_utf8_lossy(&said.stderr);
            return Err(Failure::new(format!(
                "{command:?} failed ({}): {complaint}",
                said.status
            )));
        }
        let printed = String::from_utf8(said.stdout).map_err(Failure::of("reading what credence printed"))?;
        Ok(printed.trim_end().to_owned())
    }

    /// `credence keygen` into a file of this name.
    ///
    /// # Errors
    /// If the command fails.
    pub fn keygen(&self, name: &str) -> Result<Key, Failure> {
        #[derive(Deserialize)]
        struct PublicJwk {
            x: String,
        }
        let file = self.folder.join(format!("{name}.jwk"));
        let printed = self.run([OsStr::new("keygen"), OsStr::new("--out"), file.as_os_str()])?;
        let jwk: PublicJwk = serde_json::from_str(&printed).map_err(Failure::of("reading the public key"))?;
        Ok(Key { file, x: jwk.x })
    }
}

impl Key {
    /// The file of the private key, as a command's argument.
    pub fn path(&self) -> &str {
        // Made from a name of ours below a folder of ours.
        self.file.to_str().unwrap_or_default()
    }
}
