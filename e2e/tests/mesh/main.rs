//! A real Istio delivers envoy-config/istio, file by file as it is shipped, and what was promised of it holds.
//!
//! Istio is built for this (`make test-mesh`), which takes minutes the first time: hence `#[ignore]`.

mod checks;
mod delivery;

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use credence_e2e::mesh::Mesh;

/// One mesh for all tests, which change it one after the other and leave it as they found it; it ends with the process.
fn mesh() -> MutexGuard<'static, Mesh> {
    static MESH: LazyLock<Mutex<Mesh>> = LazyLock::new(|| Mutex::new(Mesh::start().unwrap()));
    MESH.lock().unwrap_or_else(PoisonError::into_inner)
}
