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

mod endpoint;
mod message;
mod mirrors;
mod version;

pub use endpoint::{Access, Call, Endpoint, Tools};
pub use message::MessageId;
pub use mirrors::is_stateless;
pub use version::Version;
