//! The credentials, and the permissions of each.

use std::collections::HashMap;
use std::sync::Arc;

use credence_runtime::caller::Caller;
use credence_server::{PeerCertificate, Port};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::permission::{Permission, Refusal};
use crate::settings::{AccessSettings, CertificateSettings, GrpcAccess, Role};

/// The credentials in force. They can be replaced while the control plane runs. Clones share them, and subscribers are
/// notified of every replacement.
pub(crate) type AccessControl = watch::Sender<Access>;

/// Every credential.
#[derive(Debug)]
pub(crate) struct Access {
    grpc: GrpcAccess,
    by_token: HashMap<TokenDigest, Holder>,
    by_certificate: Vec<(CertificateSettings, Holder)>,
}

/// The SHA-256 of a bearer token. Tokens are random, so no slower hash is needed, and looking a digest up in a table
/// reveals nothing about the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenDigest(pub(crate) [u8; 32]);

/// The credentials that a client presented, to be checked again whenever the settings change.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) token: Option<TokenDigest>,
    pub(crate) certificate: Option<Arc<PeerCertificate>>,
}

/// A credential, and its permissions.
#[derive(Debug)]
struct Holder {
    caller: Arc<Caller>,
    roles: Vec<Role>,
    /// The credential is invalid from this second on, since the Unix epoch.
    expires: Option<i64>,
}

// === impl Access ===

impl Access {
    /// The credentials of the settings and, if there is one, the operator's token.
    pub(crate) fn new(settings: &AccessSettings, grpc: GrpcAccess, operator: Option<TokenDigest>) -> Self {
        let tokens = settings.tokens.iter().map(|token| {
            let holder = Holder::new(&token.name, &token.roles, token.issuers.as_ref(), token.expires);
            (TokenDigest(token.sha256), holder)
        });
        let operator = operator.map(|digest| (digest, Holder::new("operator", &[Role::Admin], None, None)));
        let by_token = tokens.chain(operator).collect();
        let certificates = settings.certificates.iter().map(|entry| {
            let holder = Holder::new(&entry.name, &entry.roles, entry.issuers.as_ref(), None);
            (entry.clone(), holder)
        });
        let by_certificate = certificates.collect();
        Self {
            grpc,
            by_token,
            by_certificate,
        }
    }

    /// As [`authorize`](Self::authorize), on the gRPC port. If the port is open, a caller without a token is accepted
    /// as an anonymous caller. A token that is presented must still be valid for it.
    ///
    /// A caller that is bound to issuers may not watch there. Each update carries the digest of the whole history,
    /// which filters check, so no update can be left out. A filter that missed some revocations would allow revoked
    /// delegations.
    pub(crate) fn authorize_on(
        &self,
        port: Port,
        shown: &Credentials,
        permission: Permission,
        now: i64,
    ) -> Result<Option<Arc<Caller>>, Refusal> {
        let authorized = self.authorize(shown.token, shown.certificate.as_deref(), permission, now);
        match authorized {
            authorized if port == Port::Http => authorized.map(Some),
            Err(_) if self.grpc == GrpcAccess::Open && shown.token.is_none() => Ok(None),
            Ok(caller) if permission == Permission::Watch && !caller.covers_everything() => Err(Refusal::PartOfLog {
                name: caller.name.clone(),
            }),
            authorized => authorized.map(Some),
        }
    }

    /// The caller with these credentials, if it has the permission. A token takes precedence over a certificate: an
    /// unknown token is refused, even with a known certificate. `now` is in seconds since the Unix epoch.
    fn authorize(
        &self,
        token: Option<TokenDigest>,
        certificate: Option<&PeerCertificate>,
        permission: Permission,
        now: i64,
    ) -> Result<Arc<Caller>, Refusal> {
        let holder = match token {
            Some(token) => self.by_token.get(&token),
            None => certificate.and_then(|certificate| self.of_certificate(certificate)),
        };
        let holder = holder.ok_or(Refusal::Unknown)?;
        let name = || holder.caller.name.clone();
        if holder.expires.is_some_and(|expires| now >= expires) {
            return Err(Refusal::Expired { name: name() });
        }
        if !holder.roles.iter().any(|role| permission.is_of(*role)) {
            let roles = permission.roles();
            return Err(Refusal::Forbidden { name: name(), roles });
        }
        Ok(Arc::clone(&holder.caller))
    }

    /// The first configured entry that the certificate matches.
    fn of_certificate(&self, certificate: &PeerCertificate) -> Option<&Holder> {
        self.by_certificate
            .iter()
            .find(|(settings, _)| settings.subject.matches(certificate))
            .map(|(_, holder)| holder)
    }
}

// === impl TokenDigest ===

impl TokenDigest {
    pub(crate) fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }
}

impl std::fmt::Debug for TokenDigest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TokenDigest(..)")
    }
}

// === impl Holder ===

impl Holder {
    fn new(name: &str, roles: &[Role], issuers: Option<&Vec<String>>, expires: Option<i64>) -> Self {
        Self {
            caller: Arc::new(Caller::new(name.to_owned(), issuers.cloned())),
            roles: roles.to_vec(),
            expires,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{CertificateSubject, TokenSettings};

    const NOW: i64 = 1_800_000_000;

    fn token(name: &str, roles: &[Role]) -> TokenSettings {
        TokenSettings {
            name: name.to_owned(),
            sha256: TokenDigest::of(name.as_bytes()).0,
            roles: roles.to_vec(),
            issuers: None,
            expires: None,
        }
    }

    fn envoys() -> CertificateSettings {
        CertificateSettings {
            name: "envoys".to_owned(),
            subject: CertificateSubject::Uri("spiffe://mesh/ns/*".to_owned()),
            roles: vec![Role::Filter],
            issuers: None,
        }
    }

    fn access(tokens: Vec<TokenSettings>) -> Access {
        let settings = AccessSettings {
            tokens,
            certificates: vec![envoys()],
            grpc: None,
        };
        Access::new(&settings, GrpcAccess::Required, None)
    }

    fn peer(uri: &str) -> PeerCertificate {
        PeerCertificate {
            uris: vec![uri.to_owned()],
            dns: Vec::new(),
            ..PeerCertificate::default()
        }
    }

    #[test]
    fn a_watcher_may_not_revoke() {
        let access = access(vec![token("w", &[Role::Watcher])]);
        access
            .authorize(Some(TokenDigest::of(b"w")), None, Permission::Watch, NOW)
            .unwrap();
        let refused = access
            .authorize(Some(TokenDigest::of(b"w")), None, Permission::Revoke, NOW)
            .unwrap_err();
        let expected = Refusal::Forbidden {
            name: "w".to_owned(),
            roles: "admin, revoker".to_owned(),
        };
        assert_eq!(refused, expected);
        let certificate = peer("spiffe://mesh/ns/shop/sa/envoy");
        access
            .authorize(None, Some(&certificate), Permission::Watch, NOW)
            .unwrap();
        access
            .authorize(None, Some(&certificate), Permission::Revoke, NOW)
            .unwrap_err();
    }

    #[test]
    fn an_unknown_token_is_refused_even_with_a_known_certificate() {
        let certificate = peer("spiffe://mesh/ns/shop/sa/envoy");
        let refused = access(Vec::new()).authorize(
            Some(TokenDigest::of(b"guess")),
            Some(&certificate),
            Permission::Watch,
            NOW,
        );
        assert_eq!(refused, Err(Refusal::Unknown));
    }

    #[test]
    fn a_credential_ends_at_its_expiry() {
        let expiring = TokenSettings {
            expires: Some(NOW),
            ..token("t", &[Role::Admin])
        };
        let access = access(vec![expiring]);
        access
            .authorize(Some(TokenDigest::of(b"t")), None, Permission::Revoke, NOW - 1)
            .unwrap();
        let refused = access.authorize(Some(TokenDigest::of(b"t")), None, Permission::Revoke, NOW);
        assert_eq!(refused, Err(Refusal::Expired { name: "t".to_owned() }));
    }

    #[test]
    fn a_caller_without_credentials_is_unknown() {
        let refused = access(Vec::new()).authorize(None, None, Permission::Watch, NOW);
        assert_eq!(refused, Err(Refusal::Unknown));
    }
}
