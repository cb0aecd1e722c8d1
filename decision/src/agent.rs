//! The agent that a request proved.

use credence_delegation::Thumbprint;

/// The agent that a request proved. A bearer has proven no identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// The holder of this key signed the request's proof.
    Key(Thumbprint),
    /// The holder of this key signed the request's DPoP proof.
    DpopKey(Thumbprint),
    /// The connection's client certificate, by its SHA-256.
    Certificate([u8; 32]),
    /// Any bearer: there was no proof.
    Bearer,
}
