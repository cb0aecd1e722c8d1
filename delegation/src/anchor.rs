//! Trust anchors: who may sign root tokens.

use sha2::{Digest, Sha256};

use crate::key::{Algorithm, Algorithms, PublicKey};

/// A public key, bound to the issuer whose root tokens it signs (draft section 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustAnchor {
    /// The issuer's URI, compared exactly with a root token's `iss`.
    pub issuer: String,
    /// The key its root tokens are signed with.
    pub key: PublicKey,
    /// The name by which a token's header may select the key among the issuer's (`kid`; RFC 7515, section 4.1.4).
    /// Without it the key is tried whatever the header says.
    pub key_id: Option<String>,
    /// The algorithms those signatures may use.
    pub algorithms: Algorithms,
    /// Whether the issuer speaks for several people, so that a root token's `sub` names the principal. Without it
    /// the issuer is the principal and `sub` means nothing.
    pub asserts_subjects: bool,
}

/// The configured trust anchors. An issuer may have several keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrustAnchors(Vec<TrustAnchor>);

/// Why no anchor's key is worth a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoCandidate {
    /// The issuer has no anchor.
    IssuerUnknown,
    /// None of the issuer's anchors allows the algorithm, or none of its keys fits it.
    AlgorithmNotAllowed,
    /// The `kid` is none of those keys'.
    KeyUnknown,
}

impl TrustAnchor {
    fn fingerprint(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let key_id = self.key_id.as_deref();
        for text in [
            &self.issuer,
            key_id.unwrap_or_default(),
            &self.key.thumbprint().to_string(),
        ] {
            // In front of each its length: no two anchors have the same bytes.
            hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(text);
        }
        hash.update([u8::from(key_id.is_some()), u8::from(self.asserts_subjects)]);
        hash.update(Algorithm::ALL.map(|algorithm| u8::from(self.algorithms.allow(algorithm))));
        hash.finalize().into()
    }

    /// Whether a signature by `algorithm` may be this anchor's at all.
    fn allows(&self, algorithm: Algorithm) -> bool {
        self.algorithms.allow(algorithm) && self.key.fits(algorithm)
    }

    /// Whether the header leaves this key to be tried. A `kid` selects among the keys that are configured, nothing
    /// more; one that no key has selects none.
    fn is_selected_by(&self, key_id: Option<&str>) -> bool {
        match (&self.key_id, key_id) {
            (Some(ours), Some(theirs)) => ours == theirs,
            (None, _) | (_, None) => true,
        }
    }
}

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

    /// The anchors whose key may have signed what has this algorithm and `kid` in its header and says that it is this
    /// issuer's.
    pub(crate) fn candidates(
        &self,
        issuer: Option<&str>,
        algorithm: Algorithm,
        key_id: Option<&str>,
    ) -> Result<Vec<&TrustAnchor>, NoCandidate> {
        let mut candidates: Vec<_> = issuer
            .map(|issuer| self.of_issuer(issuer).collect())
            .unwrap_or_default();
        if candidates.is_empty() {
            return Err(NoCandidate::IssuerUnknown);
        }
        candidates.retain(|anchor| anchor.allows(algorithm));
        if candidates.is_empty() {
            return Err(NoCandidate::AlgorithmNotAllowed);
        }
        candidates.retain(|anchor| anchor.is_selected_by(key_id));
        if candidates.is_empty() {
            return Err(NoCandidate::KeyUnknown);
        }
        Ok(candidates)
    }

    /// What the anchors are known by, in whatever order they are configured: SHA-256 over each anchor's issuer, key
    /// thumbprint, key id, algorithms and whether it asserts subjects.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut anchors: Vec<_> = self.0.iter().map(TrustAnchor::fingerprint).collect();
        anchors.sort_unstable();
        anchors.dedup();
        Sha256::digest(anchors.as_flattened()).into()
    }

    /// All anchors.
    pub fn iter(&self) -> impl Iterator<Item = &TrustAnchor> {
        self.0.iter()
    }
}
