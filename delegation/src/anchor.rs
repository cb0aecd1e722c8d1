//! Trust anchors: who may sign root tokens.

use crate::key::{Algorithms, PublicKey};

/// A public key, bound to the issuer whose root tokens it signs (draft section 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustAnchor {
    /// The issuer's URI, compared exactly with a root token's `iss`.
    pub issuer: String,
    /// The key its root tokens are signed with.
    pub key: PublicKey,
    /// The algorithms those signatures may use.
    pub algorithms: Algorithms,
    /// Whether the issuer speaks for several people, so that a root token's `sub` names the principal. Without it
    /// the issuer is the principal and `sub` means nothing.
    pub asserts_subjects: bool,
}

/// The configured trust anchors. An issuer may have several keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrustAnchors(Vec<TrustAnchor>);

impl TrustAnchors {
    /// These anchors, tried in this order.
    #[must_use]
    pub fn new(anchors: impl IntoIterator<Item = TrustAnchor>) -> Self {
        Self(anchors.into_iter().collect())
    }

    /// The anchors of one issuer.
    pub fn of_issuer(&self, issuer: &str) -> impl Iterator<Item = &TrustAnchor> {
        self.0.iter().filter(move |anchor| anchor.issuer == issuer)
    }

    /// All anchors.
    pub fn iter(&self) -> impl Iterator<Item = &TrustAnchor> {
        self.0.iter()
    }
}
