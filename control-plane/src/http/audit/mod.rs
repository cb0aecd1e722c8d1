//! `/v1/audit`: the evidence. [`events`] answers questions, [`stream`] goes on answering them; both take the conditions of
//! [`conditions`] and show records as [`view`] has them. [`erasures`] takes away what is known of a principal.

mod conditions;
mod erasures;
mod events;
mod stream;
mod view;

pub(crate) use self::erasures::erase;
pub(crate) use self::events::{event, events};
pub(crate) use self::stream::follow;
