//! The memory of used proofs: within one Envoy process, a proof counts once (draft section 8, step 7i).
//!
//! It is in proxy-wasm shared data, which all workers of the process share and which outlives a VM. Shared data can
//! never free a key, so the keys are a fixed set of buckets. A holder's proofs use only that holder's group of buckets,
//! so a holder cannot fill the memory of holders in other groups.

use std::hash::Hasher;

use credence_delegation::{Thumbprint, UnixTime};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::decision::Reason;
use crate::shared_store::{SharedStore, StoreFailure};

/// Access to the process's memory of used proofs.
#[derive(Debug, Clone)]
pub struct ReplayMemory {
    secret: [u8; 16],
    /// When the memory was created. It does not know which proofs were used before.
    born: UnixTime,
    /// Seconds that a holder's clock may be ahead.
    skew: u64,
}

/// A proof that passed every other check.
#[derive(Debug, Clone, Copy)]
pub struct UsedProof<'a> {
    /// The key that signed it.
    pub holder: &'a Thumbprint,
    /// Its `jti`.
    pub id: &'a str,
    /// Its `iat`.
    pub issued_at: UnixTime,
    /// Whether it has a nonce of this process, so that it cannot be older than the memory.
    pub has_nonce: bool,
}

impl ReplayMemory {
    /// Opens the process's memory, or creates it with `secret`, which must be random.
    ///
    /// # Errors
    /// If the host fails, or the stored data is not this memory.
    pub fn join(
        store: &mut impl SharedStore,
        secret: [u8; 16],
        now: UnixTime,
        skew: u64,
    ) -> Result<Self, StoreFailure> {
        let mut founding = secret.to_vec();
        founding.extend_from_slice(&now.0.to_le_bytes());
        store.write(FOUNDING_KEY, &founding, None)?;
        // Another worker may have been first: all workers use the stored secret.
        let (stored, _) = store.read(FOUNDING_KEY)?.ok_or(StoreFailure)?;
        let (secret, born) = stored.split_first_chunk::<16>().ok_or(StoreFailure)?;
        let born = UnixTime(i64::from_le_bytes(born.try_into().map_err(|_| StoreFailure)?));
        Ok(Self {
            secret: *secret,
            born,
            skew,
        })
    }

    /// A secret that all workers of the process share, and that ends with it.
    pub fn secret(&self) -> &[u8; 16] {
        &self.secret
    }

    /// Remembers a proof, or returns why it does not count.
    ///
    /// # Errors
    /// Why the proof does not count.
    pub fn remember(&self, store: &mut impl SharedStore, proof: &UsedProof<'_>, now: UnixTime) -> Result<(), Reason> {
        // A holder whose clock is ahead by the skew may have used a proof with this time before the memory was created.
        if !proof.has_nonce && proof.issued_at <= self.born.plus(self.skew) {
            return Err(Reason::ProofPredatesMemory);
        }
        let (key, record) = self.place(proof);
        for _ in 0..ATTEMPTS {
            let (bucket, version) = match store.read(&key).map_err(|_| Reason::HostFailure)? {
                Some((bucket, version)) => (bucket, Some(version)),
                None => (Vec::new(), None),
            };
            let bucket = updated(&bucket, &record, now)?;
            if store.write(&key, &bucket, version).map_err(|_| Reason::HostFailure)? {
                return Ok(());
            }
        }
        Err(Reason::ReplayMemoryFull)
    }

    /// The bucket of a proof, and its record.
    fn place(&self, proof: &UsedProof<'_>) -> (String, Record) {
        let mut holder = SipHasher24::new_with_key(&self.secret);
        holder.write(proof.holder.as_bytes());
        let group = holder.finish128().h1 % GROUPS;

        // Without the audience: a holder uses no id twice, for any audience (draft section 7.2).
        let mut whole = SipHasher24::new_with_key(&self.secret);
        whole.write(proof.holder.as_bytes());
        whole.write(proof.id.as_bytes());
        let hash = whole.finish128();
        let bucket = hash.h1 % BUCKETS_PER_GROUP;

        let last_second = proof.issued_at.plus(MAX_PROOF_WINDOW).0;
        let record = Record {
            tag: hash.h2,
            last_second: u32::try_from(last_second).unwrap_or(u32::MAX),
        };
        (format!("{BUCKET_PREFIX}/{group}/{bucket}"), record)
    }
}

/// One used proof in a bucket: 12 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    /// 64 bits of a keyed hash of holder and `jti`. If two proofs of one bucket have the same tag (a chance of 2^-58 in
    /// a full one), the second counts as used.
    tag: u64,
    /// The last Unix second in which any configuration accepts the proof.
    last_second: u32,
}

impl Record {
    const BYTES: usize = 12;

    fn read(bytes: &[u8; Self::BYTES]) -> Self {
        let (tag, last_second) = bytes.split_at(8);
        Self {
            tag: tag.try_into().map(u64::from_le_bytes).unwrap_or_default(),
            last_second: last_second.try_into().map(u32::from_le_bytes).unwrap_or_default(),
        }
    }

    fn append_to(&self, bucket: &mut Vec<u8>) {
        bucket.extend_from_slice(&self.tag.to_le_bytes());
        bucket.extend_from_slice(&self.last_second.to_le_bytes());
    }
}

/// The bucket without expired records, and with the new record.
fn updated(bucket: &[u8], new: &Record, now: UnixTime) -> Result<Vec<u8>, Reason> {
    let (records, rest) = bucket.as_chunks::<{ Record::BYTES }>();
    if !rest.is_empty() {
        return Err(Reason::HostFailure);
    }
    let mut kept = Vec::with_capacity(bucket.len().saturating_add(Record::BYTES));
    for record in records.iter().map(Record::read) {
        if i64::from(record.last_second) < now.0 {
            continue;
        }
        if record.tag == new.tag {
            return Err(Reason::ProofReplayed);
        }
        record.append_to(&mut kept);
    }
    if kept.len() >= RECORDS_PER_BUCKET * Record::BYTES {
        return Err(Reason::ReplayMemoryFull);
    }
    new.append_to(&mut kept);
    Ok(kept)
}

const FOUNDING_KEY: &str = "credence/replay/founding/1";
const BUCKET_PREFIX: &str = "credence/replay/1";

/// The longest configurable proof window, in seconds. Every proof is remembered this long, for any window of its own
/// configuration, because the configurations of a process share the memory and may differ.
pub const MAX_PROOF_WINDOW: u64 = 60;

/// A holder has 1024 buckets of 64 proofs. The first bucket is full after about 45,000 proofs within a minute, 750 a
/// second, because chance fills buckets unevenly. All 64 groups, if full, take 50 MB of the Envoy process.
const GROUPS: u64 = 64;
const BUCKETS_PER_GROUP: u64 = 1024;
const RECORDS_PER_BUCKET: usize = 64;

/// How often a write to a bucket is retried after a concurrent change.
const ATTEMPTS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{self, Store};

    const BORN: UnixTime = UnixTime(1_000);
    const NOW: UnixTime = UnixTime(1_100);

    fn memory(store: &mut Store) -> ReplayMemory {
        ReplayMemory::join(store, [1; 16], BORN, 5).unwrap()
    }

    fn remember(
        memory: &ReplayMemory,
        store: &mut Store,
        id: &str,
        iat: UnixTime,
        now: UnixTime,
    ) -> Result<(), Reason> {
        let holder = samples::key(3).public().thumbprint();
        let proof = UsedProof {
            holder: &holder,
            id,
            issued_at: iat,
            has_nonce: false,
        };
        memory.remember(store, &proof, now)
    }

    #[test]
    fn a_proof_counts_once_in_every_worker() {
        let store = &mut Store::default();
        let one = memory(store);
        // Another worker has another secret and comes later; it uses the stored one.
        let other = ReplayMemory::join(store, [2; 16], UnixTime(1_050), 5).unwrap();
        assert_eq!(remember(&one, store, "p", NOW, NOW), Ok(()));
        assert_eq!(remember(&other, store, "p", NOW, NOW), Err(Reason::ProofReplayed));
        assert_eq!(remember(&other, store, "q", NOW, NOW), Ok(()));
    }

    #[test]
    fn is_remembered_until_the_last_second_of_its_window() {
        let store = &mut Store::default();
        let memory = memory(store);
        remember(&memory, store, "p", NOW, NOW).unwrap();
        assert_eq!(
            remember(&memory, store, "p", NOW, NOW.plus(60)),
            Err(Reason::ProofReplayed)
        );
        assert_eq!(
            remember(&memory, store, "p", NOW, NOW.plus(61)),
            Ok(()),
            "after that, its iat denies it"
        );
    }

    #[test]
    fn a_proof_that_may_predate_the_memory_is_refused() {
        let store = &mut Store::default();
        let memory = memory(store);
        assert_eq!(
            remember(&memory, store, "p", BORN.plus(5), NOW),
            Err(Reason::ProofPredatesMemory)
        );
        assert_eq!(remember(&memory, store, "p", BORN.plus(6), NOW), Ok(()));
    }

    #[test]
    fn a_nonce_of_the_process_proves_that_a_proof_is_younger() {
        let store = &mut Store::default();
        let memory = memory(store);
        let holder = samples::key(3).public().thumbprint();
        let proof = UsedProof {
            holder: &holder,
            id: "p",
            issued_at: BORN.plus(1),
            has_nonce: true,
        };
        assert_eq!(memory.remember(store, &proof, BORN.plus(1)), Ok(()));
        assert_eq!(memory.remember(store, &proof, BORN.plus(2)), Err(Reason::ProofReplayed));
    }

    #[test]
    fn a_full_bucket_denies_and_empties_with_time() {
        let record = |tag| Record {
            tag,
            last_second: 1_130,
        };
        let mut bucket = Vec::new();
        for tag in 0..64 {
            bucket = updated(&bucket, &record(tag), NOW).unwrap();
        }
        assert_eq!(updated(&bucket, &record(64), NOW), Err(Reason::ReplayMemoryFull));
        assert_eq!(
            updated(&bucket, &record(64), UnixTime(1_131)).unwrap().len(),
            Record::BYTES
        );
    }

    #[test]
    fn a_holder_uses_only_its_own_group_of_buckets() {
        let memory = memory(&mut Store::default());
        let group_of = |holder: &Thumbprint, id: &str| {
            let proof = UsedProof {
                holder,
                id,
                issued_at: NOW,
                has_nonce: false,
            };
            let (key, _) = memory.place(&proof);
            let (group, _) = key.rsplit_once('/').unwrap();
            group.to_owned()
        };
        let holder = |number| samples::key(number).public().thumbprint();
        let one = holder(3);
        let own = group_of(&one, "0");
        assert!((1..2_000).all(|id| group_of(&one, &id.to_string()) == own));
        assert!((4..16).any(|other| group_of(&holder(other), "0") != own));
    }

    #[test]
    fn a_lost_race_is_retried_and_then_denies() {
        let store = &mut Store::default();
        let memory = memory(store);
        store.lose_next_writes = ATTEMPTS - 1;
        assert_eq!(remember(&memory, store, "p", NOW, NOW), Ok(()));
        store.lose_next_writes = ATTEMPTS;
        assert_eq!(remember(&memory, store, "q", NOW, NOW), Err(Reason::ReplayMemoryFull));
    }

    #[test]
    fn foreign_data_in_the_store_denies() {
        let store = &mut Store::default();
        store.write(FOUNDING_KEY, b"short", None).unwrap();
        assert!(ReplayMemory::join(store, [1; 16], BORN, 5).is_err());
        assert_eq!(
            updated(&[0; 13], &Record { tag: 1, last_second: 9 }, NOW),
            Err(Reason::HostFailure)
        );
    }
}
