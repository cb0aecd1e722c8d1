//! The keys of an issuer that the control plane has fetched from it, as the revocation log has them.

use crate::json::Json;
use crate::key::{IdentifiedKey, PublicKey, Thumbprint};
use crate::time::UnixTime;

/// The present keys of an issuer. They count for trust anchors without keys of their own (`keys: control_plane`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerKeys {
    keys: Vec<IdentifiedKey>,
    trusted_until: UnixTime,
}

impl IssuerKeys {
    /// Reads JWKs (RFC 7517), each with its `kid`. Those that this version cannot read are left out: a newer control
    /// plane may know more kinds of keys.
    pub fn read<'j>(jwks: impl IntoIterator<Item = (&'j str, &'j str)>, trusted_until: UnixTime) -> Self {
        let readable = jwks.into_iter().filter_map(|(jwk, key_id)| {
            let json = Json::parse(jwk.as_bytes()).ok()?;
            Some(IdentifiedKey {
                id: Some(key_id).filter(|id| !id.is_empty()).map(str::to_owned),
                key: PublicKey::from_issuer_jwk(&json).ok()?,
            })
        });
        Self {
            keys: readable.collect(),
            trusted_until,
        }
    }

    /// The keys.
    pub fn keys(&self) -> &[IdentifiedKey] {
        &self.keys
    }

    /// From this time on, none of them is trusted: the issuer has not answered for too long.
    pub fn trusted_until(&self) -> UnixTime {
        self.trusted_until
    }

    /// Whether a key is among them.
    #[must_use]
    pub fn contain(&self, key: &Thumbprint) -> bool {
        self.keys.iter().any(|known| known.key.thumbprint() == *key)
    }
}
