//! Proofs of possession that were used before, and what keeps new ones from being used elsewhere.
//!
//! | file | its one job |
//! |---|---|
//! | `replay` | the memory of used proofs |
//! | `nonce` | nonces that proofs may have to carry |

pub mod nonce;
pub mod replay;

pub use nonce::Nonces;
pub use replay::{MAX_PROOF_WINDOW, ReplayMemory, UsedProof};
