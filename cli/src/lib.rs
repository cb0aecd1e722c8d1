//! credence
