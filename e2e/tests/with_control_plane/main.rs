//! The filter and the control plane together: revocations, evidence, TLS and identity providers.

mod audit;
mod barrier;
mod control_plane_tls;
mod hostile_control_plane;
mod identity_provider;
mod issuer_keys;
mod mtls;
mod revocation;
mod snapshot_at_scale;
