//! TLS on the control plane's ports, with client certificates, from files that may change at any time.
//!
//! | file | what lives there |
//! |---|---|
//! | [`material`] | what the files hold, parsed whole or not at all |
//! | [`port`] | one port's material in force, and how it is replaced |
//! | [`handshake`] | how a connection begins, and why it may not |
//! | [`peer`] | who is at the other end, and for how long that counts |
//! | [`validity`] | until when a certificate is good |

mod handshake;
mod material;
mod metrics;
mod peer;
mod port;
mod validity;
mod which_port;

pub(crate) use self::handshake::accept;
pub(crate) use self::metrics::TlsMetrics;
pub(crate) use self::peer::Peer;
pub(crate) use self::port::{TlsPort, TlsPorts};
pub(crate) use self::which_port::Port;
