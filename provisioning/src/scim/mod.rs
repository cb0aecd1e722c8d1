//! SCIM 2.0 (RFC 7643, RFC 7644): the identity provider keeps its users here, and a user that it disables loses its
//! authority everywhere.
//!
//! | module | its one job |
//! |---|---|
//! | `schema`, `value` | the attributes of a user, and their values |
//! | `name`, `path`, `filter` | parse what clients write about attributes |
//! | `patch` | changes a user |
//! | `user`, `store` | one stored user, and all of them |
//! | `provisioning` | revokes before every change that removes authority |
//! | `discovery` | describes the service to clients |

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
