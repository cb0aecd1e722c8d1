//! What a decision needs of the world around it.

use credence_delegation::revocation::RevocationView;

use crate::clock::UnixNanos;
use crate::revocation::{CacheKeys, Freshness};
use crate::shared_store::SharedStore;
use crate::usage_sketch::UserKey;

/// What a decision needs of the world: time, the revocation view, and what the host keeps.
pub trait World: SharedStore {
    /// The wall clock.
    fn now(&self) -> UnixNanos;
    /// How sure we may be of the revocation view.
    fn freshness(&self) -> Freshness;
    /// The revocation view, and the revision that moves whenever it changes. `None` before the first snapshot.
    fn revocations(&self) -> Option<(&impl RevocationView, u64)>;
    /// What the workers of this node seal with what they share; `None` if the control plane has given out no keys.
    fn cache_keys(&self) -> Option<&CacheKeys>;
    /// SHA-256 of the client's certificate, if the connection shows one.
    fn client_certificate(&self) -> Option<[u8; 32]>;
    /// The URI that the client's certificate names its subject by, if it has one.
    fn client_uri(&self) -> Option<Vec<u8>>;
    /// The cluster that Envoy sends the request to, if it can tell.
    fn cluster(&self) -> Option<Vec<u8>>;
    /// Whether a decision about what this principal granted can be recorded, or may go unrecorded; `None` while it is not
    /// known whose it is.
    fn can_record(&self, principal: Option<UserKey>) -> bool;
}

/// The revision of the revocation view, if there is one yet.
pub(super) fn revision_of(world: &impl World) -> Option<u64> {
    world.revocations().map(|(_, revision)| revision)
}
