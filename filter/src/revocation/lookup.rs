//! The view as `credence_delegation::revocation::void` asks it.

use credence_delegation::revocation::{PrincipalState, RevocationView};
use credence_delegation::{Thumbprint, UnixTime};

use super::View;

impl RevocationView for View {
    fn principal(&self, issuer: &str, subject: Option<&str>) -> PrincipalState {
        let state = View::principal(self, issuer, subject);
        PrincipalState {
            epoch: state.epoch,
            disabled: state.disabled,
            raised_at: (state.raised_at != 0).then_some(UnixTime(state.raised_at)),
        }
    }

    fn is_key_revoked(&self, key: &Thumbprint) -> bool {
        View::is_key_revoked(self, &key.to_string())
    }

    fn issuer_floor(&self, issuer: &str) -> Option<UnixTime> {
        View::issuer_floor(self, issuer).map(UnixTime)
    }

    fn log_floor(&self) -> Option<UnixTime> {
        View::log_floor(self).map(UnixTime)
    }

    fn is_delegation_revoked(&self, issuer: &str, subject: Option<&str>, id: &str) -> bool {
        View::is_delegation_revoked(self, issuer, subject, id)
    }
}
