//! credence-e2e
