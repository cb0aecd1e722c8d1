//! The digest chain over the log's history. It distinguishes a continued log from one restored from an old copy.

use sha2::{Digest as _, Sha256};

use crate::log_id::LogId;

/// `digest(0) = SHA-256(log_id)`, `digest(n) = SHA-256(digest(n-1) || encoded record n)`; see revocation.proto.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest([u8; 32]);

/// A position of the log: the number of its last record, and the digest of the history up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) seq: u64,
    pub(crate) digest: Digest,
}

// === impl Digest ===

impl Digest {
    /// The digest before the first record.
    pub(crate) fn start(log_id: &LogId) -> Self {
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

    /// The digest with which a restored log continues under a new name: no position of the old name is valid under the
    /// new one.
    pub(crate) fn renamed(self, log_id: &LogId) -> Self {
        Self::start(log_id).after(&self.0)
    }

    /// Parses the stored form, which is also the wire form.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Eight bytes that identify it well enough.
    pub(crate) fn mark(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
