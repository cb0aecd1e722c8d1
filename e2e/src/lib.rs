//! A running Credence to try things on: a service, the control plane, and Envoy with the filter, all real, all on free
//! ports of this machine, and all gone when the process that started them is.
//!
//! Nothing here uses the product's own crates: what is driven is what is built. Delegations are made by the `credence`
//! command, as a user would, and by a signer of our own ([`forge`]) where a user would not.

pub mod artefacts;
pub mod assertions;
pub mod at_scale;
pub mod audit;
pub mod checkpoints;
pub mod client;
pub mod command;
pub mod configuration;
pub mod control_plane;
pub mod envoy;
pub mod failure;
pub mod false_clock;
pub mod forge;
pub mod gate;
pub mod grants;
mod grpc;
mod guardian;
pub mod http2;
pub mod late_allows;
pub mod link;
pub mod meddler;
pub mod mesh;
mod message;
pub mod minds;
pub mod module;
pub mod names;
pub mod operator;
pub mod oracles;
pub mod ports;
pub mod process;
mod protobuf;
pub mod read_back;
pub mod received;
pub mod reporter;
pub mod small_disk;
pub mod stack;
pub mod stand_in;
pub mod subscriber;
pub mod tls;
pub mod tracer;
pub mod upstream;
pub mod waiting;

pub use client::{Client, Reply, Request};
pub use failure::Failure;
pub use http2::Http2;
pub use names::{AUDIENCE, ISSUER};
pub use stack::{Stack, StackOptions};
