//! How connections begin: handshakes run beside each other, bounded in number and in time, and a peer that stalls its
//! own keeps nobody else waiting.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{CertificateError, InvalidMessage};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::peer::Peer;
use super::port::TlsPort;
use crate::net::{BoundedListener, BoundedStream};
use credence_runtime::metrics::labels;
use credence_runtime::throttle::Throttle;

/// The connections of a listener, without end, each ready to be spoken on. The listener is closed once the receiver is
/// dropped. Without `tls` the port speaks plain text.
pub(crate) fn connections(
    listener: BoundedListener,
    tls: Option<TlsPort>,
    limit: Duration,
) -> mpsc::Receiver<BoundedStream> {
    let (sender, receiver) = mpsc::channel(1);
    match tls {
        None => tokio::spawn(accept_plain(listener, sender)),
        Some(tls) => tokio::spawn(accept_tls(listener, tls, limit, sender)),
    };
    receiver
}

async fn accept_plain(listener: BoundedListener, sender: mpsc::Sender<BoundedStream>) {
    while let Ok(place) = sender.reserve().await {
        tokio::select! {
            stream = listener.accept() => place.send(stream),
            () = sender.closed() => return,
        }
    }
}

async fn accept_tls(listener: BoundedListener, tls: TlsPort, limit: Duration, sender: mpsc::Sender<BoundedStream>) {
    let throttle = Arc::new(Throttle::default());
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            stream = listener.accept() => {
                let (tls, throttle, sender) = (tls.clone(), Arc::clone(&throttle), sender.clone());
                running.spawn(async move {
                    // Until the end of the handshake nothing reads from the stream, which would notice it.
                    let evicted = stream.evicted();
                    let begun = tokio::select! {
                        begun = tokio::time::timeout(limit, begin(stream, &tls)) => {
                            begun.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
                        }
                        () = evicted.cancelled() => Err(io::ErrorKind::QuotaExceeded.into()),
                    };
                    match begun {
                        // An error means that the server has ended.
                        Ok(stream) => drop(sender.send(stream).await),
                        Err(error) => report(&tls, &throttle, &error),
                    }
                });
            }
            Some(_) = running.join_next() => {}
            () = sender.closed() => return,
        }
    }
}

async fn begin(stream: BoundedStream, tls: &TlsPort) -> io::Result<BoundedStream> {
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.current().config));
    stream
        .secured(acceptor, |address, chain| match chain {
            Some(chain) => Peer::verified(address, chain, tls),
            None => (Peer::unknown(address), None),
        })
        .await
}

/// Counts a connection that could not begin, and says why.
fn report(tls: &TlsPort, throttle: &Throttle, error: &io::Error) {
    let (reason, cure) = reason(error);
    let port = tls.port.name();
    let failure = labels([("port", port), ("reason", reason)]);
    tls.metrics.handshake_failures.get_or_create(&failure).inc();
    if reason == CLOSED {
        tracing::debug!(port, %error, "a peer went away before TLS had begun");
        return;
    }
    // `/metrics` counts each of them. They cost a stranger nothing, so they must not cost us a line each.
    if let Some(failed) = throttle.count(Instant::now()) {
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

/// Why a connection could not begin, as metrics name it, and what can be done about it.
fn reason(error: &io::Error) -> (&'static str, &'static str) {
    let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) else {
        return match error.kind() {
            io::ErrorKind::TimedOut => ("timeout", "the peer did not finish in time"),
            io::ErrorKind::QuotaExceeded => (
                "too_many",
                "the port, or the share of the peer's address, is full, and the handshake made room for another connection; find \
                 out what the address is doing",
            ),
            _ => (CLOSED, "the peer went away"),
        };
    };
    match error {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => (
            "not_tls",
            "the peer speaks no TLS; give its Envoy cluster a transport_socket, or use an https:// URL",
        ),
        rustls::Error::NoCertificatesPresented => (
            "no_certificate",
            "the peer showed no certificate, which this port asks for; give it one signed by an authority in \
             client_ca",
        ),
        rustls::Error::InvalidCertificate(error) => match error {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => (
                "expired_certificate",
                "the peer's certificate has ended or has not begun; renew it, or set the clocks",
            ),
            CertificateError::UnknownIssuer | CertificateError::BadSignature => (
                "unknown_authority",
                "no authority in client_ca has signed the peer's certificate; add its authority there, or have the \
                 peer's intermediate certificates sent along",
            ),
            _ => (
                "bad_certificate",
                "the peer's certificate cannot be used; it has to be one of X.509 version 3 for client \
                 authentication",
            ),
        },
        rustls::Error::AlertReceived(_) => (
            "refused_by_peer",
            "the peer does not take this port's certificate or protocol; look at its trusted authorities and at the \
             name it expects",
        ),
        _ => (
            "protocol",
            "the peer speaks TLS that this port does not: it takes versions 1.2 and 1.3, with ALPN h2 for gRPC and \
             http/1.1 for HTTP",
        ),
    }
}

/// Probes of the port end like this all the time.
const CLOSED: &str = "closed";
