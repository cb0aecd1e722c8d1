//! The credential of a request: a delegation in its own header, or an access token in `Authorization` where the rule reads
//! that.

use crate::config::{ProofKind, Requirement};
use crate::decision::Reason;
use crate::request::{Header, Request};

/// A request's only credential. Nothing in it is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credential<'r> {
    /// Its tokens, root first, joined by `~`. An access token is one.
    pub tokens: &'r [u8],
    /// How it is presented.
    pub scheme: Scheme,
}

/// How a credential is presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In the header for delegations.
    Delegation,
    /// `Authorization: Bearer` (RFC 6750, section 2.1).
    Bearer,
    /// `Authorization: DPoP` (RFC 9449, section 7.1).
    Dpop,
}

impl<'r> Credential<'r> {
    /// The credential that a rule with this requirement reads.
    ///
    /// # Errors
    /// If there is none, or more than one (RFC 6750, section 2).
    pub fn of(request: &Request<'r>, requirement: &Requirement) -> Result<Self, Reason> {
        let authorization = match &requirement.authorization {
            Some(_) => request.authorization,
            None => Header::Absent,
        };
        match (request.delegation, authorization) {
            (Header::Once(tokens), Header::Absent) => Ok(Self {
                tokens,
                scheme: Scheme::Delegation,
            }),
            (Header::Absent, Header::Once(value)) => Self::in_authorization(value),
            (Header::Absent, Header::Absent) => Err(Reason::DelegationMissing),
            (Header::Repeated, Header::Absent) | (Header::Absent, Header::Repeated) => Err(Reason::DelegationRepeated),
            (Header::Once(_) | Header::Repeated, Header::Once(_) | Header::Repeated) => {
                Err(Reason::CredentialsAmbiguous)
            }
        }
    }

    /// The proof that the rule asks of it.
    pub fn proof(&self, requirement: &Requirement) -> Result<ProofKind, Reason> {
        let Some(authorization) = requirement.authorization.as_ref().filter(|_| self.is_access_token()) else {
            return Ok(requirement.proof);
        };
        if (authorization.proof == ProofKind::Dpop) != (self.scheme == Scheme::Dpop) {
            return Err(Reason::AuthorizationScheme);
        }
        Ok(authorization.proof)
    }

    /// Whether it is an access token.
    pub fn is_access_token(&self) -> bool {
        self.scheme != Scheme::Delegation
    }

    /// RFC 9110, section 11.4: the scheme in any case, spaces, and a token.
    fn in_authorization(value: &'r [u8]) -> Result<Self, Reason> {
        let end = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
        let (name, rest) = value.split_at_checked(end).unwrap_or_default();
        let scheme = match name {
            _ if name.eq_ignore_ascii_case(b"Bearer") => Scheme::Bearer,
            _ if name.eq_ignore_ascii_case(b"DPoP") => Scheme::Dpop,
            // Credentials of another kind are none for this rule.
            _ => return Err(Reason::DelegationMissing),
        };
        let tokens = rest.trim_ascii();
        // A chain is no access token.
        if tokens.is_empty() || tokens.contains(&b'~') {
            return Err(Reason::DelegationMalformed);
        }
        Ok(Self { tokens, scheme })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_schemes_of_oauth_in_any_case() {
        let read = |value: &'static str| Credential::in_authorization(value.as_bytes());
        let token = |scheme| {
            Ok(Credential {
                tokens: b"a.b.c",
                scheme,
            })
        };
        for value in ["Bearer a.b.c", "bearer a.b.c", "BEARER   a.b.c"] {
            assert_eq!(read(value), token(Scheme::Bearer), "{value}");
        }
        assert_eq!(read("dpop a.b.c"), token(Scheme::Dpop));
        for value in ["Bearer", "Bearer ", "DPoP root~leaf", "DPoP ~"] {
            assert_eq!(read(value), Err(Reason::DelegationMalformed), "{value}");
        }
        for value in ["", " ", "Basic YTpi", "a.b.c", "Bearer\ta.b.c", "DPoPa.b.c"] {
            assert_eq!(read(value), Err(Reason::DelegationMissing), "{value}");
        }
    }
}
