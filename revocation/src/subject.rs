//! What can be revoked, parsed into types that cannot be wrong.

use credence_delegation::Thumbprint;
use credence_wire::v1;
use credence_wire::v1::record::Subject;

/// A request to change the log, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub operation: Operation,
    pub by: Requester,
    /// The caller's reason, for the history: at most 512 bytes.
    pub reason: Option<String>,
}

/// Who asks for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    pub source: Source,
    /// The name that the configuration gives the credential, the realm or the transmitter; for a statement, the
    /// thumbprint of the key that signed it.
    pub name: String,
}

/// Where a change comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A caller with a token or certificate for the operator API.
    Operator = 1,
    /// A statement that the principal, or the issuer on its behalf, has signed.
    Statement = 2,
    /// The identity provider, by SCIM (RFC 7644).
    Provisioning = 4,
    /// The identity provider, by a security event token (RFC 8417).
    SecurityEvent = 8,
}

/// What changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Voids everything granted under the principal's present epoch; where `from` is given, only if that is the
    /// present epoch.
    Raise {
        principal: PrincipalName,
        from: Option<u64>,
    },
    /// Raises, and voids everything until the same source asks for an enable.
    Disable(PrincipalName),
    /// Raises, and lifts the disables of the same source; an operator's lifts all.
    Enable(PrincipalName),
    /// Voids every chain the key occurs in.
    RevokeKey(Thumbprint),
    /// Voids every root token of the issuer with `iat` at or before this instant, seconds since the Unix epoch.
    RaiseIssuerFloor { issuer: Issuer, issued_up_to: i64 },
    /// Voids one token and everything derived from it.
    RevokeDelegation(DelegationName),
}

/// A root issuer (`iss`): 1 to 2,048 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Issuer(String);

/// The pair of root issuer and, where the issuer asserts one, root subject (`sub`, 1 to 256 bytes).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalName {
    issuer: Issuer,
    subject: Option<String>,
}

/// A token's `jti` (1 to 256 bytes), scoped to its root's principal so that no principal can revoke another's, and to the
/// tokens above it where they are named: a holder chooses the `jti` of the tokens below its own, and may choose one that a token
/// elsewhere has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelegationName {
    principal: PrincipalName,
    /// The `jti` of the tokens above it, root first. Empty: the id counts wherever it occurs.
    under: Vec<String>,
    id: String,
}

/// What can be revoked, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubjectName<'a> {
    Principal(&'a PrincipalName),
    Key(&'a Thumbprint),
    Issuer(&'a Issuer),
    Delegation(&'a DelegationName),
}

/// Why something cannot be the name of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    #[error("an issuer has 1 to {MAX_ISSUER_BYTES} bytes")]
    Issuer,
    #[error("a subject, if there is one, has 1 to {MAX_SUBJECT_BYTES} bytes")]
    Subject,
    #[error(
        "a thumbprint is the SHA-256 of RFC 7638 in base64url without padding: 43 characters of A-Z a-z 0-9 - _ (the \
         last of which carries four bits)"
    )]
    Thumbprint,
    #[error("a delegation's id (jti) has 1 to {MAX_ID_BYTES} bytes")]
    DelegationId,
    #[error("a delegation hangs under at most {MAX_UNDER} others (under); a chain has no more")]
    TooManyAbove,
}

// === impl SubjectName ===

impl SubjectName<'_> {
    /// As records name it, without anything that can change.
    pub(crate) fn to_wire(self) -> Subject {
        match self {
            Self::Principal(name) => Subject::Principal(v1::PrincipalState {
                principal: Some(name.to_wire()),
                ..v1::PrincipalState::default()
            }),
            Self::Key(thumbprint) => Subject::Key(v1::RevokedKey {
                thumbprint: thumbprint.to_string(),
            }),
            Self::Issuer(issuer) => Subject::IssuerFloor(v1::IssuerFloor {
                issuer: issuer.0.clone(),
                issued_up_to: 0,
            }),
            Self::Delegation(name) => Subject::Delegation(v1::RevokedDelegation {
                principal: Some(name.principal.to_wire()),
                id: name.id.clone(),
                revoked_at: 0,
                under: name.under.clone(),
            }),
        }
    }
}

// === impl Operation ===

impl Operation {
    /// What the operation is about.
    pub(crate) fn subject(&self) -> SubjectName<'_> {
        match self {
            Self::Raise { principal, .. } | Self::Disable(principal) | Self::Enable(principal) => {
                SubjectName::Principal(principal)
            }
            Self::RevokeKey(thumbprint) => SubjectName::Key(thumbprint),
            Self::RaiseIssuerFloor { issuer, .. } => SubjectName::Issuer(issuer),
            Self::RevokeDelegation(name) => SubjectName::Delegation(name),
        }
    }

    /// Whose tokens the operation concerns; a key may occur in those of any issuer.
    pub fn issuer(&self) -> Option<&Issuer> {
        match self.subject() {
            SubjectName::Principal(name) => Some(&name.issuer),
            SubjectName::Issuer(issuer) => Some(issuer),
            SubjectName::Delegation(name) => Some(&name.principal.issuer),
            SubjectName::Key(_) => None,
        }
    }

    /// What the operation does, for logs and metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Raise { .. } => "raise",
            Self::Disable(_) => "disable",
            Self::Enable(_) => "enable",
            Self::RevokeKey(_) => "revoke_key",
            Self::RaiseIssuerFloor { .. } => "raise_issuer_floor",
            Self::RevokeDelegation(_) => "revoke_delegation",
        }
    }
}

// === impl Source ===

impl Source {
    /// For logs, the history and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Statement => "statement",
            Self::Provisioning => "provisioning",
            Self::SecurityEvent => "security_event",
        }
    }

    /// Every source, in the order of their bits.
    pub(crate) const ALL: [Self; 4] = [Self::Operator, Self::Statement, Self::Provisioning, Self::SecurityEvent];

    /// The names of the sources that `SubjectState.disabled_by` has.
    pub fn disablers(disabled_by: u32) -> Vec<&'static str> {
        let disablers = Self::ALL
            .into_iter()
            .filter(|source| disabled_by & source.disabler() != 0);
        disablers.map(Self::name).collect()
    }

    /// The bit of `SubjectState.disabled_by` that is this source's.
    pub(crate) fn disabler(self) -> u32 {
        self as u32
    }

    /// The bits that an enable from this source clears.
    pub(crate) fn lifts(self) -> u32 {
        match self {
            Self::Operator => u32::MAX,
            Self::Statement | Self::Provisioning | Self::SecurityEvent => self.disabler(),
        }
    }
}

// === impl Issuer ===

impl Issuer {
    pub fn parse(text: String) -> Result<Self, SubjectError> {
        fits(&text, MAX_ISSUER_BYTES)
            .then_some(Self(text))
            .ok_or(SubjectError::Issuer)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// === impl PrincipalName ===

impl PrincipalName {
    pub fn parse(issuer: String, subject: Option<String>) -> Result<Self, SubjectError> {
        let issuer = Issuer::parse(issuer)?;
        match subject {
            Some(subject) if !fits(&subject, MAX_SUBJECT_BYTES) => Err(SubjectError::Subject),
            subject => Ok(Self { issuer, subject }),
        }
    }

    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    pub fn to_wire(&self) -> v1::Principal {
        v1::Principal {
            issuer: self.issuer.0.clone(),
            subject: self.subject.clone(),
        }
    }
}

impl TryFrom<v1::Principal> for PrincipalName {
    type Error = SubjectError;

    fn try_from(principal: v1::Principal) -> Result<Self, SubjectError> {
        Self::parse(principal.issuer, principal.subject)
    }
}

// === impl DelegationName ===

impl DelegationName {
    /// `under` names the tokens above it, root first; empty, the id counts wherever it occurs.
    pub fn parse(principal: PrincipalName, under: Vec<String>, id: String) -> Result<Self, SubjectError> {
        if under.len() > MAX_UNDER {
            return Err(SubjectError::TooManyAbove);
        }
        if under.iter().chain([&id]).any(|id| !fits(id, MAX_ID_BYTES)) {
            return Err(SubjectError::DelegationId);
        }
        Ok(Self { principal, under, id })
    }
}

/// Any text, control characters too: code that shows a name has to escape it.
fn fits(text: &str, limit: usize) -> bool {
    !text.is_empty() && text.len() <= limit
}

// A record of the largest names stays well below the 64 KiB of a snapshot chunk.
const MAX_ISSUER_BYTES: usize = 2048;
// What tokens may carry: each that can be presented can be revoked.
const MAX_SUBJECT_BYTES: usize = 256;
const MAX_ID_BYTES: usize = 256;
// A chain has at most nine tokens.
const MAX_UNDER: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const THUMBPRINT: &str = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";

    #[test]
    fn whatever_a_token_may_carry_can_be_revoked() {
        for name in [
            "x".repeat(256),
            "é".repeat(128),
            "a\0\n\u{1b}[31m\u{202e}".to_owned(),
            " ".to_owned(),
        ] {
            let principal = PrincipalName::parse("https://id".to_owned(), Some(name.clone())).unwrap();
            DelegationName::parse(principal, vec![name.clone(); 8], name).unwrap();
        }
    }

    #[test]
    fn names_of_impossible_length_are_refused() {
        for issuer in ["", &"x".repeat(MAX_ISSUER_BYTES + 1)] {
            assert_eq!(PrincipalName::parse(issuer.to_owned(), None), Err(SubjectError::Issuer));
        }
        for subject in ["", &"x".repeat(MAX_SUBJECT_BYTES + 1)] {
            let refused = PrincipalName::parse("https://id".to_owned(), Some(subject.to_owned()));
            assert_eq!(refused, Err(SubjectError::Subject));
        }
    }

    #[test]
    fn what_no_chain_has_above_a_token_is_refused() {
        let parse = |under: Vec<String>| {
            let principal = PrincipalName::parse("https://id".to_owned(), None).unwrap();
            DelegationName::parse(principal, under, "leaf".to_owned())
        };
        assert_eq!(parse(vec!["x".to_owned(); 9]), Err(SubjectError::TooManyAbove));
        for id in ["", &"x".repeat(MAX_ID_BYTES + 1)] {
            assert_eq!(parse(vec![id.to_owned()]), Err(SubjectError::DelegationId));
        }
    }

    #[test]
    fn a_thumbprint_has_exactly_one_spelling() {
        Thumbprint::parse(THUMBPRINT).unwrap();
        let padded = format!("{THUMBPRINT}=");
        let other_last_bits = format!("{}t", &THUMBPRINT[..42]);
        let other_alphabet = THUMBPRINT.replace('-', "+");
        for wrong in ["", &THUMBPRINT[1..], &padded, &other_last_bits, &other_alphabet] {
            assert_eq!(Thumbprint::parse(wrong), None, "{wrong}");
        }
    }
}
