//! The data keys, one for each principal: a file of slots that are overwritten in place. Destroying a key erases
//! everything that was sealed with it.
//!
//! ```text
//! slot     = state (1 byte) | 0 0 0 | tag (16 bytes) | key (32 bytes) | checksum (u32 LE) | last use (6 bytes LE) | its
//!            checksum (u16 LE)
//! checksum = CRC-32C of the slot's number (u32 LE) and what precedes; of the last use, its lower half
//! ```
//!
//! A slot's number is its key's name. Slot 0 is for records without a principal; its tag identifies the file's format.
//! The other tags are SipHash-2-4-128 of the principal's name, under a secret that HMAC-SHA256 derives from key 0. The
//! index's hashes use such a secret too, so neither file contains names. The last use is the first index, in units of
//! 256, of the last segment that has a leaf sealed with the key.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::hash::Hasher as _;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use credence_storage::{FileError, at, durable};
use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use ring::hmac;
use siphasher::sip128::{Hasher128, SipHasher24};
use zeroize::Zeroizing;

use crate::disk_error::DiskError;
use crate::entry::PrincipalView;
use crate::index::IndexSecret;
use crate::ledger_error::LedgerError;

/// The keys, for the writer.
pub(crate) struct DataKeys {
    file: Arc<KeyFile>,
    tags: SipHasher24,
    by_tag: HashMap<Tag, u32>,
    slots: Vec<State>,
    free: Vec<u32>,
    limit: u32,
    /// Expanded keys, ready to seal.
    prepared: HashMap<u32, LessSafeKey>,
    /// New keys that may not be on disk yet.
    unsynced: Vec<u32>,
    /// Set if a sync failed, until [`DataKeys::recover`]: the contents of the disk are unknown.
    broken: bool,
}

/// The file, for opening leaves.
#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
    file: File,
}

type Tag = [u8; 16];

/// What memory knows of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Live { last_use: u64 },
    Erased,
}

/// A slot of the file.
pub(crate) enum Slot {
    /// The key was never made, or nothing is left that was sealed with it.
    Free,
    /// The key exists.
    Live {
        tag: Tag,
        key: Zeroizing<[u8; 32]>,
        last_use: u64,
    },
    /// The key was destroyed. Its name is not used again.
    Erased,
}

// === impl DataKeys ===

impl DataKeys {
    /// Creates the file, with the key for records without a principal. Durable on return.
    pub(crate) fn create(path: &Path) -> Result<(), DiskError> {
        let key = random_key().map_err(at(path))?;
        let slot = encode(0, LIVE, FILE_TAG, &key, 0);
        Ok(durable::write_path(path, &slot[..]).map_err(at(path))?)
    }

    /// Reads the file. An unreadable slot at its end is free only if no record was sealed with its key, as `is_used`
    /// tells: then a crash interrupted its first write. Otherwise it is damage, and nothing is overwritten.
    pub(crate) fn open(path: &Path, limit: u32, is_used: impl FnOnce(u32) -> bool) -> Result<Self, DiskError> {
        let file = Arc::new(KeyFile::open_with(path, OpenOptions::new().read(true).write(true))?);
        let mut this = Self {
            tags: tag_hasher(&*file.derived(TAG_CONTEXT)?),
            by_tag: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            limit,
            prepared: HashMap::new(),
            unsynced: Vec::new(),
            broken: false,
            file,
        };
        // Slots are written in order, and synced before anything is sealed with them. So only the last one can be torn.
        let mut unreadable = None;
        let file = this.file();
        file.each_slot(|number, slot| {
            // A slot that is cut short was never complete, and is overwritten.
            let Some(slot) = slot else { return Ok(()) };
            let read = match Slot::decode(number, slot) {
                _ if number == 0 => State::Live { last_use: UNKNOWN_USE },
                Some(Slot::Free) => State::Free,
                Some(Slot::Live { tag, last_use, .. }) => {
                    this.by_tag.insert(tag, number);
                    State::Live { last_use }
                }
                Some(Slot::Erased) => State::Erased,
                None => {
                    if let Some(unreadable) = unreadable.replace(number) {
                        return Err(file.damaged(unreadable, WRONG_CHECKSUM));
                    }
                    State::Free
                }
            };
            if read == State::Free {
                this.free.push(number);
            } else if let Some(unreadable) = unreadable {
                return Err(file.damaged(unreadable, WRONG_CHECKSUM));
            }
            this.slots.push(read);
            Ok(())
        })?;
        if let Some(unreadable) = unreadable.filter(|unreadable| is_used(*unreadable)) {
            let found = "the checksum does not match, and existing records were sealed with its key";
            return Err(this.file.damaged(unreadable, found));
        }
        // Low numbers are used first, so that the file stays dense.
        this.free.reverse();
        this.settle()?;
        Ok(this)
    }

    /// Makes the contents durable before they are used. If an earlier process failed to sync, a new key or a destroyed
    /// one may exist in memory only, in pages that the kernel considers written.
    fn settle(&self) -> Result<(), DiskError> {
        self.file
            .each_part(self.bytes(), |offset, part| Ok(self.file.write(part, offset)?))?;
        Ok(self.file.file.sync_data().map_err(at(&self.file.path))?)
    }

    /// The file, for opening leaves.
    pub(crate) fn file(&self) -> Arc<KeyFile> {
        Arc::clone(&self.file)
    }

    /// The name of the principal's key. Makes a key if there is none; [`DataKeys::sync`] makes it durable.
    pub(crate) fn name_for(&mut self, principal: Option<PrincipalView<'_>>, segment: u64) -> Result<u32, LedgerError> {
        let Some(principal) = principal else { return Ok(0) };
        let tag = tag_of(principal, self.tags);
        match self.by_tag.get(&tag) {
            Some(name) => {
                let name = *name;
                self.used(name, segment)?;
                Ok(name)
            }
            None => self.make(tag, segment),
        }
    }

    /// The name of the principal's key, if it has one.
    pub(crate) fn known_name(&self, principal: PrincipalView<'_>) -> Option<u32> {
        self.by_tag.get(&tag_of(principal, self.tags)).copied()
    }

    /// Notes that the segment with this first index has a leaf sealed with the key. An error if the key never existed.
    pub(crate) fn was_used(&mut self, name: u32, segment: u64) -> Result<(), DiskError> {
        match self.slots.get(name as usize) {
            Some(State::Live { .. } | State::Erased) => self.used(name, segment),
            Some(State::Free) | None => Err(self
                .file
                .damaged(name, "evidence was sealed with its key, which is missing")),
        }
    }

    fn used(&mut self, name: u32, segment: u64) -> Result<(), DiskError> {
        let segment = segment / UNIT;
        if let Some(State::Live { last_use }) = self.slots.get_mut(name as usize)
            && *last_use != segment
            && name != 0
        {
            // Durable before the next segment begins. Until then, a start restores it from the last segment.
            let at = slot_offset(name) + LAST_USE_AT as u64;
            self.file.write(&encode_use(name, segment), at)?;
            *last_use = segment;
        }
        Ok(())
    }

    /// The key with this name, ready to seal.
    pub(crate) fn key(&mut self, name: u32) -> Result<&LessSafeKey, DiskError> {
        if !self.prepared.contains_key(&name) {
            if self.prepared.len() >= PREPARED_KEYS {
                self.prepared.clear();
            }
            self.prepared
                .extend(self.file.slot(name)?.expanded().map(|key| (name, key)));
        }
        let missing = || self.file.damaged(name, "the key is missing");
        self.prepared.get(&name).ok_or_else(missing)
    }

    /// Makes new keys durable, before anything is that is sealed with them.
    pub(crate) fn sync(&mut self) -> Result<(), DiskError> {
        if !self.unsynced.is_empty() {
            self.sync_always()?;
        }
        Ok(())
    }

    /// As [`DataKeys::sync`], with the last uses.
    pub(crate) fn sync_always(&mut self) -> Result<(), DiskError> {
        if self.broken {
            let error = io::Error::other("an earlier sync to disk failed; check the volume");
            return Err(at(&self.file.path)(error).into());
        }
        if let Err(error) = self.file.file.sync_data() {
            self.broken = true;
            return Err(at(&self.file.path)(error).into());
        }
        self.unsynced.clear();
        Ok(())
    }

    /// Recovers after a failed sync, as soon as the disk allows it. Keys made since the last sync have not sealed any
    /// leaf, so they are discarded. Everything else that may have been lost is written again.
    pub(crate) fn recover(&mut self) -> Result<(), DiskError> {
        if !self.broken {
            return Ok(());
        }
        for name in std::mem::take(&mut self.unsynced) {
            self.slots[name as usize] = State::Free;
            self.free.push(name);
        }
        self.forget_destroyed();
        for (name, slot) in (0..).zip(&self.slots).skip(1) {
            match *slot {
                State::Live { last_use } => {
                    let at = slot_offset(name) + LAST_USE_AT as u64;
                    self.file.write(&encode_use(name, last_use), at)?;
                }
                State::Erased => self.overwrite(name, ERASED, 0)?,
                State::Free => self.overwrite(name, FREE, 0)?,
            }
        }
        self.broken = false;
        self.sync_always()
    }

    /// Destroys a key, durably. Returns whether it still existed.
    pub(crate) fn erase(&mut self, name: u32) -> Result<bool, DiskError> {
        let Some(State::Live { last_use }) = self.slots.get(name as usize).copied().filter(|_| name != 0) else {
            return Ok(false);
        };
        self.overwrite(name, ERASED, last_use)?;
        self.slots[name as usize] = State::Erased;
        self.forget_destroyed();
        self.sync_always()?;
        Ok(true)
    }

    /// Whether the key existed and was erased.
    pub(crate) fn is_erased(&self, name: u32) -> bool {
        matches!(self.slots.get(name as usize), Some(State::Erased))
    }

    /// Destroys, durably, the keys whose leaves were all before `first_held`. Their slots are used again. Returns their
    /// number.
    pub(crate) fn destroy_unused(&mut self, first_held: u64) -> Result<usize, DiskError> {
        let held_from = first_held / UNIT;
        let is_unused = |slot: &State| matches!(slot, State::Live { last_use } if *last_use < held_from);
        let unused: Vec<u32> = (0..)
            .zip(&self.slots)
            .skip(1)
            .filter(|(_, slot)| is_unused(slot))
            .map(|(name, _)| name)
            .collect();
        for name in &unused {
            self.overwrite(*name, FREE, 0)?;
            self.slots[*name as usize] = State::Free;
            self.free.push(*name);
        }
        if !unused.is_empty() {
            self.forget_destroyed();
            self.sync_always()?;
        }
        Ok(unused.len())
    }

    /// The number of keys, with erased ones.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Size of the file.
    pub(crate) fn bytes(&self) -> u64 {
        slot_offset(self.slots.len() as u32)
    }

    fn make(&mut self, tag: Tag, segment: u64) -> Result<u32, LedgerError> {
        if self.count() >= self.limit as usize {
            return Err(LedgerError::TooManyKeys { limit: self.limit });
        }
        let key = random_key().map_err(at(&self.file.path))?;
        let name = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        let last_use = segment / UNIT;
        self.file
            .write(&encode(name, LIVE, &tag, &key, last_use)[..], slot_offset(name))?;
        self.unsynced.push(name);
        let slot = State::Live { last_use };
        match self.free.pop() {
            Some(_) => self.slots[name as usize] = slot,
            None => self.slots.push(slot),
        }
        self.by_tag.insert(tag, name);
        Ok(name)
    }

    fn overwrite(&self, name: u32, state: u8, last_use: u64) -> Result<(), FileError> {
        let slot = match state {
            FREE => Zeroizing::new([0; SLOT_BYTES]),
            _ => encode(name, state, &[0; 16], &[0; 32], last_use),
        };
        self.file.write(&slot[..], slot_offset(name))
    }

    fn forget_destroyed(&mut self) {
        let slots = &self.slots;
        let is_live = |name: u32| matches!(slots.get(name as usize), Some(State::Live { .. }));
        self.by_tag.retain(|_, name| is_live(*name));
        self.prepared.retain(|name, _| is_live(*name));
    }
}

// === impl KeyFile ===

impl KeyFile {
    /// For readers.
    pub(crate) fn open_to_read(path: &Path) -> Result<Self, FileError> {
        Self::open_with(path, OpenOptions::new().read(true))
    }

    fn open_with(path: &Path, options: &OpenOptions) -> Result<Self, FileError> {
        Ok(Self {
            file: options.open(path).map_err(at(path))?,
            path: path.to_owned(),
        })
    }

    /// The slot of this key at this moment. An unreadable slot is free.
    pub(crate) fn slot(&self, name: u32) -> Result<Slot, DiskError> {
        let slot = self.read(name)?;
        Ok(slot.and_then(|slot| Slot::decode(name, &slot)).unwrap_or(Slot::Free))
    }

    /// The offsets of damaged slots, and the damage.
    pub(crate) fn damaged_slots(&self) -> Result<Vec<(u64, &'static str)>, DiskError> {
        let mut damaged = Vec::new();
        self.each_slot(|name, slot| {
            let found = match slot.map(|slot| (Slot::decode(name, slot), last_use(name, slot))) {
                None => Some("the last slot is cut short"),
                Some((None, _)) => Some("the slot's checksum does not match its key"),
                Some((Some(Slot::Live { .. } | Slot::Erased), None)) => {
                    Some("the checksum of the slot's last use does not match")
                }
                Some(_) => None,
            };
            damaged.extend(found.map(|found| (slot_offset(name), found)));
            Ok(())
        })?;
        Ok(damaged)
    }

    /// The names of the keys that were erased.
    pub(crate) fn erased(&self) -> Result<HashSet<u32>, DiskError> {
        let mut erased = HashSet::new();
        self.each_slot(|name, slot| {
            let slot = slot.and_then(|slot| Slot::decode(name, slot));
            erased.extend(matches!(slot, Some(Slot::Erased)).then_some(name));
            Ok(())
        })?;
        Ok(erased)
    }

    /// Reads the slots in order. Ignores one at the end that is cut short.
    fn each_slot(
        &self,
        mut visit: impl FnMut(u32, Option<&[u8; SLOT_BYTES]>) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let length = self.file.metadata().map_err(at(&self.path))?.len();
        self.each_part(length, |offset, part| {
            let slots = part.chunks(SLOT_BYTES);
            let mut numbered = ((offset / SLOT_BYTES as u64) as u32..).zip(slots);
            numbered.try_for_each(|(name, slot)| visit(name, slot.try_into().ok()))
        })
    }

    /// Reads this many bytes, in parts that fit in memory.
    fn each_part(
        &self,
        length: u64,
        mut visit: impl FnMut(u64, &[u8]) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let mut bytes = Zeroizing::new(vec![0; READ_AHEAD]);
        for offset in (0..length).step_by(READ_AHEAD) {
            let part = &mut bytes[..READ_AHEAD.min((length - offset) as usize)];
            self.file.read_exact_at(part, offset).map_err(at(&self.path))?;
            visit(offset, part)?;
        }
        Ok(())
    }

    /// The secret of the index's hashes.
    pub(crate) fn index_secret(&self) -> Result<IndexSecret, DiskError> {
        Ok(IndexSecret::new(&*self.derived(INDEX_CONTEXT)?))
    }

    /// A secret derived from key 0 with HMAC-SHA256.
    fn derived(&self, context: &[u8]) -> Result<Zeroizing<[u8; 32]>, DiskError> {
        let first = self.read(0)?.ok_or_else(|| self.damaged(0, "the file is empty"))?;
        match Slot::decode(0, &first).ok_or_else(|| self.damaged(0, WRONG_CHECKSUM))? {
            Slot::Live { tag, key, .. } if tag == *FILE_TAG => {
                let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key[..]), context);
                let mut derived = Zeroizing::new([0; 32]);
                derived.copy_from_slice(tag.as_ref());
                Ok(derived)
            }
            _ => Err(self.damaged(0, "this is not a file of data keys (bad first slot)")),
        }
    }

    fn read(&self, name: u32) -> Result<Option<Zeroizing<[u8; SLOT_BYTES]>>, DiskError> {
        let mut slot = Zeroizing::new([0; SLOT_BYTES]);
        match self.file.read_exact_at(&mut slot[..], slot_offset(name)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(at(&self.path)(error).into()),
            Ok(()) => Ok(Some(slot)),
        }
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<(), FileError> {
        self.file.write_all_at(bytes, offset).map_err(at(&self.path))
    }

    fn damaged(&self, slot: u32, found: &'static str) -> DiskError {
        DiskError::damaged(&self.path, format!("slot {slot}: {found}"))
    }
}

// === impl Slot ===

impl Slot {
    /// None if the slot is damaged.
    fn decode(name: u32, slot: &[u8; SLOT_BYTES]) -> Option<Self> {
        if slot.iter().all(|byte| *byte == 0) {
            return Some(Self::Free);
        }
        let expected = checksum(name, &slot[..CHECKSUM_AT]).to_le_bytes();
        if slot[CHECKSUM_AT..LAST_USE_AT] != expected {
            return None;
        }
        match slot[0] {
            LIVE => {
                let mut key = Zeroizing::new([0; 32]);
                key.copy_from_slice(&slot[KEY_AT..CHECKSUM_AT]);
                Some(Self::Live {
                    tag: slot[TAG_AT..KEY_AT].try_into().ok()?,
                    key,
                    last_use: last_use(name, slot).unwrap_or(UNKNOWN_USE),
                })
            }
            ERASED => Some(Self::Erased),
            _ => None,
        }
    }

    /// The key, ready to seal and to open, if it exists.
    pub(crate) fn expanded(&self) -> Option<LessSafeKey> {
        let Self::Live { key, .. } = self else { return None };
        Some(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key[..]).ok()?))
    }
}

fn tag_hasher(derived: &[u8; 32]) -> SipHasher24 {
    let mut short = Zeroizing::new([0; 16]);
    short.copy_from_slice(&derived[..16]);
    SipHasher24::new_with_key(&short)
}

fn tag_of(principal: PrincipalView<'_>, mut hasher: SipHasher24) -> Tag {
    hasher.write(&(principal.issuer.len() as u32).to_le_bytes());
    hasher.write(principal.issuer.as_bytes());
    if let Some(subject) = principal.subject {
        hasher.write(&[1]);
        hasher.write(subject.as_bytes());
    }
    hasher.finish128().as_bytes()
}

fn encode(name: u32, state: u8, tag: &Tag, key: &[u8; 32], last_use: u64) -> Zeroizing<[u8; SLOT_BYTES]> {
    let mut slot = Zeroizing::new([0; SLOT_BYTES]);
    slot[0] = state;
    slot[TAG_AT..KEY_AT].copy_from_slice(tag);
    slot[KEY_AT..CHECKSUM_AT].copy_from_slice(key);
    let checksum = checksum(name, &slot[..CHECKSUM_AT]).to_le_bytes();
    slot[CHECKSUM_AT..LAST_USE_AT].copy_from_slice(&checksum);
    slot[LAST_USE_AT..].copy_from_slice(&encode_use(name, last_use));
    slot
}

/// Separate from the key, which is not rewritten when it is only used.
fn encode_use(name: u32, last_use: u64) -> [u8; SLOT_BYTES - LAST_USE_AT] {
    let mut encoded = last_use.to_le_bytes();
    let checksum = checksum(name, &encoded[..6]).to_le_bytes();
    encoded[6..].copy_from_slice(&checksum[..2]);
    encoded
}

/// When the slot's key was last used, if the checksum matches.
fn last_use(name: u32, slot: &[u8; SLOT_BYTES]) -> Option<u64> {
    let mut last_use = [0; 8];
    last_use[..6].copy_from_slice(&slot[LAST_USE_AT..LAST_USE_AT + 6]);
    let last_use = u64::from_le_bytes(last_use);
    (slot[LAST_USE_AT..] == encode_use(name, last_use)).then_some(last_use)
}

fn checksum(name: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&name.to_le_bytes()), bytes)
}

fn random_key() -> io::Result<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    getrandom::fill(&mut key[..]).map_err(io::Error::other)?;
    Ok(key)
}

/// The offset of the key's slot.
pub(crate) fn slot_offset(name: u32) -> u64 {
    u64::from(name) * SLOT_BYTES as u64
}

const WRONG_CHECKSUM: &str = "the checksum does not match";
const SLOT_BYTES: usize = 64;
const TAG_AT: usize = 4;
const KEY_AT: usize = TAG_AT + 16;
const CHECKSUM_AT: usize = KEY_AT + 32;
const LAST_USE_AT: usize = CHECKSUM_AT + 4;
const FREE: u8 = 0;
const LIVE: u8 = 1;
const ERASED: u8 = 2;
const FILE_TAG: &Tag = b"credence keys v1";
const TAG_CONTEXT: &[u8] = b"credence ledger principal tag v1";
const INDEX_CONTEXT: &[u8] = b"credence ledger index v1";
/// Segments begin at multiples of this index.
pub(crate) const UNIT: u64 = 256;
/// Later than every held index, so that such a key is not destroyed as unused.
const UNKNOWN_USE: u64 = u64::MAX;
/// Expanded keys kept in memory, at about 600 bytes each.
const PREPARED_KEYS: usize = 8192;
const READ_AHEAD: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch {
        _folder: tempfile::TempDir,
        path: PathBuf,
    }

    fn scratch() -> Scratch {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        DataKeys::create(&path).unwrap();
        Scratch { _folder: folder, path }
    }

    impl Scratch {
        fn open(&self) -> DataKeys {
            DataKeys::open(&self.path, 100, |_| false).unwrap()
        }

        fn edit(&self, change: impl FnOnce(&mut Vec<u8>)) {
            let mut bytes = std::fs::read(&self.path).unwrap();
            change(&mut bytes);
            std::fs::write(&self.path, bytes).unwrap();
        }
    }

    fn principal(subject: &str) -> PrincipalView<'_> {
        PrincipalView {
            issuer: "https://id",
            subject: Some(subject),
        }
    }

    fn name(keys: &mut DataKeys, subject: &str, segment: u64) -> u32 {
        let name = keys.name_for(Some(principal(subject)), segment).unwrap();
        keys.sync().unwrap();
        name
    }

    #[test]
    fn after_a_failed_sync_keys_without_sealed_leaves_are_discarded() {
        let scratch = scratch();
        let mut keys = scratch.open();
        let (kept, erased) = (name(&mut keys, "kept", 256), name(&mut keys, "erased", 0));
        keys.erase(erased).unwrap();
        let lost = keys.name_for(Some(principal("lost")), 0).unwrap();
        keys.broken = true;
        assert!(keys.sync().is_err());
        // As if the kernel had dropped the written pages.
        scratch.edit(|bytes| bytes[SLOT_BYTES * lost as usize..].fill(0));
        keys.recover().unwrap();
        assert_eq!(keys.known_name(principal("lost")), None);
        let made_anew = name(&mut keys, "lost", 0);
        for keys in [keys, scratch.open()] {
            assert!(is_live(&keys, kept) && is_live(&keys, made_anew) && !is_live(&keys, erased));
            assert_eq!(keys.known_name(principal("lost")), Some(made_anew));
        }
    }

    fn is_live(keys: &DataKeys, name: u32) -> bool {
        keys.file.slot(name).unwrap().expanded().is_some()
    }

    #[test]
    fn every_principal_has_one_key_after_a_restart_too() {
        let scratch = scratch();
        let mut keys = scratch.open();
        assert_eq!(
            (
                name(&mut keys, "a", 0),
                name(&mut keys, "b", 0),
                name(&mut keys, "a", 0)
            ),
            (1, 2, 1)
        );
        assert_eq!(keys.name_for(None, 0).unwrap(), 0);
        let mut keys = scratch.open();
        assert_eq!((name(&mut keys, "b", 0), name(&mut keys, "c", 0)), (2, 3));
        assert!((0..4).all(|name| is_live(&keys, name)));
    }

    #[test]
    fn what_an_earlier_process_may_not_have_synced_is_written_again() {
        let scratch = scratch();
        name(&mut scratch.open(), "a", 0);
        let whole = std::fs::read(&scratch.path).unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        File::open(&scratch.path).unwrap().set_modified(long_ago).unwrap();
        scratch.open();
        assert_ne!(scratch.path.metadata().unwrap().modified().unwrap(), long_ago);
        assert_eq!(std::fs::read(&scratch.path).unwrap(), whole);
    }

    #[test]
    fn neither_a_name_nor_its_plain_hash_is_in_the_file() {
        let (one, other) = (scratch(), scratch());
        for scratch in [&one, &other] {
            name(&mut scratch.open(), "alice", 0);
        }
        let tags =
            [one, other].map(|scratch| std::fs::read(&scratch.path).unwrap()[SLOT_BYTES + TAG_AT..][..16].to_vec());
        assert_ne!(tags[0], tags[1]);
    }

    #[test]
    fn an_erased_key_is_gone_from_the_file_and_its_name_is_never_used_again() {
        let scratch = scratch();
        let mut keys = scratch.open();
        let before = name(&mut keys, "a", 0);
        let secret = std::fs::read(&scratch.path).unwrap()[SLOT_BYTES + TAG_AT..SLOT_BYTES + CHECKSUM_AT].to_vec();
        assert!(keys.erase(before).unwrap());
        assert!(!keys.erase(before).unwrap());
        let file = std::fs::read(&scratch.path).unwrap();
        assert!(
            !file
                .windows(16)
                .any(|window| secret.chunks(16).any(|part| part == window))
        );
        for mut keys in [keys, scratch.open()] {
            assert!(matches!(keys.file.slot(before).unwrap(), Slot::Erased));
            assert!(keys.key(before).is_err());
            assert_eq!(name(&mut keys, "a", 0), 2);
        }
    }

    #[test]
    fn a_key_is_destroyed_once_everything_sealed_with_it_is_pruned() {
        let scratch = scratch();
        let mut keys = scratch.open();
        for (subject, segment) in [("old", 0), ("new", 0), ("new", 512)] {
            name(&mut keys, subject, segment);
        }
        let mut keys = scratch.open();
        assert_eq!(keys.destroy_unused(512).unwrap(), 1);
        assert!(is_live(&keys, 0) && !is_live(&keys, 1) && is_live(&keys, 2));
        assert_eq!(keys.count(), 2);
        // The slot is used again: nothing is left that was sealed with the former key.
        assert_eq!(name(&mut keys, "another", 512), 1);
        assert_eq!(name(&mut scratch.open(), "another", 512), 1);
    }

    #[test]
    fn a_last_use_that_cannot_be_read_keeps_the_key() {
        let scratch = scratch();
        name(&mut scratch.open(), "a", 0);
        scratch.edit(|file| file[SLOT_BYTES + LAST_USE_AT] ^= 1);
        assert_eq!(scratch.open().destroy_unused(1 << 40).unwrap(), 0);
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let scratch = scratch();
        let mut keys = DataKeys::open(&scratch.path, 2, |_| false).unwrap();
        name(&mut keys, "a", 0);
        let refused = keys.name_for(Some(principal("b")), 0).unwrap_err();
        assert!(refused.to_string().contains("--ledger-keys"), "{refused}");
        assert_eq!(name(&mut keys, "a", 0), 1);
    }

    #[test]
    fn a_slot_that_a_crash_cut_short_anywhere_was_never_used() {
        let scratch = scratch();
        name(&mut scratch.open(), "a", 0);
        let whole = std::fs::read(&scratch.path).unwrap();
        name(&mut scratch.open(), "b", 0);
        let longer = std::fs::read(&scratch.path).unwrap();
        for length in whole.len()..longer.len() {
            for zeros in [false, true] {
                scratch.edit(|file| {
                    file.clone_from(&longer);
                    file.truncate(length);
                    if zeros {
                        file.resize(longer.len(), 0);
                    }
                });
                let mut keys = scratch.open();
                assert!(is_live(&keys, 1), "{length}");
                let next = name(&mut keys, "c", 0);
                assert!(is_live(&scratch.open(), next), "{length}");
            }
        }
    }

    #[test]
    fn a_missing_key_of_existing_evidence_is_an_error() {
        let scratch = scratch();
        let mut keys = scratch.open();
        assert!(keys.was_used(1, 0).is_err());
        name(&mut keys, "a", 0);
        keys.was_used(1, 0).unwrap();
        keys.erase(1).unwrap();
        keys.was_used(1, 0).unwrap();
        scratch.edit(|file| file[SLOT_BYTES] ^= 8);
        assert!(scratch.open().was_used(1, 0).is_err());
    }

    #[test]
    fn a_last_slot_that_cannot_be_read_is_free_only_if_no_record_was_sealed_with_its_key() {
        let scratch = scratch();
        name(&mut scratch.open(), "a", 0);
        for byte in 0..LAST_USE_AT {
            scratch.edit(|file| file[SLOT_BYTES + byte] ^= 1);
            let before = std::fs::read(&scratch.path).unwrap();
            let error = DataKeys::open(&scratch.path, 100, |name| name == 1).err().unwrap();
            assert!(error.to_string().contains("slot 1"), "byte {byte}: {error}");
            assert_eq!(std::fs::read(&scratch.path).unwrap(), before);
            let mut keys = DataKeys::open(&scratch.path, 100, |name| name != 1).unwrap();
            assert_eq!(name(&mut keys, "b", 0), 1, "byte {byte}");
        }
    }

    #[test]
    fn an_unreadable_key_that_is_followed_by_another_is_damage() {
        let scratch = scratch();
        let mut keys = scratch.open();
        name(&mut keys, "a", 0);
        name(&mut keys, "b", 0);
        for byte in 0..LAST_USE_AT {
            scratch.edit(|file| file[SLOT_BYTES + byte] ^= 1);
            let error = DataKeys::open(&scratch.path, 100, |_| false).err().unwrap();
            assert!(error.to_string().contains("slot 1"), "byte {byte}: {error}");
            scratch.edit(|file| file[SLOT_BYTES + byte] ^= 1);
        }
    }
}
