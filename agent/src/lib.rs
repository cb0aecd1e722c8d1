//! The agent's side of a delegation: what a request needs, and what to present with it.
//!
//! Pure: no I/O, no clock, no keys. Programs use it as a crate, the packages as Wasm.
//!
//! | module | its one job |
//! |---|---|
//! | [`service`] | one service: its rules, and what its proofs may say |
//! | [`cases`] | cases for a verifier, line by line |
//! | [`inspection`] | what tokens say, unverified |
//! | [`operations`] | all of this in JSON, for the packages |
//! | [`terminal`] | foreign text, made safe to show |

pub mod cases;
pub mod inspection;
pub mod operations;
pub mod service;
pub mod terminal;
