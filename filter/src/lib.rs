//! credence-filter
