//! The plugin: what a callback of the host leads to. It knows its host by a trait, so that tests can be its host.
//!
//! | file | its one job |
//! |---|---|
//! | `vm` | all that lives in one VM: configurations, and the revocation views that they share |
//! | `root` | one configuration: its engine, and the requests it holds |
//! | `effects` | carries out what was decided |
//! | `recorder` | counts and records what was decided |
//! | `control_stream` | a gRPC stream to the control plane |
//! | `request_world` | what the engine asks of the host |

mod control_stream;
mod effects;
mod recorder;
mod request_world;
mod root;
mod vm;

#[cfg(target_arch = "wasm32")]
pub(crate) use effects::refuse;
pub(crate) use vm::Vm;

#[cfg(test)]
mod fake_host;
#[cfg(test)]
mod tests;
