//! An issuer to trust, and the keys that it signs with.

use credence_delegation::{Algorithms, DidKeyError, IdentifiedKey, PublicKey, TrustAnchor};

use crate::keys::{DID_KEY, IssuerKeys};

/// Why nothing that an issuer signs can be trusted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnchorError {
    #[error("it has no key; only an issuer whose name is a did:key needs none")]
    Keyless,
    #[error("{0}")]
    DidKey(#[from] DidKeyError),
    #[error("a did:key issuer has one key, the one that its name is made of, and no JWK set")]
    SetOfDidKey,
    #[error("the issuer's name is not made of this key, but of another: that of {0}")]
    OtherKey(String),
}

/// The trust anchors of one issuer, whose keys are those given or, for a `did:key`, in its name.
pub(super) fn anchors(
    issuer: &str,
    keys: Option<IssuerKeys>,
    algorithms: &Algorithms,
) -> Result<Vec<TrustAnchor>, AnchorError> {
    let keys = if issuer.starts_with(DID_KEY) {
        vec![unnamed(did_key(issuer, keys)?)]
    } else {
        match keys {
            None => return Err(AnchorError::Keyless),
            Some(IssuerKeys::One(key)) => vec![unnamed(*key)],
            Some(IssuerKeys::Set(keys)) => keys,
        }
    };
    let anchors = keys.into_iter().map(|IdentifiedKey { id, key }| TrustAnchor {
        issuer: issuer.to_owned(),
        key,
        key_id: id,
        algorithms: algorithms.clone(),
        asserts_subjects: false,
    });
    Ok(anchors.collect())
}

fn did_key(issuer: &str, beside: Option<IssuerKeys>) -> Result<PublicKey, AnchorError> {
    let key = PublicKey::from_did_key(issuer)?;
    match beside {
        Some(IssuerKeys::Set(_)) => Err(AnchorError::SetOfDidKey),
        Some(IssuerKeys::One(other)) if *other != key => Err(AnchorError::OtherKey(other.to_did_key())),
        Some(IssuerKeys::One(_)) | None => Ok(key),
    }
}

fn unnamed(key: PublicKey) -> IdentifiedKey {
    IdentifiedKey { id: None, key }
}
