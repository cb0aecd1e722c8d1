//! Serves a port: HTTP/1.1 for an API and for probes, HTTP/2 for gRPC streams.
//!
//! A [`Server`] answers the requests that arrive at a [`BoundedListener`] with a router. The [`Peer`] of each request is
//! among its extensions, and over HTTP/1.1 so is [`Arrived`].
//!
//! | module | its one job |
//! |---|---|
//! | `server` | serves the connections of a port, within limits for bytes, streams and silence |
//! | `listener` | accepts connections |
//! | `connections` | how many connections a port has, and which one is closed to make room for another one |
//! | `body_drain` | the rest of a request's body after an early answer |
//! | `operators` | metrics and probes |
//! | `arrived` | whether the whole request has arrived |
//! | `tls` | certificates of ports and clients, from files that may change at any time |
//! | `unusable` | why something that the operator has configured cannot be used |

mod arrived;
mod body_drain;
mod connections;
mod listener;
mod operators;
mod server;
mod tls;
mod unusable;

pub use arrived::Arrived;
pub use connections::{Connection, Connections};
pub use listener::BoundedListener;
pub use operators::operators;
pub use server::Server;
pub use tls::{Peer, PeerCertificate, Port, PortTls, TlsMetrics, TlsPort, TlsPorts, TlsSettings};
pub use unusable::Unusable;
