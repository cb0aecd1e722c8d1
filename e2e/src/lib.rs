//! A test harness that runs Credence: a service, the control plane, and Envoy with the filter. All are real and use
//! free ports of this machine. All end with the process that started them.
//!
//! The harness uses none of the product's crates: it drives the built programs. The `credence` command makes
//! delegations, as users do; [`forge`] signs those that users cannot make.

pub mod agent_proxy;
pub mod artefacts;
pub mod assertions;
pub mod at_scale;
pub mod audit;
pub mod browser;
pub mod checkpoints;
pub mod client;
pub mod cluster;
pub mod command;
pub mod configuration;
pub mod control_plane;
pub mod envoy;
pub mod etcd;
pub mod failure;
pub mod false_clock;
pub mod forge;
pub mod gate;
pub mod grants;
mod grpc;
mod guardian;
pub mod http2;
pub mod identity_provider;
pub mod issuer;
pub mod late_allows;
pub mod link;
pub mod meddler;
pub mod mesh;
mod message;
pub mod minds;
pub mod module;
pub mod names;
pub mod network;
pub mod oauth_client;
pub mod operator;
pub mod oracles;
pub mod place;
pub mod ports;
pub mod process;
mod protobuf;
pub mod random;
pub mod read_back;
pub mod received;
pub mod reporter;
mod service;
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
