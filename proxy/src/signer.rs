//! The keys that sign proofs and derived tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use credence_delegation::mint::Unsigned;
use credence_delegation::{PublicKey, SigningKey};
use zeroize::Zeroizing;

use crate::settings::KeySettings;

/// A key that signs. Nothing shows its private half.
#[derive(Debug, Clone)]
pub(crate) struct Signer(Arc<SigningKey>);

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    #[error("{path}: {error}; `credence keygen --out` makes a file with a private JWK", path = path.display())]
    Key {
        path: PathBuf,
        error: credence_delegation::KeyError,
    },
    #[error("{path}: {error}", path = path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("{path}: other users of this machine can read it; run `chmod 600 {path}`", path = .0.display())]
    Readable(PathBuf),
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

/// Why a signature failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignError {}

// === impl Signer ===

impl Signer {
    pub(crate) fn open(settings: &KeySettings) -> Result<Self, SignerError> {
        match settings {
            KeySettings::Memory => Self::generate(),
            KeySettings::File(path) => Self::read(path),
        }
    }

    /// A new key, which exists only in this process.
    pub(crate) fn generate() -> Result<Self, SignerError> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *seed).map_err(SignerError::Random)?;
        Ok(Self(Arc::new(SigningKey::from_seed(&seed))))
    }

    fn read(path: &Path) -> Result<Self, SignerError> {
        let text = read_secret(path)?;
        let key = SigningKey::from_jwk_text(&text).map_err(|error| SignerError::Key {
            path: path.to_owned(),
            error,
        })?;
        Ok(Self(Arc::new(key)))
    }

    pub(crate) fn public(&self) -> PublicKey {
        self.0.public()
    }

    /// The signed token or proof.
    pub(crate) async fn sign(&self, unsigned: &Unsigned) -> Result<String, SignError> {
        unsigned.signed_by(|message| Ok(self.0.sign(message)))
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
