//! The credentials, and what each is good for.

use std::collections::HashMap;
use std::sync::Arc;

use credence_runtime::caller::Caller;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::peer::PeerCertificate;
use super::permission::{Permission, Refusal};
use crate::settings::{AccessSettings, CertificateSettings, GrpcAccess, Role};
use crate::tls::Port;

/// The credentials in force, which can be replaced while everything runs. All clones are one; a subscriber hears of every
/// replacement.
pub(crate) type AccessControl = watch::Sender<Access>;

/// Every credential.
#[derive(Debug)]
pub(crate) struct Access {
    grpc: GrpcAccess,
    by_token: HashMap<TokenDigest, Holder>,
    by_certificate: Vec<(CertificateSettings, Holder)>,
}

/// The SHA-256 of a bearer token: tokens are random, so that nothing slower is needed, and finding a digest in a table
/// reveals nothing about the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenDigest(pub(crate) [u8; 32]);

/// What a client has shown once, to be judged again whenever something changes.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) token: Option<TokenDigest>,
    pub(crate) certificate: Option<Arc<PeerCertificate>>,
}

/// A credential, and what it is good for.
#[derive(Debug)]
struct Holder {
    caller: Arc<Caller>,
    roles: Vec<Role>,
    /// From this second on, since the Unix epoch, the credential is worth nothing.
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

    /// As [`authorize`](Self::authorize), on this port. Where the gRPC port is open, a caller without a token is let in, as
    /// an anonymous caller; a token that is shown has to be good for it all the same.
    ///
    /// A caller that is bound to issuers may not watch there. Each update carries the digest of the whole history, which
    /// filters check, so that none can be left out; and a filter that was not told of some revocations would allow what is
    /// revoked.
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

    /// Who presents these credentials, if they may do this. A token counts before a certificate; one that is unknown is
    /// refused, even with a good certificate. `now` is seconds since the Unix epoch.
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

    /// The first configured one that the certificate is.
    fn of_certificate(&self, certificate: &PeerCertificate) -> Option<&Holder> {
        self.by_certificate
            .iter()
            .find(|(settings, _)| certificate.is(&settings.subject))
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
        }
    }

    #[test]
    fn whoever_may_watch_may_not_revoke() {
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
    fn an_unknown_token_is_not_mended_by_a_known_certificate() {
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
    fn nobody_at_all_is_unknown() {
        let refused = access(Vec::new()).authorize(None, None, Permission::Watch, NOW);
        assert_eq!(refused, Err(Refusal::Unknown));
    }
}
