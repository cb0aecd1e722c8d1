//! The trust anchors that count now: those of the configuration, with the keys that the control plane has fetched.

use credence_delegation::revocation::RevocationView;
use credence_delegation::{IssuerKeys, TrustAnchors, UnixTime};

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
        let issuers = anchors.fetched().iter();
        let ends = issuers
            .filter_map(|fetched| of(&fetched.issuer))
            .map(IssuerKeys::trusted_until);
        self.until = ends.min().unwrap_or(UnixTime(i64::MAX));
        self.revision = revision;
        let differ = anchors != self.anchors;
        if differ {
            self.anchors = anchors;
        }
        differ
    }
}
