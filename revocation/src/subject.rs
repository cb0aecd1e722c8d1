//! What can be revoked, parsed into types that are always valid.

use std::fmt;

use credence_delegation::Thumbprint;
use credence_wire::v1;
use credence_wire::v1::record::Subject;

/// A request to change the log, and its requester.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub operation: Operation,
    pub by: Requester,
    /// The caller's reason, for the history: at most 512 bytes.
    pub reason: Option<String>,
}

/// The requester of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    pub source: Source,
    /// The configured name of the credential, the realm or the transmitter; for a statement, the thumbprint of the key
    /// that signed it.
    pub name: String,
}

/// The source of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A caller with a token or certificate for the operator API.
    Operator = 1,
    /// A statement signed by the principal, or by the issuer on its behalf.
    Statement = 2,
    /// The identity provider, by SCIM (RFC 7644).
    Provisioning = 4,
    /// The identity provider, by a security event token (RFC 8417).
    SecurityEvent = 8,
    /// The control plane, which fetches the keys of issuers.
    KeyFetch = 16,
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Revokes everything granted under the principal's present epoch. If `from` is given, only if that is the present
    /// epoch.
    Raise {
        principal: PrincipalName,
        from: Option<u64>,
    },
    /// Raises, and revokes everything until the same source enables the principal.
    Disable(PrincipalName),
    /// Raises, and removes the disables of the same source; an operator removes all.
    Enable(PrincipalName),
    /// Revokes every chain in which the key occurs.
    RevokeKey(Thumbprint),
    /// Revokes every root token of the issuer with `iat` at or before this instant, seconds since the Unix epoch.
    RaiseIssuerFloor { issuer: Issuer, issued_up_to: i64 },
    /// Revokes one token and everything derived from it.
    RevokeDelegation(DelegationName),
    /// Replaces the keys of an issuer. It revokes those that two fetches were without.
    SetIssuerKeys(FetchedKeys),
}

/// The keys that an issuer publishes, as fetched now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedKeys {
    pub issuer: Issuer,
    /// Public JWKs, each with its `kid`, if it has one: at most [`MAX_ISSUER_KEYS`].
    pub keys: Vec<(String, Option<String>)>,
    /// How long they are trusted without another fetch, in seconds.
    pub max_age: i64,
    /// The shortest time between two fetches that count as two, in seconds.
    pub apart: i64,
}

/// A root issuer (`iss`): 1 to 2,048 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Issuer(String);

/// A root issuer and, if the issuer asserts one, a root subject (`sub`, 1 to 256 bytes).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalName {
    issuer: Issuer,
    subject: Option<String>,
}

/// A token's `jti` (1 to 256 bytes), scoped to its root's principal, so that a principal cannot revoke another's
/// tokens. It is also scoped to the tokens above, if they are named: a holder chooses the `jti` of derived tokens, and
/// may copy one that another token has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelegationName {
    principal: PrincipalName,
    /// The `jti` of the tokens above it, root first. If empty, the id counts wherever it occurs.
    under: Vec<String>,
    id: String,
}

/// A subject's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubjectName<'a> {
    Principal(&'a PrincipalName),
    Key(&'a Thumbprint),
    Issuer(&'a Issuer),
    Delegation(&'a DelegationName),
    IssuerKeys(&'a Issuer),
}

/// Why a value is not a valid subject name.
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
    #[error("a delegation has at most {MAX_UNDER} tokens above it (under), because a chain has no more")]
    TooManyAbove,
}

// === impl SubjectName ===

impl SubjectName<'_> {
    /// As in records, without anything that can change.
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
            Self::IssuerKeys(issuer) => Subject::IssuerKeys(v1::IssuerKeys {
                issuer: issuer.0.clone(),
                ..v1::IssuerKeys::default()
            }),
        }
    }
}

/// As `credence watch` writes it. Names are not escaped.
impl fmt::Display for SubjectName<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal(name) => write!(out, "principal {name}"),
            Self::Key(thumbprint) => write!(out, "key {thumbprint}"),
            Self::Issuer(issuer) => write!(out, "issuer {}", issuer.0),
            Self::IssuerKeys(issuer) => write!(out, "keys of {}", issuer.0),
            Self::Delegation(name) => {
                out.write_str("delegation ")?;
                for above in &name.under {
                    write!(out, "{above} > ")?;
                }
                write!(out, "{} of {}", name.id, name.principal)
            }
        }
    }
}

// === impl Operation ===

impl Operation {
    /// The subject of the operation.
    pub(crate) fn subject(&self) -> SubjectName<'_> {
        match self {
            Self::Raise { principal, .. } | Self::Disable(principal) | Self::Enable(principal) => {
                SubjectName::Principal(principal)
            }
            Self::RevokeKey(thumbprint) => SubjectName::Key(thumbprint),
            Self::RaiseIssuerFloor { issuer, .. } => SubjectName::Issuer(issuer),
            Self::RevokeDelegation(name) => SubjectName::Delegation(name),
            Self::SetIssuerKeys(fetched) => SubjectName::IssuerKeys(&fetched.issuer),
        }
    }

    /// The issuer whose tokens the operation concerns. None for a key, which may occur in those of any issuer.
    pub fn issuer(&self) -> Option<&Issuer> {
        match self.subject() {
            SubjectName::Principal(name) => Some(&name.issuer),
            SubjectName::Issuer(issuer) | SubjectName::IssuerKeys(issuer) => Some(issuer),
            SubjectName::Delegation(name) => Some(&name.principal.issuer),
            SubjectName::Key(_) => None,
        }
    }

    /// The operation's name, for logs and metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Raise { .. } => "raise",
            Self::Disable(_) => "disable",
            Self::Enable(_) => "enable",
            Self::RevokeKey(_) => "revoke_key",
            Self::RaiseIssuerFloor { .. } => "raise_issuer_floor",
            Self::RevokeDelegation(_) => "revoke_delegation",
            Self::SetIssuerKeys(_) => "set_issuer_keys",
        }
    }
}

// === impl Source ===

impl Source {
    /// The source's name, for logs, the history and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Statement => "statement",
            Self::Provisioning => "provisioning",
            Self::SecurityEvent => "security_event",
            Self::KeyFetch => "key_fetch",
        }
    }

    /// Every source, in the order of their bits.
    pub(crate) const ALL: [Self; 5] = [
        Self::Operator,
        Self::Statement,
        Self::Provisioning,
        Self::SecurityEvent,
        Self::KeyFetch,
    ];

    /// The names of the sources in `SubjectState.disabled_by`.
    pub fn disablers(disabled_by: u32) -> Vec<&'static str> {
        let disablers = Self::ALL
            .into_iter()
            .filter(|source| disabled_by & source.disabler() != 0);
        disablers.map(Self::name).collect()
    }

    /// The bit of this source in `SubjectState.disabled_by`.
    pub(crate) fn disabler(self) -> u32 {
        self as u32
    }

    /// The bits that an enable from this source clears.
    pub(crate) fn lifts(self) -> u32 {
        match self {
            Self::Operator => u32::MAX,
            Self::Statement | Self::Provisioning | Self::SecurityEvent | Self::KeyFetch => self.disabler(),
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

impl fmt::Display for PrincipalName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(subject) = &self.subject {
            write!(out, "{subject} at ")?;
        }
        out.write_str(&self.issuer.0)
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
    /// `under` names the tokens above it, root first. If empty, the id counts wherever it occurs.
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

/// Any text, with control characters too: code that shows a name must escape it.
fn fits(text: &str, limit: usize) -> bool {
    !text.is_empty() && text.len() <= limit
}

/// Keys of one issuer. Filters ignore more.
pub const MAX_ISSUER_KEYS: usize = 16;
/// Their record: half of a snapshot's chunk.
pub(crate) const MAX_ISSUER_KEYS_BYTES: usize = 32 << 10;

// A record with the largest names stays well below the 64 KiB of a snapshot chunk.
const MAX_ISSUER_BYTES: usize = 2048;
// The limits of tokens: every token that can be presented can be revoked.
const MAX_SUBJECT_BYTES: usize = 256;
const MAX_ID_BYTES: usize = 256;
// A chain has at most nine tokens.
const MAX_UNDER: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const THUMBPRINT: &str = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";

    #[test]
    fn every_name_that_a_token_may_carry_can_be_revoked() {
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
    fn more_tokens_above_than_a_chain_has_are_refused() {
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
