//! Access control: credentials, their roles, and the permissions of each role.
//!
//! A caller is identified by a bearer token, of which only the SHA-256 is stored, or by the certificate of its TLS
//! connection. Every route and every gRPC service requires one [`Permission`]; a watcher may not revoke, for example.

mod bearer;
mod holders;
mod operator_token;
mod permission;
mod session;
mod subjects;
mod supervised;

pub(crate) use self::holders::{Access, AccessControl, TokenDigest};
pub(crate) use self::operator_token::read_operator_token;
pub(crate) use self::permission::{Permission, Refusal};
pub(crate) use self::session::Session;
pub(crate) use self::supervised::Supervised;
