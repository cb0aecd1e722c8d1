//! Tests of the control plane through its clients: over loopback, with real gRPC and HTTP, on real files.

#![allow(clippy::disallowed_types, reason = "tests look into answers of any shape")]

mod access;
mod audit;
mod audit_stream;
mod bit_flips;
mod body_drain;
mod cache_keys;
mod certificates;
mod compaction;
mod confirmation;
mod damaged_ledger;
mod erasures;
mod harness;
mod http;
mod ingest;
mod openapi;
mod ordinary_weeks;
mod otlp;
mod principals;
mod provider;
mod restart;
mod reverification;
mod revocation;
mod scale;
mod scim;
mod security_events;
mod starvation;
mod statements;
mod status;
mod stream;
mod tls;
mod transports;
