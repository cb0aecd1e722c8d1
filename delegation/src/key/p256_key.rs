//! P-256 keys, some of which keep a table.

use std::sync::{Arc, OnceLock};

use credence_key_tables::P256Table;
use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use p256::ecdsa::{Signature, VerifyingKey};

/// A key that may keep a table.
#[derive(Clone)]
pub(super) struct P256Key {
    key: VerifyingKey,
    /// Computed with the first signature.
    table: Option<Arc<OnceLock<P256Table>>>,
}

impl P256Key {
    pub(super) fn new(key: VerifyingKey) -> Self {
        Self { key, table: None }
    }

    /// Has the key keep a table.
    pub(super) fn prepare(&mut self) {
        self.table.get_or_insert_default();
    }

    pub(super) fn as_library(&self) -> &VerifyingKey {
        &self.key
    }

    /// Whether `signature` is this key's over a message with this digest.
    pub(super) fn verifies(&self, digest: &[u8; 32], signature: &Signature) -> bool {
        match &self.table {
            Some(table) => table
                .get_or_init(|| P256Table::new(&self.key))
                .verify(digest, signature),
            // Of s and -s, the library may accept the low one alone.
            None => self.key.verify_prehash(digest, &signature.normalize_s()).is_ok(),
        }
    }
}

/// The table does not count.
impl PartialEq for P256Key {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for P256Key {}
