//! Security event tokens (RFC 8417), pushed as in RFC 8935: the identity provider reports events about a user, in the
//! vocabularies of CAEP and RISC, and the user's authority changes with them.
//!
//! | module | its one job |
//! |---|---|
//! | `token`, `keys` | verifies a token with the keys of its transmitter |
//! | `subject`, `event` | the user that an event is about, and its consequence |
//! | `seen` | remembers tokens, so that none counts twice |
//! | `receiver` | puts them together |

pub(crate) mod event;
pub(crate) mod keys;
pub(crate) mod receiver;
pub(crate) mod refusal;
pub(crate) mod seen;
pub(crate) mod subject;
pub(crate) mod token;

pub use receiver::{NotTaken, Receiver};
pub use refusal::Refusal;
