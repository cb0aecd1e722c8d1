//! The `credence` command line as users run it: one module for each command or topic.

mod common;
mod config_check;
mod config_describe;
mod config_schema;
mod control_plane;
mod control_plane_schema;
mod errors;
mod event_stream;
mod evidence;
mod export;
mod interop;
mod issuer;
mod jsonl;
mod keys;
mod kubernetes;
mod openapi;
mod proxy;
mod readme;
mod round_trip;
mod scim_conformance;
mod serve;
mod statements;
mod token;
mod vectors;
mod watch;
