//! An issuer to trust, and the keys that it signs with.

use credence_delegation::{Algorithms, IdentifiedKey, PublicKey, TrustAnchor};

use crate::keys::{DID_KEY, IssuerKeys};

/// The trust anchors of one issuer, whose keys are those given or, for a `did:key`, in its name. Or why nothing that it signs
/// can be trusted.
pub(super) fn anchors(
    issuer: &str,
    keys: Option<IssuerKeys>,
    algorithms: &Algorithms,
) -> Result<Vec<TrustAnchor>, String> {
    let keys = if issuer.starts_with(DID_KEY) {
        vec![unnamed(did_key(issuer, keys)?)]
    } else {
        match keys {
            None => return Err("it has no key; only an issuer whose name is a did:key needs none".to_owned()),
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

fn did_key(issuer: &str, beside: Option<IssuerKeys>) -> Result<PublicKey, String> {
    let key = PublicKey::from_did_key(issuer).map_err(|error| error.to_string())?;
    match beside {
        Some(IssuerKeys::Set(_)) => {
            Err("a did:key issuer has one key, the one that its name is made of, and no JWK set".to_owned())
        }
        Some(IssuerKeys::One(other)) if *other != key => Err(format!(
            "the issuer's name is not made of this key, but of another: that of {}",
            other.to_did_key()
        )),
        Some(IssuerKeys::One(_)) | None => Ok(key),
    }
}

fn unnamed(key: PublicKey) -> IdentifiedKey {
    IdentifiedKey { id: None, key }
}
