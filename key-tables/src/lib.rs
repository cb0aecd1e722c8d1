//! Precomputed tables of public keys, with which verifying a signature costs less.
//!
//! A service verifies signatures of few keys again and again: those of its issuers, and those of agents that send many
//! requests. For such a *hot* key a table of multiples of its point pays off.
//!
//! - [`Ed25519Table`] verifies Ed25519 signatures with its own point arithmetic over fiat-crypto's field. The answer is
//!   that of ed25519-dalek's `verify_strict`, for every key, message and signature. [`verify_strict`] is the same
//!   without a table.
//! - [`P256Table`] verifies ECDSA signatures with P-256, with its own arithmetic. Its table is small: computing it for one
//!   signature still costs less than the p256 crate's verification in Wasm.
//!
//! # Why it exists
//! In Wasm, where the filter runs, ed25519-dalek has no vector instructions, and verifying a signature costs more than
//! everything else that the filter does for a request. Measured in V8 on one 2-core x86-64 machine:
//!
//! | one signature over 300 to 500 bytes | without a table | with one |
//! |---|---|---|
//! | Ed25519, a whole proof of possession | 110 µs | 32 µs |
//! | P-256 | 190 µs (690 µs with the p256 crate) | 71 µs |
//!
//! With curve25519-dalek's own tables, an Ed25519 signature costs more than twice as much. Those tables are for secret
//! scalars and take constant time, or they still double 256 times (`VartimeEdwardsPrecomputation`).
//! docs/performance.md has the cost of a request with a proof in Envoy.
//!
//! # Why it can be trusted
//! Ed25519's field arithmetic was generated with a proof. Everything else is compared with crypto-bigint,
//! curve25519-dalek, ed25519-dalek and p256: by the tests beside the code, and by 100 million generated cases in `make soak`. `make mutants` changes every
//! function in turn and checks that a test fails. `limits.hot_keys: 0` in the filter's configuration turns the tables of
//! hot keys off.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

#[cfg(test)]
mod differential;
mod ed25519;
mod edwards;
mod field;
mod fixed_base;
mod p256;
mod rsa;

pub use ed25519::{Ed25519Table, is_of_small_order, verify_strict};
pub use p256::P256Table;
pub use rsa::RsaKey;
