//! Who may do what: credentials, the roles they are given, and what each role is good for.
//!
//! A caller is known by a bearer token, of which only the SHA-256 is stored, or by the certificate that his TLS
//! connection was opened with. Whoever may watch may not revoke: every route and every gRPC service asks for one
//! [`Permission`].

mod bearer;
mod control;
mod gate;
mod operator_token;
mod peer;
mod supervised;

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

pub(crate) use self::control::{AccessControl, Credentials};
pub(crate) use self::gate::{Gate, peer_name};
pub use self::operator_token::OperatorTokenError;
pub(crate) use self::operator_token::read_operator_token;
pub(crate) use self::peer::PeerCertificate;
use crate::settings::{AccessSettings, CertificateSettings, Role, TokenSettings};
use credence_runtime::caller::Caller;

/// Every credential.
#[derive(Debug, Default)]
pub(crate) struct Access {
    by_token: HashMap<TokenDigest, Holder>,
    by_certificate: Vec<(CertificateSettings, Holder)>,
}

/// The SHA-256 of a bearer token: tokens are random, so that nothing slower is needed, and finding a digest in a table
/// tells nobody anything about the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenDigest(pub(crate) [u8; 32]);

/// A credential, and what it is good for.
#[derive(Debug)]
struct Holder {
    caller: Arc<Caller>,
    roles: Vec<Role>,
    /// From this second on, since the Unix epoch, the credential is worth nothing.
    expires: Option<i64>,
}

/// One thing that a caller may or may not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Revoke, disable and enable.
    Revoke,
    /// Look at a principal's epoch, history and live delegations.
    ReadPrincipals,
    /// Follow the revocations, and ask whether a delegation is void.
    Watch,
    /// Read the evidence of decisions.
    ReadAudit,
    /// Make what is known of a principal unreadable.
    EraseAudit,
    /// Send the evidence of decisions as a filter does, on the gRPC port.
    Report,
    /// Send the evidence of decisions over HTTP.
    WriteAudit,
    /// Provision users by SCIM.
    Provision,
    /// Push security event tokens.
    Transmit,
}

/// Why a caller is turned away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("send a token as Authorization: Bearer <token>, once, or a client certificate that is configured")]
    Unknown,
    #[error("the credential {name:?} has expired; ask for a new one")]
    Expired { name: String },
    #[error("the credential {name:?} lacks the permission for this; it takes one of the roles {roles}")]
    Forbidden { name: String, roles: String },
    #[error(
        "the credential {name:?} is bound to issuers (access: issuers), and a filter follows the whole log: give filters a \
         credential without issuers; this one may follow what concerns its issuers at GET /v1/revocations/stream"
    )]
    PartOfLog { name: String },
    #[error("the issuers that the credential {name:?} is bound to have changed (access: issuers); connect again")]
    OtherIssuers { name: String },
}

// === impl Access ===

impl Access {
    /// The credentials of the settings and, if there is one, the operator's token.
    pub(crate) fn new(settings: &AccessSettings, operator: Option<TokenDigest>) -> Self {
        let mut by_token: HashMap<_, _> = settings
            .tokens
            .iter()
            .map(|token| (TokenDigest(token.sha256), Holder::of_token(token)))
            .collect();
        if let Some(digest) = operator {
            by_token.insert(digest, Holder::new("operator", vec![Role::Admin], None, None));
        }
        let by_certificate = settings
            .certificates
            .iter()
            .map(|certificate| (certificate.clone(), Holder::of_certificate(certificate)))
            .collect();
        Self {
            by_token,
            by_certificate,
        }
    }

    /// Who presents these credentials, if he may do this. A token counts before a certificate; one that is unknown is
    /// refused, whatever certificate comes with it. `now` is seconds since the Unix epoch.
    pub(crate) fn authorize(
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
        if holder.has_expired(now) {
            return Err(Refusal::Expired { name: name() });
        }
        if !holder.may(permission) {
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
    fn new(name: &str, roles: Vec<Role>, issuers: Option<Vec<String>>, expires: Option<i64>) -> Self {
        Self {
            caller: Arc::new(Caller::new(name.to_owned(), issuers)),
            roles,
            expires,
        }
    }

    fn of_token(settings: &TokenSettings) -> Self {
        let (roles, issuers) = (settings.roles.clone(), settings.issuers.clone());
        Self::new(&settings.name, roles, issuers, settings.expires)
    }

    fn of_certificate(settings: &CertificateSettings) -> Self {
        Self::new(&settings.name, settings.roles.clone(), settings.issuers.clone(), None)
    }

    fn may(&self, permission: Permission) -> bool {
        self.roles.iter().any(|role| permission.is_of(*role))
    }

    fn has_expired(&self, now: i64) -> bool {
        self.expires.is_some_and(|expires| now >= expires)
    }
}

// === impl Permission ===

impl Permission {
    /// The table of docs/control-plane.md.
    fn is_of(self, role: Role) -> bool {
        match role {
            Role::Admin => true,
            Role::Revoker => matches!(self, Self::Revoke | Self::ReadPrincipals | Self::Watch),
            Role::Watcher => self == Self::Watch,
            Role::Auditor => matches!(self, Self::ReadAudit | Self::ReadPrincipals),
            Role::Filter => matches!(self, Self::Watch | Self::Report),
            Role::Reporter => self == Self::WriteAudit,
            Role::Provisioner => self == Self::Provision,
            Role::Transmitter => self == Self::Transmit,
        }
    }

    fn roles(self) -> String {
        let names: Vec<_> = Role::ALL
            .into_iter()
            .filter(|role| self.is_of(*role))
            .map(Role::name)
            .collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::CertificateSubject;

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
        Access::new(&settings, None)
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
