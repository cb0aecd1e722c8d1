//! Checks, while a stream is open, that its client could still open it and would see the same.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use credence_runtime::caller::{Caller, PeerName};
use credence_runtime::time::unix_seconds;
use credence_server::{Peer, PeerCertificate, Port};

use super::bearer;
use super::holders::{AccessControl, Credentials, TokenDigest};
use super::permission::{Permission, Refusal};

/// The credentials with which a stream was opened. They are checked again for as long as it is open.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    access: AccessControl,
    pub(crate) permission: Permission,
    pub(crate) peer: Peer,
    shown: Credentials,
    /// The caller, if a credential was presented.
    pub(crate) caller: Option<Arc<Caller>>,
    port: Port,
}

// === impl Session ===

impl Session {
    /// The session of a request on this port with these headers.
    pub(crate) fn open(
        access: &AccessControl,
        (port, permission): (Port, Permission),
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<Self, Refusal> {
        let mut session = Self {
            access: access.clone(),
            permission,
            shown: Credentials {
                token: bearer::token(headers)?.map(TokenDigest::of),
                // It may have become invalid since the last request of its connection.
                certificate: peer.certificate().cloned(),
            },
            peer: peer.clone(),
            caller: None,
            port,
        };
        session.caller = session.authorize()?;
        Ok(session)
    }

    fn authorize(&self) -> Result<Option<Arc<Caller>>, Refusal> {
        let access = self.access.borrow();
        access.authorize_on(self.port, &self.shown, self.permission, unix_seconds())
    }

    /// The certificate's own name, if a certificate was presented, because one entry of the settings may match many of
    /// them; else the credential's name.
    pub(crate) fn peer_name(&self) -> Option<PeerName> {
        let certificate = self.shown.certificate.as_deref().filter(|_| self.shown.token.is_none());
        certificate
            .and_then(PeerCertificate::name)
            .or(self.caller.as_ref().map(|caller| caller.name.as_str()))
            .map(|name| PeerName(name.to_owned()))
    }

    /// Resolves once the stream must end.
    pub(crate) async fn ended(mut self) -> Refusal {
        // Subscribed before the first check, so that no reload falls between the two.
        let mut changes = self.access.subscribe();
        loop {
            if let Err(refusal) = self.check() {
                return refusal;
            }
            tokio::select! {
                // Never an error, because `access` is the sender.
                _ = changes.changed() => {}
                () = self.peer.withdrawn() => return Refusal::CertificateWithdrawn,
                () = tokio::time::sleep(EXPIRY_CHECK_INTERVAL) => {}
            }
        }
    }

    fn check(&self) -> Result<(), Refusal> {
        match (&self.caller, self.authorize()?) {
            (Some(before), Some(now)) if !now.covers_as_much_as(before) => {
                Err(Refusal::OtherIssuers { name: now.name.clone() })
            }
            // On an open port, a credential may become valid or invalid while the stream continues: the stream could
            // have been opened without it.
            _ => Ok(()),
        }
    }
}

/// How often the expiry of a token is checked.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(1);
