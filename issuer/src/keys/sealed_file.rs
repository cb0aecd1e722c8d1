//! A file that is encrypted with a passphrase.
//!
//! ```text
//! file       = magic | salt (16 bytes) | nonce (12 bytes) | ciphertext
//! key        = Argon2id(passphrase, salt), RFC 9106
//! ciphertext = AES-256-GCM(key, nonce, contents); the additional data are magic and salt
//! ```
//!
//! Every write has a new nonce. The key stays in memory, so that the file can be read and written again without the
//! passphrase. Other parameters would have another magic.

use std::io;
use std::path::{Path, PathBuf};

use argon2::{Algorithm, Argon2, Block, Params, Version};
use credence_storage::{at, durable};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::{Zeroize as _, Zeroizing};

use super::error::KeysError;

/// A file, and the key that its contents are encrypted with.
#[derive(Clone)]
pub(super) struct SealedFile {
    path: PathBuf,
    salt: Salt,
    key: Zeroizing<[u8; 32]>,
}

/// The contents before encryption.
pub(super) type Contents = Zeroizing<Vec<u8>>;

type Salt = [u8; 16];

const MAGIC: &[u8; 23] = b"credence issuer keys 1\n";
/// OWASP's parameters, which are also the library's: 19 MiB and two passes, about 30 ms.
const PARAMS: Params = Params::DEFAULT;
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
        let salt = random()?;
        let key = derive(passphrase, &salt)?;
        Ok(Self { path, salt, key })
    }

    /// Reads a file.
    pub(super) fn open(path: PathBuf, passphrase: &[u8]) -> Result<(Self, Contents), KeysError> {
        let file = read(&path)?;
        let (salt, ..) = parts(&file, &path)?;
        let key = derive(passphrase, &salt)?;
        let this = Self { path, salt, key };
        let contents = this.decrypt(&file)?;
        Ok((this, contents))
    }

    /// Reads the file again. An error if it is encrypted with another passphrase than before.
    pub(super) fn read(&self) -> Result<Contents, KeysError> {
        self.decrypt(&read(&self.path)?)
    }

    /// Replaces the file, durably.
    pub(super) fn write(&self, mut contents: Contents) -> Result<(), KeysError> {
        let nonce = random::<NONCE_LEN>()?;
        let sealing = Nonce::assume_unique_for_key(nonce);
        let data = additional_data(&self.salt);
        let tag = self
            .cipher()?
            .seal_in_place_separate_tag(sealing, data, &mut contents)?;
        let file = [MAGIC.as_slice(), &self.salt, &nonce, &contents, tag.as_ref()].concat();
        Ok(durable::write_path(&self.path, &file).map_err(at(&self.path))?)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn decrypt(&self, file: &[u8]) -> Result<Contents, KeysError> {
        let (salt, nonce, ciphertext) = parts(file, &self.path)?;
        let mut buffer = Zeroizing::new(ciphertext.to_vec());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.cipher()?.open_in_place(nonce, additional_data(&salt), &mut buffer);
        let length = opened
            .map_err(|Unspecified| KeysError::Decrypt(self.path.clone()))?
            .len();
        buffer.truncate(length);
        Ok(buffer)
    }

    fn cipher(&self) -> Result<LessSafeKey, Unspecified> {
        Ok(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*self.key)?))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, KeysError> {
    durable::read_small_file(path, MAX_FILE_BYTES).map_err(|error| unreadable(path, error))
}

/// Salt, nonce and ciphertext.
fn parts<'f>(file: &'f [u8], path: &Path) -> Result<(Salt, [u8; NONCE_LEN], &'f [u8]), KeysError> {
    let parts = file.strip_prefix(MAGIC).and_then(|rest| {
        let (salt, rest) = rest.split_first_chunk()?;
        let (nonce, ciphertext) = rest.split_first_chunk()?;
        Some((*salt, *nonce, ciphertext))
    });
    parts.ok_or_else(|| damaged(path, "it does not begin as this version of credence writes it"))
}

fn additional_data(salt: &Salt) -> Aad<Vec<u8>> {
    Aad::from([MAGIC.as_slice(), salt].concat())
}

fn derive(passphrase: &[u8], salt: &Salt) -> Result<Zeroizing<[u8; 32]>, KeysError> {
    // The memory is ours, because the library does not erase its own.
    let mut memory = vec![Block::new(); PARAMS.block_count()];
    let mut key = Zeroizing::new([0; 32]);
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, PARAMS);
    let derived = argon2.hash_password_into_with_memory(passphrase, salt, &mut *key, &mut memory);
    memory.iter_mut().for_each(Block::zeroize);
    derived.map_err(KeysError::Derivation)?;
    Ok(key)
}

/// Random bytes of the system.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Unspecified> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn damaged(path: &Path, why: &'static str) -> KeysError {
    KeysError::Damaged {
        path: path.to_owned(),
        why,
    }
}

pub(super) fn unreadable(path: &Path, error: io::Error) -> KeysError {
    match error.kind() {
        io::ErrorKind::NotFound => KeysError::Missing(path.to_owned()),
        _ => at(path)(error).into(),
    }
}
