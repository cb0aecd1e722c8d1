//! The credentials in force, which can be replaced while everything runs.

use std::sync::Arc;

use axum::http::HeaderMap;
use tokio::sync::watch;

use credence_runtime::caller::Caller;

use super::bearer;
use super::holders::{Access, TokenDigest};
use super::peer::PeerCertificate;
use super::permission::{Permission, Refusal};
use crate::settings::GrpcAccess;

/// Who may do what right now. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub(crate) struct AccessControl(watch::Sender<Arc<InForce>>);

/// What somebody has shown once, to be judged again whenever something changes.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) token: Option<TokenDigest>,
    pub(crate) certificate: Option<Arc<PeerCertificate>>,
}

#[derive(Debug)]
pub(super) struct InForce {
    access: Access,
    grpc: GrpcAccess,
}

// === impl Credentials ===

impl Credentials {
    /// What comes with a request. Two tokens, or another scheme than Bearer, are as good as a wrong token.
    pub(crate) fn of(headers: &HeaderMap, certificate: Option<Arc<PeerCertificate>>) -> Result<Self, Refusal> {
        let token = bearer::token(headers)?.map(TokenDigest::of);
        Ok(Self { token, certificate })
    }
}

// === impl AccessControl ===

impl AccessControl {
    pub(crate) fn new(access: Access, grpc: GrpcAccess) -> Self {
        Self(watch::Sender::new(Arc::new(InForce { access, grpc })))
    }

    /// From now on these count, and no others.
    pub(crate) fn replace(&self, access: Access, grpc: GrpcAccess) {
        self.0.send_replace(Arc::new(InForce { access, grpc }));
    }

    /// As [`Access::authorize`], by what is in force.
    pub(crate) fn authorize(
        &self,
        shown: &Credentials,
        permission: Permission,
        now: i64,
    ) -> Result<Arc<Caller>, Refusal> {
        let certificate = shown.certificate.as_deref();
        self.in_force()
            .access
            .authorize(shown.token, certificate, permission, now)
    }

    /// The same on the gRPC port. Where it is open, a caller without a token is let in, as an anonymous caller; a token
    /// that is shown has to be good for it all the same.
    ///
    /// A caller that is bound to issuers may not watch there. Each update carries the digest of the whole history, which
    /// filters check, so that none can be left out; and a filter that was not told of some revocations would allow what is
    /// revoked.
    pub(crate) fn authorize_grpc(
        &self,
        shown: &Credentials,
        permission: Permission,
        now: i64,
    ) -> Result<Option<Arc<Caller>>, Refusal> {
        let in_force = self.in_force();
        let certificate = shown.certificate.as_deref();
        let authorized = in_force.access.authorize(shown.token, certificate, permission, now);
        match authorized {
            Err(_) if in_force.grpc == GrpcAccess::Open && shown.token.is_none() => Ok(None),
            Ok(caller) if permission == Permission::Watch && !caller.covers_everything() => Err(Refusal::PartOfLog {
                name: caller.name.clone(),
            }),
            authorized => authorized.map(Some),
        }
    }

    /// Hears of every replacement: whoever serves somebody for long has to ask again then.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<InForce>> {
        self.0.subscribe()
    }

    fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.0.borrow())
    }
}
