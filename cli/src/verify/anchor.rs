//! A trusted issuer and its keys.

use credence_delegation::{Algorithms, IdentifiedKey, PublicKey, TrustAnchor};

use crate::keys::{DID_KEY, IssuerKeys};

/// The trust anchors of one issuer, with the given keys or, for a `did:key`, with the key in its name. An error says
/// why the issuer cannot be trusted.
pub(super) fn anchors(
    issuer: &str,
    keys: Option<IssuerKeys>,
    algorithms: &Algorithms,
) -> Result<Vec<TrustAnchor>, String> {
    let keys = if issuer.starts_with(DID_KEY) {
        vec![unnamed(did_key(issuer, keys)?)]
    } else {
        match keys {
            None => return Err("it has no key; only a did:key issuer needs none".to_owned()),
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
        delegations: true,
        access_tokens: None,
        same_principals: Vec::new(),
        is_fetched: false,
    });
    Ok(anchors.collect())
}

fn did_key(issuer: &str, beside: Option<IssuerKeys>) -> Result<PublicKey, String> {
    let key = PublicKey::from_did_key(issuer).map_err(|error| error.to_string())?;
    match beside {
        Some(IssuerKeys::Set(_)) => Err("a did:key issuer has only the key in its name, and no JWK set".to_owned()),
        Some(IssuerKeys::One(other)) if *other != key => Err(format!(
            "the issuer's name does not contain this key, but another one: that of {}",
            other.to_did_key()
        )),
        Some(IssuerKeys::One(_)) | None => Ok(key),
    }
}

fn unnamed(key: PublicKey) -> IdentifiedKey {
    IdentifiedKey { id: None, key }
}
