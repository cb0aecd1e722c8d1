//! TLS on a server's ports, with client certificates, from files that may change at any time.
//!
//! | file | contents |
//! |---|---|
//! | [`settings`] | the files, in the configuration |
//! | [`material`] | the parsed contents of the files |
//! | [`port`] | the certificate in force on a port, and its replacement |
//! | [`handshake`] | handshakes, and why they fail |
//! | [`peer`] | the other end of a connection, and the validity of its certificate |
//! | [`certificate`] | the names in a client's certificate |
//! | [`validity`] | the expiry of a certificate |

mod certificate;
mod handshake;
mod material;
mod metrics;
mod peer;
mod port;
mod settings;
mod validity;
mod which_port;

pub use self::certificate::PeerCertificate;
pub(crate) use self::handshake::accept;
pub use self::metrics::TlsMetrics;
pub use self::peer::Peer;
pub use self::port::{TlsPort, TlsPorts};
pub use self::settings::{PortTls, TlsSettings};
pub use self::which_port::Port;
