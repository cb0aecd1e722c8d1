//! What is recorded of decisions, and its way to the ledger.
//!
//! | file | its one job |
//! |---|---|
//! | `events` | what is recorded of one decision: an event, or one more of its kind |
//! | `pages` | the ring's bytes, in memory that stays warm |
//! | `ring` | keeps entries, encoded, until the control plane has them on disk; counts what does not fit |
//! | `counts` | decisions that are counted by kind and second |
//! | `denials` | which denials are recorded one by one, by principal and holder, and which are counted |
//! | `pending` | events that wait for the answer to their request |
//! | `reporter` | the stream to the control plane: which entries to send, and which are settled |

pub mod counts;
pub mod denials;
pub mod events;
mod pages;
pub mod pending;
pub mod reporter;
pub mod ring;
mod source;

pub use counts::{Kind, NO_RULE};
pub use denials::{DenialCap, Denied};
pub use pending::Pending;
pub use reporter::{Action, Counters, Reporter};
pub use ring::{MAX_CHAIN_BYTES, Owner, Ring, RingError, Shed, Trust};
pub use source::{Source, SourceFigures};
