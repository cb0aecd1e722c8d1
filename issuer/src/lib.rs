//! Credence's issuer: an OAuth authorization server (RFC 6749, RFC 9700) where people grant delegations to agents, and
//! take them back.
//!
//! | module | its one job |
//! |---|---|
//! | `tools` | tools with constraints on their arguments |
//! | `policy` | the most that a person may grant to a client |
//! | `choice` | what the person leaves of that |
//! | `words` | a grant in words |
//! | `sign_in` | people sign in at their identity provider |
//! | `store` | the database |
//! | `keys` | signing keys, and the secret of codes and refresh tokens |
//! | `grants` | what was granted, and what became of it |
//! | `events` | evidence for the ledger |

#![allow(
    missing_docs,
    reason = "internal to the issuer: a name that explains itself needs no comment"
)]

#[cfg(test)]
mod bounds_tests;
mod choice;
mod events;
mod grants;
mod keys;
mod policy;
mod sign_in;
mod store;
mod tools;
mod words;

pub use sign_in::IdentityProviderSettings;
