//! The targets: each reads an input, uses the crate as its callers do, and panics where a promise is broken.
//!
//! A target must be a function of its input alone, and must not fail on any.

pub mod cast;
pub mod chain;
pub mod did_key;
pub mod effort;
pub mod json;
pub mod jwk;
pub mod proof;
pub mod script;
pub mod statement;
pub mod token;

pub use effort::{Effort, Outcome};

/// Takes one input.
pub type Target = fn(&[u8], Effort) -> Outcome;

/// The targets by name, which is also the name of the folder of their inputs.
pub const TARGETS: &[(&str, Target)] = &[
    ("token", token::run),
    ("chain", chain::run),
    ("proof", proof::run),
    ("json", json::run),
    ("did_key", did_key::run),
    ("jwk", jwk::run),
    ("statement", statement::run),
];
