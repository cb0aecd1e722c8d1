//! The targets: each reads an input, uses the crate as its callers do, and panics where a promise is broken.
//!
//! A target must be a function of its input alone, and must not fail on any.

pub mod cast;
pub mod chain;
pub mod did_key;
pub mod json;
pub mod jwk;
pub mod proof;
pub mod script;
pub mod statement;
pub mod token;

/// How far an input got. A target that nothing gets through tests nothing, so that this is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The crate denied or refused it.
    Refused,
    /// It was accepted: parsed, or verified where there is a signature.
    Accepted,
}

/// How much to check. The costly checks cost signatures: an input that had them all would leave time for few others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// One of the costly checks, which depends on the input: for fuzzing.
    One,
    /// All of them: for replaying.
    All,
}

impl Effort {
    /// Whether to make the costly check of this number, of so many.
    fn makes(self, check: usize, of: usize, input: &[u8]) -> bool {
        let sum = input.iter().map(|byte| usize::from(*byte)).sum::<usize>();
        self == Self::All || sum % of == check
    }
}

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
