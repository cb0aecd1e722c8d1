//! The filter in a real Envoy: which requests it allows, and which it denies and why.

mod bodies;
mod configuration;
mod decisions;
mod documented_metrics;
mod dpop;
mod envoy_routes;
mod headers;
mod held_bodies;
mod identity;
mod impostors;
mod keys;
mod mcp;
mod metrics;
mod modes;
mod module_image;
mod oracles;
mod overflow;
mod protocols;
mod readings;
mod reasons;
mod reconfiguration;
mod replay;
mod rules;
mod shared_cache;
mod starting;
mod traps;
