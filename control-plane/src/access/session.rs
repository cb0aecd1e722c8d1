//! Whether the client that opened a stream could still open it, and would see the same.

use std::sync::Arc;
use std::time::Duration;

use credence_runtime::caller::Caller;
use credence_runtime::time::unix_seconds;

use super::control::{AccessControl, Credentials};
use super::permission::{Permission, Refusal};
use crate::tls::Peer;

/// What was shown when a stream was opened, to be checked again for as long as it is open.
pub(crate) struct Session {
    pub(crate) access: AccessControl,
    pub(crate) permission: Permission,
    pub(crate) peer: Peer,
    pub(crate) shown: Credentials,
    /// Whose stream it is, if a credential was shown.
    pub(crate) caller: Option<Arc<Caller>>,
    /// Which port it was opened on.
    pub(crate) door: Door,
}

/// Where a stream was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    Http,
    Grpc,
}

/// Why a stream can not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// The credential has expired, or a reload took it or its permission away, or bound it to other issuers.
    Refused(Refusal),
    /// The client certificate no longer counts.
    CertificateWithdrawn,
}

// === impl Session ===

impl Session {
    /// Resolves once the stream can not go on.
    pub(crate) async fn ended(mut self) -> SessionEnd {
        // Heard before the first check: no reload falls between the two.
        let mut changes = self.access.changes();
        loop {
            if let Err(refusal) = self.check() {
                return SessionEnd::Refused(refusal);
            }
            tokio::select! {
                // Never an error: `access` sends them.
                _ = changes.changed() => {}
                () = self.peer.withdrawn() => return SessionEnd::CertificateWithdrawn,
                () = tokio::time::sleep(EXPIRY_CHECK_INTERVAL) => {}
            }
        }
    }

    fn check(&self) -> Result<(), Refusal> {
        let now = unix_seconds();
        let caller = match self.door {
            Door::Http => self.access.authorize(&self.shown, self.permission, now).map(Some),
            Door::Grpc => self.access.authorize_grpc(&self.shown, self.permission, now),
        }?;
        match (&self.caller, caller) {
            (Some(before), Some(now)) if !now.covers_as_much_as(before) => {
                Err(Refusal::OtherIssuers { name: now.name.clone() })
            }
            // On an open port a credential may come to count, or stop counting, while the stream goes on without it: it
            // could have been opened without.
            _ => Ok(()),
        }
    }
}

/// How often it is checked whether a token has expired.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(1);
