//! Permissions, and why a caller is refused.

use strum::VariantArray as _;

use crate::settings::Role;

/// A permission of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Revoke, disable and enable.
    Revoke,
    /// Read a principal's epoch, history and live delegations.
    ReadPrincipals,
    /// Follow the revocations, and check whether a delegation is revoked.
    Watch,
    /// Read evidence.
    ReadAudit,
    /// Make the evidence about a principal unreadable.
    EraseAudit,
    /// Report decisions on the gRPC port, as a filter does.
    Report,
    /// Report decisions over HTTP.
    WriteAudit,
    /// Provision users by SCIM.
    Provision,
    /// Push security event tokens.
    Transmit,
}

/// Why a caller is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("send a token as Authorization: Bearer <token>, once, or a client certificate that is configured")]
    Unknown,
    #[error("the credential {name:?} has expired; request a new one")]
    Expired { name: String },
    #[error("the credential {name:?} lacks the permission for this; it needs one of the roles {roles}")]
    Forbidden { name: String, roles: String },
    #[error(
        "the credential {name:?} is bound to issuers (access: issuers), but a filter follows the whole log: give \
         filters a credential without issuers; this one may follow its issuers' revocations at GET \
         /v1/revocations/stream"
    )]
    PartOfLog { name: String },
    #[error("the issuers that the credential {name:?} is bound to have changed (access: issuers); connect again")]
    OtherIssuers { name: String },
    /// Ends a stream.
    #[error(
        "the client certificate of this connection has expired, or its authority is no longer in \
         client_ca; connect again with a new one"
    )]
    CertificateWithdrawn,
}

// === impl Permission ===

impl Permission {
    /// As in the table of docs/operate/control-plane.md.
    pub(super) fn is_of(self, role: Role) -> bool {
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

    pub(super) fn roles(self) -> String {
        let roles = Role::VARIANTS.iter().filter(|role| self.is_of(**role));
        let names: Vec<_> = roles.map(|role| role.name()).collect();
        names.join(", ")
    }
}
