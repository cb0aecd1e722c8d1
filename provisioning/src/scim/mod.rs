//! SCIM 2.0 (RFC 7643, RFC 7644): the identity provider keeps its users here, and a user that it disables loses
//! its authority everywhere.
//!
//! [`schema`] says what a user has, [`value`] holds it, [`name`], [`path`] and [`filter`] read what clients write about it,
//! [`patch`] changes it, [`user`] is one stored user, [`store`] keeps all of them, [`provisioning`] puts a revocation
//! in front of every change that takes authority away, [`discovery`] tells clients what there is.

pub mod discovery;
pub(crate) mod error;
pub(crate) mod filter;
pub(crate) mod name;
mod patch;
pub(crate) mod path;
pub(crate) mod projection;
pub(crate) mod provisioning;
pub(crate) mod schema;
pub(crate) mod store;
pub(crate) mod user;
pub(crate) mod value;

pub use error::ScimError;
pub use filter::Filter;
pub use projection::Projection;
pub use provisioning::{Found, IfMatch, Provisioning, Query, Realm, Refused};
pub use user::User;
pub use value::Members;
