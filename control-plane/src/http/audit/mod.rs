//! `/v1/audit`: the evidence. [`events`] answers questions, [`stream`] goes on answering them; both take the conditions of
//! [`conditions`] and show records as [`view`] has them.

mod conditions;
mod events;
mod stream;
mod view;

pub(crate) use self::events::{event, events};
pub(crate) use self::stream::follow;
