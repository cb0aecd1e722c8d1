//! Runs the `credence` command as users run it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::Failure;

/// The program, and a folder for the keys that it creates.
#[derive(Debug, Clone)]
pub struct Credence {
    program: PathBuf,
    folder: PathBuf,
}

/// A key pair from `credence keygen`.
#[derive(Debug, Clone)]
pub struct Key {
    /// The file of the private JWK.
    pub file: PathBuf,
    /// The public key: the member `x` of its JWK.
    pub x: String,
    /// The public JWK.
    pub jwk: String,
    /// The key's `did:key`: an issuer name that contains the key.
    pub did: String,
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
    /// If it exits with any code but 0; the error has its standard error.
    pub fn run(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String, Failure> {
        self.run_and_listen(arguments).map(|(printed, _)| printed)
    }

    /// `credence keygen` into a file of this name: an Ed25519 key.
    ///
    /// # Errors
    /// If the command fails.
    pub fn keygen(&self, name: &str) -> Result<Key, Failure> {
        self.keygen_for("Ed25519", name)
    }

    /// The same for a key of this algorithm.
    ///
    /// # Errors
    /// If the command fails.
    pub fn keygen_for(&self, algorithm: &str, name: &str) -> Result<Key, Failure> {
        #[derive(Deserialize)]
        struct PublicJwk {
            x: String,
        }
        let file = self.folder.join(format!("{name}.jwk"));
        let arguments = ["keygen", "--alg", algorithm, "--out"].map(OsStr::new);
        let (jwk, said) = self.run_and_listen(arguments.into_iter().chain([file.as_os_str()]))?;
        let PublicJwk { x } = serde_json::from_str(&jwk).map_err(Failure::of("reading the public key"))?;
        let did = said
            .lines()
            .find_map(|line| line.strip_prefix("as an issuer: "))
            .ok_or_else(|| Failure::new(format!("keygen names no did:key: {said}")))?
            .to_owned();
        Ok(Key { file, x, jwk, did })
    }

    /// Its standard output, without the last newline, and its standard error.
    fn run_and_listen(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<(String, String), Failure> {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        let ran = command
            .output()
            .map_err(Failure::of(format_args!("starting {}", self.program.display())))?;
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        if !ran.status.success() {
            return Err(Failure::new(format!("{command:?} failed ({}): {said}", ran.status)));
        }
        let printed = String::from_utf8(ran.stdout).map_err(Failure::of("reading what credence printed"))?;
        Ok((printed.trim_end().to_owned(), said))
    }
}

impl Key {
    /// The file of the private key, as a command's argument.
    pub fn path(&self) -> &str {
        // Made from a UTF-8 name in a UTF-8 folder.
        self.file.to_str().unwrap_or_default()
    }
}
