//! A client of etcd, for a store that must not believe a single member.
//!
//! | module | its one job |
//! |---|---|
//! | `address` | the address of a store: members, and the prefix of the keys |
//! | `client` | requests to whichever member answers |
//! | `operation` | transactions and reads, in few words |
//! | `watch` | changes as they are made |
//! | `api` | etcd's messages |
//!
//! Every read is linearizable: a quorum has confirmed it. A member that does not answer within [`ATTEMPT`] is left for
//! the next one, on a new connection.

#![allow(
    missing_docs,
    reason = "internal to the control plane: a name that explains itself needs no comment"
)]

mod address;
mod client;
mod error;
mod operation;
mod watch;

/// etcd's messages and clients.
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod api {
    include!("generated/etcdserverpb.rs");
}

pub use address::{Address, AddressError, Security};
pub use client::{ATTEMPT, Client};
pub use error::EtcdError;
pub use operation::{delete_range, has_revision, is_empty, prefix_end, put, put_leased, read, read_range};
pub use watch::{Change, Watching};
