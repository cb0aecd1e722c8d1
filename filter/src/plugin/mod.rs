//! The plugin: handles the host's callbacks. It uses its host through a trait, so that tests can replace the host.
//!
//! | file | task |
//! |---|---|
//! | `vm` | everything in one VM: configurations, and the revocation views that they share |
//! | `root` | one configuration: its engine, and the requests it holds |
//! | `effects` | carries out decisions |
//! | `recorder` | counts, records and reports decisions |
//! | `control_stream` | a gRPC stream to the control plane |
//! | `request_world` | the engine's view of the host |
//! | `fake_host`, `meter` | for tests: a host, and a count of its calls and of allocations |

#[cfg(any(feature = "answers", test))]
mod answers;
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
mod meter;
#[cfg(test)]
mod tests;
