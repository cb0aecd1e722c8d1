//! A file that is encrypted with a passphrase.
//!
//! ```text
//! file       = magic | salt (32 bytes) | ciphertext
//! key        = Argon2id(passphrase, salt), RFC 9106
//! ciphertext = AES-256-GCM(key, nonce 0, contents); the additional data are the magic
//! ```
//!
//! Every write has a new salt, and so another key: a nonce is never used twice with one. Other parameters would have another
//! magic.

use std::io;
use std::path::Path;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use credence_storage::{at, durable};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::{Zeroize as _, Zeroizing};

use super::error::KeysError;

/// The contents before encryption.
pub(super) type Contents = Zeroizing<Vec<u8>>;

const MAGIC: &[u8; 23] = b"credence issuer keys 1\n";
const SALT_BYTES: usize = 32;
/// OWASP's parameters, which are also the library's: 19 MiB and two passes, about 30 ms.
const PARAMS: Params = Params::DEFAULT;
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Reads the file as it is.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, KeysError> {
    durable::read_small_file(path, MAX_FILE_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => KeysError::Missing(path.to_owned()),
        _ => at(path)(error).into(),
    })
}

/// Decrypts what was read.
pub(super) fn open(path: &Path, file: &[u8], passphrase: &[u8]) -> Result<Contents, KeysError> {
    let parts = file
        .strip_prefix(MAGIC)
        .and_then(<[u8]>::split_first_chunk::<SALT_BYTES>);
    let (salt, ciphertext) =
        parts.ok_or_else(|| damaged(path, "it does not begin as this version of credence writes it"))?;
    let mut buffer = Zeroizing::new(ciphertext.to_vec());
    let opened = cipher(passphrase, salt)?.open_in_place(nonce(), Aad::from(MAGIC), &mut buffer);
    let length = opened.map_err(|Unspecified| KeysError::Decrypt(path.to_owned()))?.len();
    buffer.truncate(length);
    Ok(buffer)
}

/// Replaces the file, durably. Returns it as it is.
pub(super) fn write(path: &Path, mut contents: Contents, passphrase: &[u8]) -> Result<Vec<u8>, KeysError> {
    let salt = random::<SALT_BYTES>()?;
    let tag = cipher(passphrase, &salt)?.seal_in_place_separate_tag(nonce(), Aad::from(MAGIC), &mut contents)?;
    let file = [MAGIC.as_slice(), &salt, &contents, tag.as_ref()].concat();
    durable::write_path(path, &file).map_err(at(path))?;
    Ok(file)
}

fn cipher(passphrase: &[u8], salt: &[u8; SALT_BYTES]) -> Result<LessSafeKey, KeysError> {
    // The memory is ours, because the library does not erase its own.
    let mut memory = vec![Block::new(); PARAMS.block_count()];
    let mut key = Zeroizing::new([0; 32]);
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, PARAMS);
    let derived = argon2.hash_password_into_with_memory(passphrase, salt, &mut *key, &mut memory);
    memory.iter_mut().for_each(Block::zeroize);
    derived.map_err(KeysError::Derivation)?;
    Ok(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*key)?))
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
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
