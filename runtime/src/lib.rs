//! What all parts of the control plane share, and nothing that only one of them needs.
//!
//! | module | its one job |
//! |---|---|
//! | [`time`] | the wall clock |
//! | [`text`] | names and bytes as text |
//! | [`caller`] | who sends a request |
//! | [`client_limits`], [`turns`] | what one client may hold, and how much it may have under way |
//! | [`throttle`] | log lines that strangers can cause |
//! | [`lifecycle`], [`supervision`], [`threads`] | when everything ends, as planned or not |
//! | [`stream_server`], [`outbox`] | a gRPC service of one method, and the sending half of its streams |
//! | [`outbound`] | requests to others |
//! | [`settings`] | what every part's settings need, and the time that its clients have |
//! | [`metrics`] | what every part's metrics are made of |

#![allow(
    missing_docs,
    reason = "internal to the control plane: names that say all have no comment"
)]

pub mod caller;
pub mod client_limits;
pub mod lifecycle;
pub mod metrics;
pub mod outbound;
pub mod outbox;
pub mod settings;
pub mod stream_server;
pub mod supervision;
pub mod text;
pub mod threads;
pub mod throttle;
pub mod time;
pub mod turns;
