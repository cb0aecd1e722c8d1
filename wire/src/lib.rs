//! The gRPC contract between filter and control plane: `proto/credence/v1/*.proto` and its Rust types.
//!
//! The generated types are kept in the repository, so that building Credence needs no generator. `tests/generated.rs`
//! checks that they match the contract.
//!
//! With the `tonic` feature the crate also has the clients and servers.

/// Messages, and with the `tonic` feature services, of `credence.v1`.
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod v1 {
    include!("generated/credence.v1.rs");

    /// Prints no keys, so that they do not get into a log with the message.
    impl std::fmt::Debug for CacheKeys {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("CacheKeys(..)")
        }
    }
}
