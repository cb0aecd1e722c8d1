//! The issuer's signing keys, and the secret of its codes and refresh tokens: one file, encrypted with a passphrase.
//!
//! Each key signs until the next one does. It is published from the start, so that verifiers have fetched it when it
//! begins to sign, until every token that it has signed has expired.
//!
//! ```text
//! contents = secret (32 bytes) | keys
//! key      = Ed25519 seed (32 bytes) | signs from (u64 LE) | published until (u64 LE; the greatest: no end yet)
//! ```

mod error;
mod sealed_file;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use credence_delegation::mint::Signer;
use credence_delegation::{PublicKey, SigningKey};
use credence_storage::{at, durable};
use ring::error::Unspecified;
use ring::hmac;
use zeroize::Zeroizing;

use crate::words::date;

pub use error::KeysError;
use sealed_file::{damaged, random};

/// The keys, as they were in the file when it was read.
pub struct Keys {
    path: PathBuf,
    passphrase: Zeroizing<Vec<u8>>,
    /// The file as it was read.
    file: Vec<u8>,
    /// In the order of `signs_from`; never empty.
    keys: Vec<Key>,
    secret: Zeroizing<[u8; 32]>,
}

/// One signing key. Times are seconds since the Unix epoch.
struct Key {
    seed: Seed,
    key: SigningKey,
    /// `kid`: its RFC 7638 thumbprint.
    id: String,
    signs_from: u64,
    /// [`NO_END`] until it has a successor.
    published_until: u64,
}

type Seed = Zeroizing<[u8; 32]>;

const FILE: &str = "keys.sealed";
/// Locked while keys are added. A lock on the file itself would end when it is replaced.
const LOCK: &str = "keys.lock";
/// Filters accept up to 16 keys of an issuer.
const MAX_KEYS: usize = 8;
const KEY_BYTES: usize = 48;
/// NIST SP 800-63B-4, section 3.1.1.2. An attacker with a copy of the file tries passphrases offline.
const MIN_PASSPHRASE_BYTES: usize = 15;
const NO_END: u64 = u64::MAX;

// === impl Keys ===

impl Keys {
    /// Makes the first key and the secret. An error if the file exists.
    pub fn create(folder: &Path, passphrase: &[u8]) -> Result<Self, KeysError> {
        durable::create_folder(folder).map_err(at(folder))?;
        let path = folder.join(FILE);
        if passphrase.len() < MIN_PASSPHRASE_BYTES {
            let least = MIN_PASSPHRASE_BYTES;
            return Err(KeysError::ShortPassphrase { least });
        }
        let _lock = lock(&path)?;
        match sealed_file::read(&path) {
            Err(KeysError::Missing(_)) => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(KeysError::Exists(path)),
        }
        let mut this = Self {
            path,
            passphrase: Zeroizing::new(passphrase.to_vec()),
            file: Vec::new(),
            keys: vec![Key::new(random_seed()?, 0, NO_END)],
            secret: random_seed()?,
        };
        this.write()?;
        Ok(this)
    }

    /// Reads the file. Takes about 30 ms, for the passphrase.
    pub fn open(folder: &Path, passphrase: &[u8]) -> Result<Self, KeysError> {
        Self::read(folder.join(FILE), Zeroizing::new(passphrase.to_vec()))
    }

    /// Reads the file again.
    pub(crate) fn reload(&self) -> Result<Self, KeysError> {
        Self::read(self.path.clone(), self.passphrase.clone())
    }

    /// Whether the file is as it was read. Another process may have added a key.
    pub(crate) fn is_current(&self) -> Result<bool, KeysError> {
        Ok(sealed_file::read(&self.path)? == self.file)
    }

    fn read(path: PathBuf, passphrase: Zeroizing<Vec<u8>>) -> Result<Self, KeysError> {
        let file = sealed_file::read(&path)?;
        let contents = sealed_file::open(&path, &file, &passphrase)?;
        let wrong = || damaged(&path, "its contents are not a secret and keys");
        let (secret, written) = contents.split_first_chunk::<32>().ok_or_else(wrong)?;
        let (written, rest) = written.as_chunks::<KEY_BYTES>();
        let keys: Vec<Key> = written.iter().map(Key::read).collect();
        if keys.is_empty() || !rest.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            secret: Zeroizing::new(*secret),
            path,
            passphrase,
            file,
            keys,
        })
    }

    fn write(&mut self) -> Result<(), KeysError> {
        // At its full size from the start: growing would leave copies in memory.
        let size = self.secret.len() + self.keys.len() * KEY_BYTES;
        let mut contents = Zeroizing::new(Vec::with_capacity(size));
        contents.extend_from_slice(&*self.secret);
        for key in &self.keys {
            contents.extend_from_slice(&*key.seed);
            contents.extend_from_slice(&key.signs_from.to_le_bytes());
            contents.extend_from_slice(&key.published_until.to_le_bytes());
        }
        self.file = sealed_file::write(&self.path, contents, &self.passphrase)?;
        Ok(())
    }

    /// Adds a key to the file. It is published now, and signs after `lead_seconds`: by then, verifiers must have
    /// fetched it. `token_seconds` is the longest life of a token: the present key is published for so long afterwards.
    pub fn rotate(&mut self, now: u64, lead_seconds: u64, token_seconds: u64) -> Result<(), KeysError> {
        let _lock = lock(&self.path)?;
        let mut next = self.reload()?;
        next.keys.retain(|key| key.is_published(now));
        if next.keys.len() >= MAX_KEYS {
            return Err(KeysError::TooMany(next.path.clone()));
        }
        // Not before a key that was added earlier: that one ends then, and must not sign any more.
        let earlier = next.keys.iter().map(|key| key.signs_from);
        let signs_from = earlier.fold(now.saturating_add(lead_seconds), u64::max);
        for key in next.keys.iter_mut().filter(|key| key.published_until == NO_END) {
            key.published_until = signs_from.saturating_add(token_seconds);
        }
        next.keys.push(Key::new(random_seed()?, signs_from, NO_END));
        next.write()?;
        *self = next;
        Ok(())
    }

    /// Each key in words, with its `kid`.
    pub fn schedule(&self, now: u64) -> impl Iterator<Item = String> {
        self.published(now).map(move |key| {
            let begins = match key.signs_from <= now {
                true => "signs".to_owned(),
                false => format!("signs from {}", date(key.signs_from)),
            };
            let ends = match key.published_until {
                NO_END => String::new(),
                until => format!(", is published until {}", date(until)),
            };
            format!("key {} {begins}{ends}", key.id)
        })
    }

    /// The key that signs now, with its `kid`.
    pub(crate) fn signing(&self, now: u64) -> Signer<'_> {
        let begun = self.keys.iter().rfind(|key| key.signs_from <= now);
        // There is always one. It has not begun if the clock went backwards.
        let Key { key, id, .. } = begun.unwrap_or(&self.keys[0]);
        Signer { key, key_id: Some(id) }
    }

    /// The public JWK set (RFC 7517).
    pub fn jwks(&self, now: u64) -> String {
        let jwks: Vec<String> = self.published(now).map(Key::public_jwk).collect();
        format!(r#"{{"keys":[{}]}}"#, jwks.join(","))
    }

    /// The public keys in it.
    pub(crate) fn public(&self, now: u64) -> impl Iterator<Item = PublicKey> {
        self.published(now).map(|key| key.key.public())
    }

    fn published(&self, now: u64) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(move |key| key.is_published(now))
    }

    /// HMAC-SHA256 of a message. Those of different labels say nothing about each other.
    pub(crate) fn mac(&self, label: &str, message: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&self.mac_key(), &labelled(label, message));
        let mut mac = [0; 32];
        mac.copy_from_slice(tag.as_ref());
        mac
    }

    /// Whether this is the [`Keys::mac`] of the message, in constant time.
    pub(crate) fn is_mac(&self, label: &str, message: &[u8], mac: &[u8]) -> bool {
        hmac::verify(&self.mac_key(), &labelled(label, message), mac).is_ok()
    }

    fn mac_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &*self.secret)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<&str> = self.keys.iter().map(|key| key.id.as_str()).collect();
        write!(f, "Keys({}, {ids:?})", self.path.display())
    }
}

// === impl Key ===

impl Key {
    fn new(seed: Seed, signs_from: u64, published_until: u64) -> Self {
        let key = SigningKey::from_seed(&seed);
        Self {
            id: key.public().thumbprint().to_string(),
            seed,
            key,
            signs_from,
            published_until,
        }
    }

    fn read(written: &[u8; KEY_BYTES]) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        seed.copy_from_slice(&written[..32]);
        let time = |at: usize| std::array::from_fn(|byte| written[at + byte]);
        Self::new(seed, u64::from_le_bytes(time(32)), u64::from_le_bytes(time(40)))
    }

    fn is_published(&self, now: u64) -> bool {
        now < self.published_until
    }

    fn public_jwk(&self) -> String {
        let (jwk, id) = (self.key.public().to_jwk(), &self.id);
        let required = jwk.trim_end_matches('}');
        format!(r#"{required},"alg":"Ed25519","kid":"{id}","use":"sig"}}"#)
    }
}

/// The label's length before it, so that no other label and message give the same bytes.
fn labelled(label: &str, message: &[u8]) -> Vec<u8> {
    let length = (label.len() as u64).to_be_bytes();
    [&length, label.as_bytes(), message].concat()
}

/// Waits until no other process adds a key to this file.
fn lock(path: &Path) -> Result<File, KeysError> {
    let path = path.with_file_name(LOCK);
    let open = || {
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        file.lock()?;
        Ok(file)
    };
    Ok(open().map_err(at(&path))?)
}

fn random_seed() -> Result<Seed, Unspecified> {
    Ok(Zeroizing::new(random()?))
}
