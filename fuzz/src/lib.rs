//! The fuzz targets, and the mutations of inputs.
//!
//! The targets do not depend on libFuzzer, so that ordinary tests can replay every input in the corpus
//! (delegation/tests/corpus.rs and decision/tests/corpus.rs).

pub mod mcp;
pub mod mutate;
pub mod targets;
