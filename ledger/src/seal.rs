//! Leaves: sealed when they are written, opened when they are read.
//!
//! ```text
//! leaf  = version (1 byte: 1) | key name (u64 BE) | session (u32 BE) | AES-256-GCM ciphertext and tag
//! nonce = session | index (u64 BE)
//! AAD   = version | key name | the log's origin
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use prost::Message as _;
use ring::aead::{Aad, LessSafeKey, Nonce};

use crate::disk_error::DiskError;
use crate::keys::{KeyFile, Slot};
use crate::leaf::StoredRecord;
use crate::record::{LedgerRecord, RecordBody};

/// Seals leaves. Not clonable, because two sealers must not share a session.
#[derive(Debug)]
pub(crate) struct Sealer {
    session: [u8; 4],
    origin: String,
}

/// Opens leaves.
#[derive(Debug)]
pub struct Opener {
    keys: Arc<KeyFile>,
    origin: String,
    /// Recently used keys.
    ready: HashMap<u32, LessSafeKey>,
}

/// Why a leaf cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its bytes, its key or its index have changed.
    #[error("record {index} does not open with its key: the ledger is damaged; check the disk and restore a backup")]
    Damaged {
        /// The record's index.
        index: u64,
    },
    /// A newer version wrote it.
    #[error("record {index} was written by a version of credence that this one does not know; upgrade it")]
    Unknown {
        /// The record's index.
        index: u64,
    },
    /// The keys cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

// === impl Sealer ===

impl Sealer {
    /// For the log of this origin.
    pub(crate) fn new(origin: &str) -> io::Result<Self> {
        let mut this = Self {
            session: [0; 4],
            origin: origin.to_owned(),
        };
        this.renew()?;
        Ok(this)
    }

    /// Begins another session. Indexes of leaves that did not become durable are used again.
    pub(crate) fn renew(&mut self) -> io::Result<()> {
        getrandom::fill(&mut self.session).map_err(io::Error::other)
    }

    /// Appends a leaf to `target`.
    pub(crate) fn seal(
        &self,
        name: u32,
        key: &LessSafeKey,
        index: u64,
        target: &mut Vec<u8>,
        record: &StoredRecord,
    ) -> Result<(), ring::error::Unspecified> {
        target.push(VERSION);
        target.extend_from_slice(&u64::from(name).to_be_bytes());
        target.extend_from_slice(&self.session);
        let begin = target.len();
        // Encoding into a vector cannot fail.
        let _ = record.encode(target);
        let aad = associated(name, &self.origin);
        let plaintext = target.get_mut(begin..).unwrap_or_default();
        let tag = key.seal_in_place_separate_tag(nonce(self.session, index), aad, plaintext)?;
        target.extend_from_slice(tag.as_ref());
        Ok(())
    }
}

// === impl Opener ===

impl Opener {
    /// For the log of this origin.
    pub(crate) fn new(origin: &str, keys: Arc<KeyFile>) -> Self {
        Self {
            keys,
            origin: origin.to_owned(),
            ready: HashMap::new(),
        }
    }

    /// Opens the leaf of this index.
    pub(crate) fn open(&mut self, index: u64, leaf: &[u8]) -> Result<LedgerRecord, OpenError> {
        let (name, session, sealed) = split(leaf).ok_or(OpenError::Unknown { index })?;
        if !self.ready.contains_key(&name) {
            let slot = self.keys.slot(name)?;
            if matches!(slot, Slot::Erased) {
                return Ok(LedgerRecord::lost(index, RecordBody::Erased));
            }
            if self.ready.len() >= READY_KEYS {
                self.ready.clear();
            }
            self.ready.extend(slot.expanded().map(|key| (name, key)));
        }
        let damaged = OpenError::Damaged { index };
        let Some(key) = self.ready.get(&name) else {
            return Err(damaged);
        };
        let mut text = sealed.to_vec();
        let aad = associated(name, &self.origin);
        let Ok(plaintext) = key.open_in_place(nonce(session, index), aad, &mut text) else {
            return Err(damaged);
        };
        let record = StoredRecord::decode(&*plaintext).ok();
        let record = record.and_then(|record| record.into_record(index));
        record.ok_or(OpenError::Unknown { index })
    }
}

/// The name of the key that sealed a leaf.
pub(crate) fn key_name(leaf: &[u8]) -> Option<u32> {
    split(leaf).map(|(name, ..)| name)
}

fn split(leaf: &[u8]) -> Option<(u32, [u8; 4], &[u8])> {
    let (version, rest) = leaf.split_first()?;
    let (name, rest) = rest.split_first_chunk::<8>()?;
    let (session, sealed) = rest.split_first_chunk::<4>()?;
    let name = u32::try_from(u64::from_be_bytes(*name)).ok()?;
    (*version == VERSION).then_some((name, *session, sealed))
}

fn nonce(session: [u8; 4], index: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&session);
    nonce[4..].copy_from_slice(&index.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn associated(name: u32, origin: &str) -> Aad<Vec<u8>> {
    Aad::from([&[VERSION], &u64::from(name).to_be_bytes()[..], origin.as_bytes()].concat())
}

const VERSION: u8 = 1;
/// Version, key name, session and tag.
pub(crate) const SEAL_OVERHEAD: usize = 1 + 8 + 4 + 16;
/// Leaf lengths have 16 bits.
pub(crate) const MAX_LEAF_BYTES: usize = 65_535;
/// Expanded keys that one reader keeps, at about 600 bytes each.
const READY_KEYS: usize = 256;

const _: () = assert!(
    crate::entry::MAX_CHAIN_ENTRY_BYTES + crate::leaf::RECORD_OVERHEAD + SEAL_OVERHEAD <= MAX_LEAF_BYTES,
    "the largest entry fits a leaf"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::DataKeys;
    use crate::leaf::StoredBody;
    use crate::record::StoredNote;

    #[test]
    fn a_leaf_opens_in_its_place_in_its_log_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        DataKeys::create(&path).unwrap();
        let mut keys = DataKeys::open(&path, 10, |_| false).unwrap();
        let record = StoredRecord {
            received_unix_nano: 9,
            body: Some(StoredBody::Note(StoredNote::default())),
            ..Default::default()
        };
        let mut leaf = Vec::new();
        let sealer = Sealer::new("log.example/a").unwrap();
        sealer.seal(0, keys.key(0).unwrap(), 7, &mut leaf, &record).unwrap();
        assert_eq!(leaf.len(), SEAL_OVERHEAD + record.encoded_len());
        let opener = |origin| Opener::new(origin, keys.file());
        let opened = opener("log.example/a").open(7, &leaf).unwrap();
        assert_eq!(opened, record.into_record(7).unwrap());
        assert!(opener("log.example/a").open(8, &leaf).is_err());
        assert!(opener("log.example/b").open(7, &leaf).is_err());
        for byte in 0..leaf.len() {
            let mut damaged = leaf.clone();
            damaged[byte] ^= 1;
            assert!(opener("log.example/a").open(7, &damaged).is_err(), "byte {byte}");
        }
    }
}
