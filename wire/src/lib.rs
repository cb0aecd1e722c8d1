//! The gRPC contract between filter and control plane: `proto/credence/v1/*.proto` and its Rust types.
//!
//! The types are generated from the contract and kept beside it, so that building Credence needs no generator;
//! `tests/generated.rs` sees to it that they are the same.
//!
//! With the `tonic` feature the crate also has the clients and servers.

/// Messages, and with the `tonic` feature services, of `credence.v1`.
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod v1 {
    include!("generated/credence.v1.rs");

    /// Keys do not get into a log by way of a message that holds them.
    impl std::fmt::Debug for CacheKeys {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("CacheKeys(..)")
        }
    }
}
