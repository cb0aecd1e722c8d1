//! credence-control-plane
