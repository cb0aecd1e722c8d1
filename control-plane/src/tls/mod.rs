//! TLS on the control plane's ports, with client certificates, from files that may change at any time.
//!
//! | file | contents |
//! |---|---|
//! | [`material`] | the parsed contents of the files |
//! | [`port`] | the certificate in force on a port, and its replacement |
//! | [`handshake`] | handshakes, and why they fail |
//! | [`peer`] | the other end of a connection, and the validity of its certificate |
//! | [`validity`] | the expiry of a certificate |

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
