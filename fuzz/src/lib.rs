//! The fuzz targets, and the mutations of inputs.
//!
//! The targets do not depend on libFuzzer, so that ordinary tests of credence-delegation can replay every input in the
//! corpus (delegation/tests/corpus.rs).

pub mod mutate;
pub mod targets;
