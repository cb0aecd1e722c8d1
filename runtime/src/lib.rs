//! What several parts of the control plane share.
//!
//! | module | its one job |
//! |---|---|
//! | [`time`] | the wall clock |
//! | [`text`] | names and bytes as text |
//! | [`caller`] | the caller of a request |
//! | [`client_limits`], [`turns`] | how many places one client may hold, and how much work it may have in progress |
//! | [`rates`], [`throttle`] | limits requests of each client, and log lines that any client can cause |
//! | [`lifecycle`], [`supervision`], [`threads`] | planned and unplanned ends |
//! | [`stream_server`], [`outbox`] | a gRPC service of one method, and the sending half of its streams |
//! | [`outbound`] | requests to other servers |
//! | [`settings`], [`settings_schema`] | helpers for every part's settings, their JSON Schema, and the timeouts for clients |
//! | [`metrics`] | helpers for every part's metrics |

#![allow(
    missing_docs,
    reason = "internal to the control plane: a name that explains itself needs no comment"
)]

pub mod caller;
pub mod client_limits;
pub mod lifecycle;
pub mod metrics;
pub mod outbound;
pub mod outbox;
pub mod rates;
pub mod settings;
pub mod settings_schema;
pub mod stream_server;
pub mod supervision;
pub mod text;
pub mod threads;
pub mod throttle;
pub mod time;
pub mod turns;
