//! The inputs of a decision from its environment.

use credence_delegation::revocation::RevocationView;

use crate::clock::UnixNanos;
use crate::revocation::{Freshness, SealKeys};
use crate::shared_store::SharedStore;
use crate::usage_sketch::UserKey;

/// The inputs of a decision: time, the revocation view, and the host's shared data.
pub trait World: SharedStore {
    /// The wall clock.
    fn now(&self) -> UnixNanos;
    /// How fresh the revocation view is.
    fn freshness(&self) -> Freshness;
    /// The revocation view, and its revision, which increases with every change. `None` before the first snapshot.
    fn revocations(&self) -> Option<(&impl RevocationView, u64)>;
    /// The revision of the revocation view at which the keys of issuers last changed.
    fn keys_revision(&self) -> Option<u64> {
        None
    }
    /// The keys that seal this node's shared entries; `None` if the control plane has sent none.
    fn cache_keys(&self) -> Option<&SealKeys>;
    /// The keys that seal the ids of MCP sessions; `None` if the control plane has sent none.
    fn session_keys(&self) -> Option<&SealKeys> {
        None
    }
    /// SHA-256 of the client's certificate, if there is one.
    fn client_certificate(&self) -> Option<[u8; 32]>;
    /// The URI in the subject alternative names of the client's certificate, if it has one.
    fn client_uri(&self) -> Option<Vec<u8>>;
    /// The cluster to which Envoy sends the request, if known.
    fn cluster(&self) -> Option<Vec<u8>>;
    /// Whether a decision about this principal's grant can be recorded, or need not be; `None` while the principal is
    /// unknown.
    fn can_record(&self, principal: Option<UserKey>) -> bool;
}

/// The revision of the revocation view, if there is one yet.
pub(super) fn revision_of(world: &impl World) -> Option<u64> {
    world.revocations().map(|(_, revision)| revision)
}
