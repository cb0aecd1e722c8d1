//! Who was proven to be asking.

use credence_delegation::Thumbprint;

/// Who was proven to be asking. Identity is what was proven, so a bearer has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// The holder of this key signed the request's proof.
    Key(Thumbprint),
    /// The connection's client certificate, by its SHA-256.
    Certificate([u8; 32]),
    /// Any bearer: nothing was proven.
    Bearer,
}
