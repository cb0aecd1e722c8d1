//! What goes wrong with keys.

use std::io;
use std::path::PathBuf;

use credence_delegation::KeyError;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignerError {
    #[error("{path}: {error}; `file` needs a private JWK, as `credence keygen --out` makes it, and `encrypted` PKCS #8", path = path.display())]
    Key { path: PathBuf, error: KeyError },
    #[error("{path}: {error}", path = path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{path}: other users of this machine can read it; run `chmod 600 {path}`", path = .0.display())]
    Readable(PathBuf),
    #[error("{path}: {problem}", path = path.display())]
    Unusable { path: PathBuf, problem: String },
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

/// Why a signature failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignError {
    #[error("the module does not sign: {0}")]
    Module(String),
    #[error("the task that signed has ended")]
    Cancelled,
}
