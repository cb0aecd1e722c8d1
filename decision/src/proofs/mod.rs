//! Proofs of possession: used ones, and nonces that bind new ones to this process.
//!
//! | file | task |
//! |---|---|
//! | `replay` | the memory of used proofs |
//! | `nonce` | nonces that proofs may have to carry |

pub mod nonce;
pub mod replay;

pub use nonce::Nonces;
pub use replay::{MAX_PROOF_WINDOW, ReplayMemory, UsedProof};
