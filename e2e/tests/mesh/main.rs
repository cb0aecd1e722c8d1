//! A real Istio delivers each file of envoy-config/istio as shipped, and the documented behavior holds.
//!
//! `make test-mesh` builds Istio, which takes minutes the first time: hence `#[ignore]`.

mod checks;
mod delivery;

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use credence_e2e::mesh::Mesh;

/// Shared by all tests, which use it one after the other and restore it; it stops with the process.
fn mesh() -> MutexGuard<'static, Mesh> {
    static MESH: LazyLock<Mutex<Mesh>> = LazyLock::new(|| Mutex::new(Mesh::start().unwrap()));
    MESH.lock().unwrap_or_else(PoisonError::into_inner)
}
