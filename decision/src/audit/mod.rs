//! The evidence of decisions, and its way to the ledger.
//!
//! | file | task |
//! |---|---|
//! | `events` | the record of one decision: an event, or an increment of a count |
//! | `pages` | the ring's memory, which stays in the processor's cache |
//! | `ring` | keeps encoded entries until the control plane has them on disk; counts entries that do not fit |
//! | `counts` | decisions that are counted by kind and second |
//! | `denials` | which denials are events, by principal and holder, and which are counted |
//! | `pending` | events that wait for the answer to their request |
//! | `reporter` | the stream to the control plane: sends entries, and removes acknowledged ones |

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
