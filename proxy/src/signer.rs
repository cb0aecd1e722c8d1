//! The keys that sign proofs and derived tokens.

mod encrypted;
mod error;
mod module;
mod secret_file;

use std::sync::Arc;

use credence_delegation::mint::Unsigned;
use credence_delegation::{PublicKey, SigningKey};
use zeroize::Zeroizing;

pub use self::encrypted::encrypt;
pub(crate) use self::error::{SignError, SignerError};
pub(crate) use self::module::ModuleKey;
pub(crate) use self::secret_file::read_secret;
use crate::settings::KeySettings;

/// A key that signs. Nothing shows its private half.
#[derive(Debug, Clone)]
pub(crate) enum Signer {
    /// In memory.
    Own(Arc<SigningKey>),
    /// In a module, which it never leaves.
    Module(Arc<ModuleKey>),
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
