//! credence-delegation
