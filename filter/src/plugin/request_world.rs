//! The engine's view of the host, for one request.

use credence_decision::audit::Ring;
use credence_decision::clock::UnixNanos;
use credence_decision::engine::World;
use credence_decision::revocation::{Freshness, SealKeys, View, Watch};
use credence_decision::shared_store::{SharedStore, StoreFailure, Version};
use credence_decision::usage_sketch::UserKey;
use credence_delegation::revocation::RevocationView;

use crate::host::Host;

/// The state of the host when a request arrives.
pub(super) struct RequestWorld<'a, H> {
    pub(super) host: H,
    pub(super) now: UnixNanos,
    pub(super) freshness: Freshness,
    pub(super) watch: &'a Watch,
    /// The ring, if a full ring denies requests.
    pub(super) must_record_in: Option<&'a Ring>,
}

impl<H: Host> World for RequestWorld<'_, H> {
    fn now(&self) -> UnixNanos {
        self.now
    }

    fn freshness(&self) -> Freshness {
        self.freshness
    }

    fn revocations(&self) -> Option<(&impl RevocationView, u64)> {
        self.watch.view().map(|view| (view, view.revision()))
    }

    fn keys_revision(&self) -> Option<u64> {
        self.watch.view().map(View::keys_revision)
    }

    fn cache_keys(&self) -> Option<&SealKeys> {
        self.watch.cache_keys()
    }

    fn session_keys(&self) -> Option<&SealKeys> {
        self.watch.session_keys()
    }

    fn client_certificate(&self) -> Option<[u8; 32]> {
        let digest = self
            .host
            .property(&["connection", "sha256_peer_certificate_digest"])
            .ok()??;
        base16ct::mixed::decode_vec(digest).ok()?.try_into().ok()
    }

    fn client_uri(&self) -> Option<Vec<u8>> {
        // Envoy reports only the first of several URIs. docs/reference/configuration.md says what that requires of the
        // authority.
        self.host.property(&["connection", "uri_san_peer_certificate"]).ok()?
    }

    fn cluster(&self) -> Option<Vec<u8>> {
        self.host.property(&["xds", "cluster_name"]).ok()?
    }

    fn can_record(&self, principal: Option<UserKey>) -> bool {
        self.must_record_in
            .is_none_or(|ring| ring.has_room_for_event(principal))
    }
}

impl<H: Host> SharedStore for RequestWorld<'_, H> {
    fn read(&mut self, key: &str) -> Result<Option<(Vec<u8>, Version)>, StoreFailure> {
        self.host.read(key)
    }

    fn write(&mut self, key: &str, value: &[u8], expected: Option<Version>) -> Result<bool, StoreFailure> {
        self.host.write(key, value, expected)
    }
}
