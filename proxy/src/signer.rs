//! The keys that sign proofs and derived tokens.

mod encrypted;
mod module;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use credence_delegation::mint::Unsigned;
use credence_delegation::{KeyError, PublicKey, SigningKey};
use zeroize::Zeroizing;

pub use self::encrypted::encrypt;
use self::module::ModuleKey;
use crate::settings::KeySettings;

/// A key that signs. Nothing shows its private half.
#[derive(Debug, Clone)]
pub(crate) enum Signer {
    /// In memory.
    Own(Arc<SigningKey>),
    /// In a module, which it never leaves.
    Module(Arc<ModuleKey>),
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    #[error("{path}: {error}; `credence keygen --out` makes a file with a private JWK", path = path.display())]
    Key { path: PathBuf, error: KeyError },
    #[error("{path}: {problem}", path = path.display())]
    Encrypted { path: PathBuf, problem: String },
    #[error("{path}: {error}", path = path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{path}: other users of this machine can read it; run `chmod 600 {path}`", path = .0.display())]
    Readable(PathBuf),
    #[error("{module}: {problem}", module = module.display())]
    Module { module: PathBuf, problem: String },
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

// === impl Signer ===

impl Signer {
    pub(crate) fn open(settings: &KeySettings) -> Result<Self, SignerError> {
        match settings {
            KeySettings::Memory => Self::generate(),
            KeySettings::File(path) => {
                let key = SigningKey::from_jwk_text(&read_secret(path)?);
                let key = key.map_err(|error| SignerError::Key {
                    path: path.clone(),
                    error,
                });
                Ok(Self::Own(Arc::new(key?)))
            }
            KeySettings::Encrypted(settings) => {
                let passphrase = read_secret(&settings.passphrase_file)?;
                let key = encrypted::decrypt(&settings.file, passphrase.trim_ascii())?;
                Ok(Self::Own(Arc::new(key)))
            }
            KeySettings::Pkcs11(settings) => Ok(Self::Module(Arc::new(ModuleKey::open(settings)?))),
        }
    }

    /// A new key, which exists only in this process.
    pub(crate) fn generate() -> Result<Self, SignerError> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *seed).map_err(SignerError::Random)?;
        Ok(Self::Own(Arc::new(SigningKey::from_seed(&seed))))
    }

    pub(crate) fn public(&self) -> PublicKey {
        match self {
            Self::Own(key) => key.public(),
            Self::Module(key) => key.public().clone(),
        }
    }

    /// The signed token or proof.
    pub(crate) async fn sign(&self, unsigned: &Unsigned) -> Result<String, SignError> {
        match self {
            Self::Own(key) => unsigned.signed_by(|message| Ok(key.sign(message))),
            Self::Module(key) => {
                let (key, unsigned) = (Arc::clone(key), unsigned.clone());
                let signing = move || unsigned.signed_by(|message| key.sign(message));
                let signed = tokio::task::spawn_blocking(signing).await;
                signed.unwrap_or(Err(SignError::Cancelled))
            }
        }
    }
}

/// Reads a small file that only its owner, or its group, may read.
pub(crate) fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, SignerError> {
    use std::io::Read as _;
    use std::os::unix::fs::MetadataExt as _;
    let failed = |error| SignerError::File {
        path: path.to_owned(),
        error,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o007 != 0 {
        return Err(SignerError::Readable(path.to_owned()));
    }
    let mut contents = Zeroizing::new(Vec::new());
    file.take(MAX_SECRET_BYTES).read_to_end(&mut contents).map_err(failed)?;
    Ok(contents)
}

const MAX_SECRET_BYTES: u64 = 64 << 10;
