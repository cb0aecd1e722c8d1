//! The evidence of decisions on its way to the ledger.
//!
//! | file | its one job |
//! |---|---|
//! | `ring` | keeps entries, encoded, until the control plane has them on disk; counts what does not fit |
//! | `reporter` | the stream to the control plane: which entries to send, and which are settled |

pub mod reporter;
pub mod ring;

pub use reporter::{Action, Counters, Notice, Reporter, Settings, Violation};
pub use ring::{Limits, Overflow, Pushed, Ring, RingError, Standing};
