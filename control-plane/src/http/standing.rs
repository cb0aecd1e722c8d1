//! Whether whoever opened a stream could still open it, and would see the same.

use std::sync::Arc;
use std::time::Duration;

use crate::access::{AccessControl, Credentials, Permission, Refusal};
use crate::tls::Peer;
use credence_runtime::caller::Caller;
use credence_runtime::time::unix_seconds;

/// What was shown when a stream was opened, to be judged again for as long as it is open.
pub(crate) struct Standing {
    access: AccessControl,
    permission: Permission,
    caller: Arc<Caller>,
    peer: Peer,
    shown: Credentials,
}

/// Why a stream can not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fall {
    /// The token's time has come.
    Expired,
    /// A reload took the credential or its permission away, or changed whose principals it is about; or its certificate no
    /// longer counts.
    Withdrawn,
}

// === impl Standing ===

impl Standing {
    pub(crate) fn new(
        access: &AccessControl,
        permission: Permission,
        caller: Arc<Caller>,
        peer: Peer,
        shown: Credentials,
    ) -> Self {
        Self {
            access: access.clone(),
            permission,
            caller,
            peer,
            shown,
        }
    }

    /// Resolves once the stream can not go on.
    pub(crate) async fn fall(mut self) -> Fall {
        // Heard before the first look: no reload falls between the two.
        let mut changes = self.access.changes();
        loop {
            let authorized = self.access.authorize(&self.shown, self.permission, unix_seconds());
            match authorized {
                Ok(caller) if caller.covers_as_much_as(&self.caller) => {}
                Err(Refusal::Expired { .. }) => return Fall::Expired,
                Ok(_) | Err(_) => return Fall::Withdrawn,
            }
            tokio::select! {
                () = changes.next() => {}
                () = self.peer.withdrawn() => return Fall::Withdrawn,
                () = tokio::time::sleep(EXPIRY_INTERVAL) => {}
            }
        }
    }
}

/// How often it is looked whether a token has expired.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);
