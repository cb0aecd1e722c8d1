//! The trust anchors that count now: those of the configuration, with the keys that the control plane has fetched.

use credence_delegation::revocation::RevocationView;
use credence_delegation::{TrustAnchor, TrustAnchors, UnixTime};

use super::world::World;

/// The trust anchors that count now.
#[derive(Debug)]
pub(super) struct Trust {
    anchors: TrustAnchors,
    /// The revision of the view's keys that they have; none before the first ones.
    revision: Option<u64>,
    /// When one of the fetched keys stops counting.
    until: UnixTime,
}

impl Trust {
    /// The configured anchors, without fetched keys.
    pub(super) fn new(configured: &TrustAnchors) -> Self {
        Self {
            anchors: configured.clone(),
            revision: None,
            until: UnixTime(i64::MAX),
        }
    }

    /// The anchors.
    pub(super) fn anchors(&self) -> &TrustAnchors {
        &self.anchors
    }

    /// Takes over the keys of the revocation view, if they have changed. Returns whether the anchors differ now.
    pub(super) fn follow(&mut self, now: UnixTime, world: &impl World) -> bool {
        if self.anchors.fetched().is_empty() {
            return false;
        }
        let revision = world.keys_revision();
        if self.revision == revision && now < self.until {
            return false;
        }
        let Some((view, _)) = world.revocations() else {
            return false;
        };
        self.refresh(now, revision, view)
    }

    #[inline(never)]
    fn refresh(&mut self, now: UnixTime, revision: Option<u64>, view: &impl RevocationView) -> bool {
        let of = |issuer: &str| view.issuer_keys(issuer).filter(|keys| keys.trusted_until() > now);
        let anchors = self.anchors.with_keys(of);
        self.until = UnixTime(i64::MAX);
        for keys in anchors.fetched().iter().filter_map(|fetched| of(&fetched.issuer)) {
            self.until = self.until.min(keys.trusted_until());
        }
        self.revision = revision;
        let names = |anchor: &TrustAnchor| (anchor.issuer.clone(), anchor.key.thumbprint(), anchor.key_id.clone());
        let differ = !anchors.iter().map(names).eq(self.anchors.iter().map(names));
        if differ {
            self.anchors = anchors;
        }
        differ
    }
}
