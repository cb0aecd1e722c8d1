//! The chain over the log's history that tells a continued log from one restored from an old copy.

use sha2::{Digest as _, Sha256};

use crate::data_folder::LogId;

/// `digest(0) = SHA-256(log_id)`, `digest(n) = SHA-256(digest(n-1) || encoded record n)`; see revocation.proto.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 32]);

// === impl Digest ===

impl Digest {
    /// The digest before the first record.
    pub fn start(log_id: &LogId) -> Self {
        Self(Sha256::digest(log_id.as_str()).into())
    }

    /// The digest after one more record.
    pub(crate) fn after(self, encoded_record: &[u8]) -> Self {
        Self(
            Sha256::new()
                .chain_update(self.0)
                .chain_update(encoded_record)
                .finalize()
                .into(),
        )
    }

    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Eight bytes that tell it from any other it could be mistaken for.
    pub(crate) fn mark(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
