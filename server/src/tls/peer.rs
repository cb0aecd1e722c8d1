//! The other end of a connection, and how long its certificate is valid.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::sync::watch;

use super::certificate::PeerCertificate;
use super::port::TlsPort;
use super::validity::not_after;
use crate::connections::Connection;
use credence_runtime::client_limits::NoPlace;
use credence_runtime::metrics::labels;
use credence_runtime::time::unix_seconds;

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    presented: Option<Presented>,
    /// A weak reference, so that it does not hold the connection's place.
    connection: Weak<Connection>,
}

/// A certificate that was verified when the connection began.
#[derive(Debug, Clone)]
struct Presented {
    certificate: Arc<PeerCertificate>,
    /// Becomes false when the certificate expires, or no configured authority has signed it.
    is_valid: watch::Receiver<bool>,
}

// === impl Peer ===

impl Peer {
    /// The other end of this connection, before it has sent a certificate.
    #[must_use]
    pub fn new(address: SocketAddr, connection: &Arc<Connection>) -> Self {
        Self {
            address,
            presented: None,
            connection: Arc::downgrade(connection),
        }
    }

    /// Notes that a request or stream of the peer was accepted, with this credential if one was presented. Its
    /// connection is not closed for others, permanently or until a [release](Self::release).
    ///
    /// # Errors
    /// The credential has used its share of the connections.
    pub fn accept(&self, credential: Option<&str>) -> Result<(), NoPlace> {
        let connection = self.connection.upgrade();
        connection.map_or(Ok(()), |connection| connection.accept(credential))
    }

    /// Notes that an [accepted](Self::accept) stream has ended.
    pub fn release(&self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.release();
        }
    }

    /// Closes the connection.
    pub fn close(&self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.closing.cancel();
        }
    }

    /// Notes the peer's certificate, which was verified with its intermediates, and watches its validity. The
    /// connection ends soon after the certificate becomes invalid.
    pub(super) fn show(&mut self, chain: Vec<CertificateDer<'static>>, port: &TlsPort) {
        let Some((certificate, expires)) = chain.first().and_then(|certificate| {
            let names = PeerCertificate::read(certificate)?;
            Some((Arc::new(names), not_after(certificate)?))
        }) else {
            return;
        };
        let (validity, is_valid) = watch::channel(true);
        self.presented = Some(Presented { certificate, is_valid });
        let connection = self.connection.clone();
        let mut changes = port.changes();
        let withdrawn = port.metrics.withdrawn.clone();
        let label = labels([("port", port.port.name())]);
        tokio::spawn(async move {
            tokio::select! {
                () = withdrawal(&mut changes, &chain, expires) => {}
                // The connection has ended.
                () = validity.closed() => return,
            }
            withdrawn.get_or_create(&label).inc();
            validity.send_replace(false);
            // Streams end first, with a status.
            tokio::time::sleep(CUT_DELAY).await;
            if let Some(connection) = connection.upgrade() {
                connection.closing.cancel();
            }
        });
    }

    /// The peer's certificate, if it is still valid.
    #[must_use]
    pub fn certificate(&self) -> Option<&Arc<PeerCertificate>> {
        let presented = self.presented.as_ref()?;
        (*presented.is_valid.borrow()).then_some(&presented.certificate)
    }

    /// Resolves once the certificate becomes invalid; never, if there is none.
    pub async fn withdrawn(&mut self) {
        match &mut self.presented {
            // An error means that the watcher has ended.
            Some(presented) => drop(presented.is_valid.wait_for(|is_valid| !is_valid).await.map(drop)),
            None => std::future::pending().await,
        }
    }
}

/// Resolves once the certificate has expired, or no configured authority has signed it.
async fn withdrawal(
    changes: &mut watch::Receiver<Arc<super::material::Material>>,
    chain: &[CertificateDer<'_>],
    expires: i64,
) {
    loop {
        let now = unix_seconds();
        let accepted = changes.borrow_and_update().accepts(chain, now);
        // Sleeps in short steps, because the wall clock may be set.
        let left = u64::try_from(expires.saturating_sub(now)).unwrap_or_default();
        if !accepted || left == 0 {
            return;
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() {
                return;
            },
            () = tokio::time::sleep(Duration::from_secs(left.min(MAX_STEP_SECONDS))) => {}
        }
    }
}

/// How long a connection stays open after its certificate became invalid, so that its streams can send their status. It
/// is short, because no request is accepted meanwhile, and a client that tries one loses time.
const CUT_DELAY: Duration = Duration::from_millis(100);
const MAX_STEP_SECONDS: u64 = 60;
