//! P-256 keys, optionally with a table.

use std::sync::{Arc, OnceLock};

use credence_key_tables::P256Table;
use p256::ecdsa::{Signature, VerifyingKey};

/// A key that may have a table.
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

    /// Enables the key's table.
    pub(super) fn prepare(&mut self) {
        self.table.get_or_insert_default();
    }

    pub(super) fn as_library(&self) -> &VerifyingKey {
        &self.key
    }

    /// Whether this key made `signature` over a message with this digest.
    pub(super) fn verifies(&self, digest: &[u8; 32], signature: &Signature) -> bool {
        match &self.table {
            Some(table) => table
                .get_or_init(|| P256Table::new(&self.key))
                .verify(digest, signature),
            // In Wasm, even a table for one signature costs less than the library's arithmetic.
            None => P256Table::new(&self.key).verify(digest, signature),
        }
    }
}

/// The table is ignored.
impl PartialEq for P256Key {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for P256Key {}
