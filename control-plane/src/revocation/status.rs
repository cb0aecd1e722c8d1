//! Whether the log voids a delegation: the filters' rule, asked of the state at the head.

use credence_delegation::revocation::{PrincipalState, RevocationView};
use credence_delegation::{Thumbprint as KeyThumbprint, UnixTime};

use super::state::State;
use super::subject::{DelegationName, Issuer, PrincipalName, Thumbprint};

/// A name that the log can not hold has never been revoked; whoever asks by one is refused before.
impl RevocationView for State {
    fn principal(&self, issuer: &str, subject: Option<&str>) -> PrincipalState {
        name(issuer, subject)
            .and_then(|name| self.principal_state(&name))
            .map(|(epoch, disabled, raised_at)| PrincipalState {
                epoch,
                disabled,
                raised_at: Some(UnixTime(raised_at)),
            })
            .unwrap_or_default()
    }

    fn is_key_revoked(&self, key: &KeyThumbprint) -> bool {
        Thumbprint::parse(key.to_string()).is_ok_and(|key| self.has_key(&key))
    }

    fn issuer_floor(&self, issuer: &str) -> Option<UnixTime> {
        let issuer = Issuer::parse(issuer.to_owned()).ok()?;
        self.floor_of(&issuer).map(UnixTime)
    }

    fn log_floor(&self) -> Option<UnixTime> {
        self.floor_of_all().map(UnixTime)
    }

    fn is_delegation_revoked(&self, issuer: &str, subject: Option<&str>, id: &str) -> bool {
        name(issuer, subject)
            .and_then(|name| DelegationName::parse(name, id.to_owned()).ok())
            .is_some_and(|delegation| self.has_delegation(&delegation))
    }
}

fn name(issuer: &str, subject: Option<&str>) -> Option<PrincipalName> {
    PrincipalName::parse(issuer.to_owned(), subject.map(str::to_owned)).ok()
}
