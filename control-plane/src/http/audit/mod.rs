//! `/v1/audit`: the evidence. [`events`] answers queries, and [`stream`] follows the ledger. Both use the conditions of
//! [`conditions`], and show records with [`view`]. [`erasures`] erases the evidence about a principal.

mod conditions;
mod erasures;
mod events;
mod stream;
mod view;

pub(crate) use self::erasures::erase;
pub(crate) use self::events::{event, events};
pub(crate) use self::stream::follow;
