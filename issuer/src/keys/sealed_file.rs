//! A file that is encrypted with a passphrase.
//!
//! ```text
//! key        = Argon2id(passphrase, salt, parameters), RFC 9106
//! ciphertext = AES-256-GCM(key, nonce, contents); the additional data are version, parameters and salt
//! ```
//!
//! Every write has a new nonce. The key stays in memory, so that the file can be read and written again without the
//! passphrase.

use std::io;
use std::path::{Path, PathBuf};

use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_storage::{at, durable};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

use super::error::KeysError;

/// A file, and the key that its contents are encrypted with.
#[derive(Clone)]
pub(super) struct SealedFile {
    path: PathBuf,
    derivation: Derivation,
    key: Zeroizing<[u8; 32]>,
}

/// The contents before encryption.
pub(super) type Contents = Zeroizing<Vec<u8>>;

/// The file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    argon2id: Derivation,
    /// In base64url, as the ciphertext is.
    nonce: String,
    ciphertext: String,
}

/// How the key is derived from the passphrase.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Derivation {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    /// In base64url.
    salt: String,
}

/// The part of the file that every version has.
#[derive(Debug, Deserialize)]
struct Versioned {
    version: u32,
}

const VERSION: u32 = 1;
/// OWASP's parameters, which are also the library's: 19 MiB and two passes, about 30 ms.
const PARAMS: Params = Params::DEFAULT;
/// A file that someone else has written costs no more than this: 256 MiB, and a few seconds.
const MAX_MEMORY_KIB: u32 = 256 << 10;
const MAX_PASSES: u32 = 16;
const MAX_LANES: u32 = 4;
/// NIST SP 800-63B-4, section 3.1.1.2. An attacker with a copy of the file tries passphrases offline.
const MIN_PASSPHRASE_BYTES: usize = 15;
const MAX_FILE_BYTES: u64 = 64 << 10;

// === impl SealedFile ===

impl SealedFile {
    /// A file that does not exist yet.
    pub(super) fn new(path: PathBuf, passphrase: &[u8]) -> Result<Self, KeysError> {
        if passphrase.len() < MIN_PASSPHRASE_BYTES {
            return Err(KeysError::ShortPassphrase {
                least: MIN_PASSPHRASE_BYTES,
            });
        }
        let derivation = Derivation {
            memory_kib: PARAMS.m_cost(),
            passes: PARAMS.t_cost(),
            lanes: PARAMS.p_cost(),
            salt: URL_SAFE_NO_PAD.encode(random::<16>()?),
        };
        Self::derived(path, derivation, passphrase)
    }

    /// Reads a file.
    pub(super) fn open(path: PathBuf, passphrase: &[u8]) -> Result<(Self, Contents), KeysError> {
        let written = Written::read(&path)?;
        let this = Self::derived(path, written.argon2id.clone(), passphrase)?;
        let contents = this.decrypt(&written)?;
        Ok((this, contents))
    }

    fn derived(path: PathBuf, derivation: Derivation, passphrase: &[u8]) -> Result<Self, KeysError> {
        let key = derivation.key(passphrase).map_err(|why| damaged(&path, why))?;
        Ok(Self { path, derivation, key })
    }

    /// Reads the file again. An error if it is encrypted with another passphrase than before.
    pub(super) fn read(&self) -> Result<Contents, KeysError> {
        self.decrypt(&Written::read(&self.path)?)
    }

    /// Replaces the file, durably.
    pub(super) fn write(&self, contents: Contents) -> Result<(), KeysError> {
        let file = serde_json::to_vec(&self.encrypt(contents)?).map_err(|error| damaged(&self.path, error))?;
        Ok(durable::write_path(&self.path, &file).map_err(at(&self.path))?)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn encrypt(&self, mut contents: Contents) -> Result<Written, Unspecified> {
        let nonce = random::<NONCE_LEN>()?;
        let data = Aad::from(self.derivation.additional_data(VERSION));
        let tag =
            self.cipher()?
                .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), data, &mut contents)?;
        Ok(Written {
            version: VERSION,
            argon2id: self.derivation.clone(),
            nonce: URL_SAFE_NO_PAD.encode(nonce),
            ciphertext: URL_SAFE_NO_PAD.encode([&contents, tag.as_ref()].concat()),
        })
    }

    fn decrypt(&self, written: &Written) -> Result<Contents, KeysError> {
        let decode = |text| {
            let decoded = URL_SAFE_NO_PAD.decode(text);
            decoded.map_err(|error| damaged(&self.path, format!("nonce or ciphertext: {error}")))
        };
        let nonce = decode(&written.nonce)?;
        let mut buffer = Zeroizing::new(decode(&written.ciphertext)?);
        let mut open = || {
            let nonce = Nonce::try_assume_unique_for_key(&nonce)?;
            let data = Aad::from(written.argon2id.additional_data(written.version));
            Ok(self.cipher()?.open_in_place(nonce, data, &mut buffer)?.len())
        };
        let length = open().map_err(|Unspecified| KeysError::Decrypt(self.path.clone()))?;
        buffer.truncate(length);
        Ok(buffer)
    }

    fn cipher(&self) -> Result<LessSafeKey, Unspecified> {
        Ok(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*self.key)?))
    }
}

// === impl Written ===

impl Written {
    fn read(path: &Path) -> Result<Self, KeysError> {
        let file = durable::read_small_file(path, MAX_FILE_BYTES).map_err(|error| unreadable(path, error))?;
        let Versioned { version } = serde_json::from_slice(&file).map_err(|error| damaged(path, error))?;
        if version != VERSION {
            return Err(KeysError::Version {
                path: path.to_owned(),
                version,
            });
        }
        serde_json::from_slice(&file).map_err(|error| damaged(path, error))
    }
}

// === impl Derivation ===

impl Derivation {
    fn key(&self, passphrase: &[u8]) -> Result<Zeroizing<[u8; 32]>, String> {
        if self.memory_kib > MAX_MEMORY_KIB || self.passes > MAX_PASSES || self.lanes > MAX_LANES {
            return Err(format!(
                "its Argon2id parameters are over the limits: memory_kib {MAX_MEMORY_KIB}, passes {MAX_PASSES}, lanes \
                 {MAX_LANES}"
            ));
        }
        let salt = URL_SAFE_NO_PAD.decode(&self.salt);
        let salt = salt.map_err(|error| format!("salt: {error}"))?;
        let derive = || {
            let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(32))?;
            // The memory is ours, because the library does not erase its own.
            let mut memory = vec![Block::new(); params.block_count()];
            let mut key = Zeroizing::new([0; 32]);
            let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
            let derived = argon2.hash_password_into_with_memory(passphrase, &salt, &mut *key, &mut memory);
            memory.iter_mut().for_each(Block::zeroize);
            derived.map(|()| key)
        };
        derive().map_err(|error: argon2::Error| format!("Argon2id: {error}"))
    }

    fn additional_data(&self, version: u32) -> String {
        let Self {
            memory_kib,
            passes,
            lanes,
            salt,
        } = self;
        format!("credence issuer keys {version} argon2id {memory_kib} {passes} {lanes} {salt}")
    }
}

/// Random bytes of the system.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Unspecified> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn damaged(path: &Path, why: impl ToString) -> KeysError {
    KeysError::Damaged {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

pub(super) fn unreadable(path: &Path, error: io::Error) -> KeysError {
    match error.kind() {
        io::ErrorKind::NotFound => KeysError::Missing(path.to_owned()),
        _ => at(path)(error).into(),
    }
}
