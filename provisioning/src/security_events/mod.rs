//! Security event tokens (RFC 8417), pushed as RFC 8935 says: the identity provider tells of what has happened to a
//! user, in the vocabularies of CAEP and RISC, and authority goes with it.
//!
//! [`token`] verifies what arrives, with the [`keys`] of its transmitter; [`subject`] says whom it is about and
//! [`event`] what follows; [`seen`] remembers it, so that nothing counts twice; [`receiver`] puts them together.

pub(crate) mod event;
pub(crate) mod keys;
pub(crate) mod receiver;
pub(crate) mod refusal;
pub(crate) mod seen;
pub(crate) mod subject;
pub(crate) mod token;

pub use receiver::{NotTaken, Receiver};
pub use refusal::Refusal;
