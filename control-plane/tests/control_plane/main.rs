//! The control plane as its clients see it: over loopback, with real gRPC and HTTP, on real files.

#![allow(clippy::disallowed_types, reason = "tests look into answers of any shape")]

mod audit;
mod cache_keys;
mod harness;
mod http;
mod openapi;
mod restart;
mod revocation;
mod statements;
mod status;
mod stream;
