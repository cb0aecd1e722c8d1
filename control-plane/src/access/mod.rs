//! Who may do what: credentials, the roles they are given, and what each role is good for.
//!
//! A caller is known by a bearer token, of which only the SHA-256 is stored, or by the certificate that its TLS
//! connection was opened with. A watcher may not revoke: every route and every gRPC service asks for one
//! [`Permission`].

mod bearer;
mod holders;
mod operator_token;
mod peer;
mod permission;
mod session;
mod supervised;

pub(crate) use self::holders::{Access, AccessControl, TokenDigest};
pub(crate) use self::operator_token::read_operator_token;
pub(crate) use self::peer::PeerCertificate;
pub(crate) use self::permission::{Permission, Refusal};
pub(crate) use self::session::Session;
pub(crate) use self::supervised::Supervised;
