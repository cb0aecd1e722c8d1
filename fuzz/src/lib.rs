//! What the fuzz targets do with an input, and how inputs are mutated.
//!
//! The targets do not depend on libFuzzer, so that the plain tests of credence-delegation replay every input that is
//! worth keeping (delegation/tests/corpus.rs).

pub mod mutate;
pub mod targets;
