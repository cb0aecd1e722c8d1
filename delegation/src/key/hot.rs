//! Hot keys: keys that verify signatures often.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use credence_key_tables::{Ed25519Table, P256Table};
use p256::ecdsa::Signature;
use sha2::{Digest as _, Sha256};

use super::{KeyError, Point, PublicKey, Thumbprint};

/// Counts the verifications of each Ed25519 and each P-256 key, and keeps a table for each hot one. With a table, a
/// signature costs a third in Wasm; natively, where Ed25519's library has vector instructions, the gain is small. Also
/// caches the decoded keys of tokens, since many tokens have the same key. The answers are the same with and without.
///
/// A table costs as much as several signatures, so no request computes one to keep: [`HotKeys::prepare`] computes the
/// tables of the keys that have become hot. Only valid signatures count, so only the holder of a key can make it hot.
pub struct HotKeys {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tables: HashMap<Thumbprint, Slot>,
    /// The number of verified signatures of keys without a table.
    uses: HashMap<Thumbprint, u32>,
    /// Keys that have become hot.
    waiting: Vec<PublicKey>,
    /// Keys by their encodings.
    decoded: HashMap<[u8; 32], PublicKey>,
}

struct Slot {
    table: Arc<Table>,
    /// Whether it was used since the last eviction.
    is_used: bool,
}

enum Table {
    Ed25519(Ed25519Table),
    P256(Box<P256Table>),
}

impl HotKeys {
    /// Keeps tables for at most `limit` keys; 0 keeps neither tables nor decoded keys.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            state: Mutex::default(),
        }
    }

    /// Computes the tables of at most `most` keys that have become hot. Call it outside of requests: in Wasm each takes
    /// as long as about twelve verifications of Ed25519, or two of P-256. The first takes four times as long, since it
    /// includes the base point's table, and longer still while V8 has not optimised the code.
    pub fn prepare(&self, most: usize) {
        for _ in 0..most {
            let mut state = self.state();
            let Some(key) = state.waiting.pop() else { return };
            if state.make_room(self.limit)
                && let Some(table) = Table::of(&key)
            {
                let table = Arc::new(table);
                state.tables.insert(key.thumbprint, Slot { table, is_used: true });
            }
        }
    }

    /// As [`PublicKey::from_ed25519`].
    pub(crate) fn decode(&self, bytes: &[u8; 32]) -> Result<PublicKey, KeyError> {
        if let Some(key) = self.state().decoded.get(bytes) {
            return Ok(key.clone());
        }
        let key = PublicKey::from_ed25519(bytes)?;
        let most = self.limit.saturating_mul(REMEMBERED_PER_TABLE);
        if most > 0 {
            let mut state = self.state();
            if state.decoded.len() >= most {
                state.decoded.clear();
            }
            state.decoded.insert(*bytes, key.clone());
        }
        Ok(key)
    }

    /// How many keys have a table.
    pub fn len(&self) -> usize {
        self.state().tables.len()
    }

    /// Whether no key has a table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As [`PublicKey::verifies`].
    pub(crate) fn verifies(&self, key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
        let table = self.state().table(&key.thumbprint);
        match table {
            Some(table) => table.verifies(message, signature),
            None => {
                let verifies = key.verifies(message, signature);
                if verifies && self.limit > 0 && matches!(key.point, Point::Ed25519(_) | Point::P256(_)) {
                    self.state().count(key, self.limit);
                }
                verifies
            }
        }
    }

    /// The state is never left half-changed, so a panic elsewhere does not corrupt it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn of(key: &PublicKey) -> Option<Self> {
        match &key.point {
            Point::Ed25519(key) => Ed25519Table::new(key).map(Self::Ed25519),
            Point::P256(key) => Some(Self::P256(P256Table::new(key.as_library()).into())),
            Point::Secp256k1(_) | Point::Rsa(_) => None,
        }
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Ed25519(table) => table.verify_strict(message, signature),
            Self::P256(table) => Signature::from_slice(signature)
                .is_ok_and(|signature| table.verify(&Sha256::digest(message).into(), &signature)),
        }
    }
}

impl State {
    fn table(&mut self, thumbprint: &Thumbprint) -> Option<Arc<Table>> {
        let slot = self.tables.get_mut(thumbprint)?;
        slot.is_used = true;
        Some(Arc::clone(&slot.table))
    }

    fn count(&mut self, key: &PublicKey, limit: usize) {
        // Counters of keys that never become hot are dropped together, before they are too many.
        let most = limit.saturating_mul(REMEMBERED_PER_TABLE);
        if self.uses.len() >= most && !self.uses.contains_key(&key.thumbprint) {
            self.uses.clear();
        }
        let uses = self.uses.entry(key.thumbprint).or_default();
        *uses = uses.saturating_add(1);
        if *uses >= HOT_AFTER {
            self.uses.remove(&key.thumbprint);
            if self.waiting.len() < limit && !self.waiting.contains(key) {
                self.waiting.push(key.clone());
            }
        }
    }

    /// Whether there is room for one more table. Evicts a table that was not used since the last eviction.
    fn make_room(&mut self, limit: usize) -> bool {
        if self.tables.len() >= limit {
            let idle = self.tables.iter().find(|(_, slot)| !slot.is_used);
            if let Some(thumbprint) = idle.map(|(thumbprint, _)| *thumbprint) {
                self.tables.remove(&thumbprint);
            }
            for slot in self.tables.values_mut() {
                slot.is_used = false;
            }
        }
        self.tables.len() < limit
    }
}

impl fmt::Debug for HotKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "HotKeys({} of {})", self.len(), self.limit)
    }
}

/// Signatures that a key verifies before it is hot. Its table pays off after a few more, with Ed25519 about seventeen,
/// which such a key is likely to verify.
const HOT_AFTER: u32 = 8;

/// Counters, and decoded keys, for each possible table.
const REMEMBERED_PER_TABLE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyType, SigningKey};

    fn key(number: u8) -> SigningKey {
        SigningKey::from_seed(&[number; 32])
    }

    /// Verifies signatures of the key until it is hot, if it can be.
    fn heat(hot: &HotKeys, key: &SigningKey) {
        for message in 0..HOT_AFTER {
            let message = message.to_le_bytes();
            assert!(hot.verifies(&key.public(), &message, &key.sign(&message)));
        }
    }

    #[test]
    fn a_key_gets_its_table_once_it_is_hot_and_there_is_time() {
        let hot = HotKeys::new(4);
        heat(&hot, &key(1));
        assert!(hot.is_empty());
        hot.prepare(1);
        assert_eq!(hot.len(), 1);
        let signature = key(1).sign(b"message");
        assert!(hot.verifies(&key(1).public(), b"message", &signature));
        assert!(!hot.verifies(&key(1).public(), b"massage", &signature));
        assert!(!hot.verifies(&key(2).public(), b"message", &signature));
    }

    #[test]
    fn invalid_signatures_make_no_key_hot() {
        let hot = HotKeys::new(4);
        for _ in 0..2 * HOT_AFTER {
            assert!(!hot.verifies(&key(1).public(), b"message", &[7; 64]));
        }
        hot.prepare(9);
        assert!(hot.is_empty());
    }

    #[test]
    fn only_ed25519_and_p256_keys_get_a_table() {
        for (kind, tables) in [(KeyType::Ed25519, 1), (KeyType::P256, 1), (KeyType::Secp256k1, 0)] {
            let hot = HotKeys::new(4);
            heat(&hot, &SigningKey::from_secret(kind, &[3; 32]).unwrap());
            hot.prepare(9);
            assert_eq!(hot.len(), tables, "{kind}");
        }
    }

    #[test]
    fn tables_are_limited_and_keys_in_use_keep_theirs() {
        let hot = HotKeys::new(2);
        for number in 1..=2 {
            heat(&hot, &key(number));
            hot.prepare(9);
        }
        // Both have been used since their creation: the third waits until one was not.
        heat(&hot, &key(3));
        hot.prepare(9);
        assert_eq!((hot.len(), has(&hot, 1), has(&hot, 2)), (2, true, true));
        heat(&hot, &key(2));
        heat(&hot, &key(3));
        hot.prepare(9);
        assert_eq!(
            (hot.len(), has(&hot, 1), has(&hot, 2), has(&hot, 3)),
            (2, false, true, true)
        );
    }

    #[test]
    fn a_key_is_decoded_once_and_an_invalid_one_is_never_cached() {
        let hot = HotKeys::new(1);
        let bytes = ed25519(&key(1));
        for _ in 0..2 {
            assert_eq!(hot.decode(&bytes).unwrap(), key(1).public());
            assert_eq!(
                hot.decode(&[2; 32]).unwrap_err(),
                PublicKey::from_ed25519(&[2; 32]).unwrap_err()
            );
        }
        assert_eq!(hot.state().decoded.len(), 1);
        for number in 0..100 {
            hot.decode(&ed25519(&key(number))).unwrap();
            assert!(hot.state().decoded.len() <= REMEMBERED_PER_TABLE);
        }
        let none = HotKeys::new(0);
        assert_eq!(none.decode(&bytes).unwrap(), key(1).public());
        assert!(none.state().decoded.is_empty());
    }

    fn ed25519(key: &SigningKey) -> [u8; 32] {
        match key.public().point {
            Point::Ed25519(point) => point.to_bytes(),
            Point::P256(_) | Point::Secp256k1(_) | Point::Rsa(_) => panic!("of another kind"),
        }
    }

    #[test]
    fn rarely_used_keys_are_forgotten() {
        let hot = HotKeys::new(1);
        for number in 0..200 {
            let key = key(number);
            assert!(hot.verifies(&key.public(), b"", &key.sign(b"")));
            assert!(hot.state().uses.len() <= REMEMBERED_PER_TABLE);
        }
        let none = HotKeys::new(0);
        heat(&none, &key(1));
        none.prepare(9);
        assert!(none.is_empty() && none.state().uses.is_empty());
    }

    #[test]
    fn answers_are_the_same_without_tables() {
        for key in [key(1), SigningKey::from_secret(KeyType::P256, &[3; 32]).unwrap()] {
            let (with, without) = (HotKeys::new(4), HotKeys::new(0));
            for number in 0..4 * HOT_AFTER {
                let message = number.to_le_bytes();
                let mut signature = key.sign(&message);
                if number % 3 == 2 {
                    signature[number as usize] ^= 1;
                }
                let expected = number % 3 != 2;
                for hot in [&with, &without] {
                    assert_eq!(hot.verifies(&key.public(), &message, &signature), expected);
                    assert!(!hot.verifies(&key.public(), &message, &signature[1..]));
                    hot.prepare(1);
                }
            }
            assert_eq!((with.len(), without.len()), (1, 0));
        }
    }

    fn has(hot: &HotKeys, number: u8) -> bool {
        hot.state().tables.contains_key(&key(number).public().thumbprint())
    }
}
