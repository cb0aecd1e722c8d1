//! TLS handshakes of connections: within a time limit, and only while the connection keeps its place.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, InvalidMessage};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::peer::Peer;
use super::port::TlsPort;
use credence_runtime::metrics::count;

/// Runs the handshake within `limit`, and notes the peer's certificate. None if it fails, which is counted, or if the
/// connection is evicted first.
pub(crate) async fn accept(
    stream: TcpStream,
    tls: &TlsPort,
    peer: &mut Peer,
    evicted: &CancellationToken,
    limit: Duration,
) -> Option<TlsStream<TcpStream>> {
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.current().config));
    let begun = tokio::select! {
        begun = tokio::time::timeout(limit, acceptor.accept(stream)) => {
            begun.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
        () = evicted.cancelled() => Err(io::ErrorKind::QuotaExceeded.into()),
    };
    let stream = begun.inspect_err(|error| report(tls, error)).ok()?;
    if let Some(chain) = stream.get_ref().1.peer_certificates() {
        peer.show(chain.iter().cloned().map(CertificateDer::into_owned).collect(), tls);
    }
    Some(stream)
}

/// Counts and logs a failed handshake.
fn report(tls: &TlsPort, error: &io::Error) {
    let (reason, cure) = reason(error);
    let port = tls.port.name();
    count(&tls.metrics.handshake_failures, [("port", port), ("reason", reason)]);
    if reason == CLOSED {
        tracing::debug!(port, %error, "a peer went away before TLS had begun");
        return;
    }
    // `/metrics` counts each of them. Any client can cause failures, so not every one is logged.
    if let Some(failed) = tls.failures.count(Instant::now()) {
        tracing::warn!(
            port,
            failed,
            reason,
            last = %error,
            "TLS handshakes failed since the last such line; the last one: {}",
            cure
        );
    }
}

/// The reason of a failure in metrics, and the fix.
fn reason(error: &io::Error) -> (&'static str, &'static str) {
    let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) else {
        return match error.kind() {
            io::ErrorKind::TimedOut => ("timeout", "the peer did not finish in time"),
            io::ErrorKind::QuotaExceeded => (
                "too_many",
                "the port, or the share of the peer's address, is full, and the handshake made room for another \
                 connection; find out what the address is doing",
            ),
            _ => (CLOSED, "the peer went away"),
        };
    };
    match error {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => (
            "not_tls",
            "the peer does not use TLS; give its Envoy cluster a transport_socket, or use an https:// URL",
        ),
        rustls::Error::NoCertificatesPresented => (
            "no_certificate",
            "the peer sent no certificate, which this port requires; give it one signed by an authority in \
             client_ca",
        ),
        rustls::Error::InvalidCertificate(error) => match error {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => (
                "expired_certificate",
                "the peer's certificate has expired or is not valid yet; renew it, or correct the clocks",
            ),
            CertificateError::UnknownIssuer | CertificateError::BadSignature => (
                "unknown_authority",
                "no authority in client_ca has signed the peer's certificate; add its authority there, or have the \
                 peer send its intermediate certificates",
            ),
            _ => (
                "bad_certificate",
                "the peer's certificate cannot be used; it must be an X.509 version 3 certificate for client \
                 authentication",
            ),
        },
        rustls::Error::AlertReceived(_) => (
            "refused_by_peer",
            "the peer does not accept this port's certificate or protocol; check its trusted authorities and the \
             name it expects",
        ),
        _ => (
            "protocol",
            "the peer uses TLS that this port does not support: it accepts versions 1.2 and 1.3, with ALPN h2 for gRPC \
             and http/1.1 for HTTP",
        ),
    }
}

/// Probes of the port end like this all the time.
const CLOSED: &str = "closed";
