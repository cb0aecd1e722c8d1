//! The tool's arguments in a request.
//!
//! | file | task |
//! |---|---|
//! | `source` | one argument: its place in a request, and its type |
//! | `pointer` | places in a JSON text |
//! | `body` | arguments from a JSON body |
//! | `mapping` | the arguments of one rule's tool, from all sources |

pub mod body;
mod mapping;
mod pointer;
mod source;

pub use body::{BodyMapping, Overlap};
pub use mapping::{ArgumentMapping, Arrived};
pub(crate) use pointer::escaped;
pub use pointer::{MAX_POINTER_BYTES, MAX_POINTER_TOKENS, Pointer, PointerError};
pub use source::{ArgumentKind, ArgumentSource, Source};
pub(crate) use source::{about, unmapped};
