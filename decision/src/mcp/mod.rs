//! MCP over Streamable HTTP: what a request calls.
//!
//! An MCP server is one path. Which tool a request calls, and with which arguments, is in its body: one JSON-RPC message.
//!
//! | file | task |
//! |---|---|
//! | `version` | the versions of the protocol |
//! | `message` | one JSON-RPC message |
//! | `mirrors` | headers that repeat parts of the message |
//! | `endpoint` | what a rule says about a server, and what a request to it calls |
//! | `presentation` | a delegation and its proof in a message |
//! | `session` | the ids of sessions and events, as clients get them |
//! | `rewriting` | the answer of a server, as the client gets it |
//! | `events`, `listing` | streams of events, and lists of tools |

mod endpoint;
mod events;
mod listing;
mod message;
mod mirrors;
pub mod presentation;
mod rewriting;
pub mod session;
mod version;

pub(crate) use endpoint::NO_METHODS;
pub use endpoint::{Access, Call, Endpoint, SessionUse, Source, Tools};
pub use message::MessageId;
pub use mirrors::is_stateless;
pub use rewriting::{Change, Piece, Rewriting};
pub use version::Version;
