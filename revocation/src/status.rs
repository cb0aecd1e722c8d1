//! Whether the log revokes a delegation: the filters' rule, applied to the state at the head.

use credence_delegation::revocation::{DelegationPath, Memory, PrincipalState, RevocationView};
use credence_delegation::{Thumbprint, UnixTime};

use crate::state::State;
use crate::subject::{DelegationName, Issuer, PrincipalName, SubjectName};

/// The state at the head.
#[derive(Debug, Clone, Copy)]
pub struct Knowledge<'a> {
    pub(crate) state: &'a State,
    /// The longest lifetime, in seconds, of a token whose revocation is remembered long enough.
    pub(crate) max_token_lifetime: u64,
}

/// A name that the log cannot hold was never revoked. Requests with such names are refused earlier.
impl RevocationView for Knowledge<'_> {
    fn principal(&self, issuer: &str, subject: Option<&str>) -> PrincipalState {
        name(issuer, subject)
            .and_then(|name| self.state.get(SubjectName::Principal(&name)))
            .map(|state| PrincipalState {
                epoch: state.epoch,
                disabled: state.disabled_by != 0,
                raised_at: Some(UnixTime(state.time)),
            })
            .unwrap_or_default()
    }

    fn is_key_revoked(&self, key: &Thumbprint) -> bool {
        self.state.get(SubjectName::Key(key)).is_some()
    }

    fn issuer_floor(&self, issuer: &str) -> Option<UnixTime> {
        let issuer = Issuer::parse(issuer.to_owned()).ok()?;
        let floor = self.state.get(SubjectName::Issuer(&issuer))?;
        Some(UnixTime(floor.time))
    }

    fn log_floor(&self) -> Option<UnixTime> {
        self.state.log_floor.map(UnixTime)
    }

    fn is_delegation_revoked(&self, issuer: &str, subject: Option<&str>, token: DelegationPath<'_>) -> bool {
        let Some(name) = name(issuer, subject) else {
            return false;
        };
        let has = |under: &[&str]| {
            let under = under.iter().copied().map(str::to_owned).collect();
            DelegationName::parse(name.clone(), under, token.id.to_owned())
                .is_ok_and(|delegation| self.state.get(SubjectName::Delegation(&delegation)).is_some())
        };
        has(&[]) || (!token.under.is_empty() && has(token.under))
    }

    fn memory(&self) -> Memory {
        Memory {
            token_lifetime: Some(self.max_token_lifetime),
            forgotten_before: None,
        }
    }
}

fn name(issuer: &str, subject: Option<&str>) -> Option<PrincipalName> {
    PrincipalName::parse(issuer.to_owned(), subject.map(str::to_owned)).ok()
}
