//! The targets. Each reads an input, uses the crate as its callers do, and panics if a promise is broken.
//!
//! A target must be a function of its input alone, and must not fail on any input.

pub mod access_token;
pub mod authorization_details;
pub mod cast;
pub mod chain;
pub mod did_key;
pub mod dpop;
pub mod effort;
pub mod http_uri;
pub mod json;
pub mod jwk;
pub mod proof;
pub mod rsa;
pub mod script;
pub mod statement;
pub mod token;

pub use effort::{Effort, Outcome};

/// Runs one input.
pub type Target = fn(&[u8], Effort) -> Outcome;

/// The targets by name, which is also the name of their inputs' folder.
pub const TARGETS: &[(&str, Target)] = &[
    ("token", token::run),
    ("chain", chain::run),
    ("proof", proof::run),
    ("json", json::run),
    ("did_key", did_key::run),
    ("jwk", jwk::run),
    ("statement", statement::run),
    ("access_token", access_token::run),
    ("authorization_details", authorization_details::run),
    ("dpop", dpop::run),
    ("http_uri", http_uri::run),
    ("rsa", rsa::run),
];
