//! Why there are no keys.

use std::path::PathBuf;

use credence_storage::FileError;
use ring::error::Unspecified;

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error(
        "{path}: it does not exist. Make the issuer's keys with `credence issuer keys create`",
        path = .0.display()
    )]
    Missing(PathBuf),
    #[error(
        "{path}: the file exists. Use its keys. If you move it away, tokens that its keys have signed are denied",
        path = .0.display()
    )]
    Exists(PathBuf),
    #[error("a passphrase needs at least {least} bytes: anyone with a copy of the file can try passphrases")]
    ShortPassphrase { least: usize },
    #[error(
        "{path}: it cannot be decrypted. Give the passphrase that it was made with. If that is the one, the file is \
         damaged: restore it from a backup", path = .0.display()
    )]
    Decrypt(PathBuf),
    #[error("{path}: it cannot be read: {why}. Restore it from a backup", path = path.display())]
    Damaged { path: PathBuf, why: &'static str },
    #[error("the passphrase cannot be used: {0}")]
    Derivation(argon2::Error),
    #[error(
        "{path}: it has as many keys as fit, and verifiers accept only a few. Rotate again when the tokens of the oldest \
         key have expired",
        path = .0.display()
    )]
    TooMany(PathBuf),
    #[error("the system gives no random bytes, so nothing was written")]
    Random,
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<Unspecified> for KeysError {
    fn from(_: Unspecified) -> Self {
        Self::Random
    }
}
